"""Calls that only move elements between strided places."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from opbuild.kernel.opdesc import Dim, OpDesc, Operand
from opbuild.lowering.loops import Loops, collapse, inner_dim, vector_width
from opbuild.program import View

Made = tuple[OpDesc, tuple[View, ...]]

PARALLEL_BYTES = 1 << 19
"""From here on waking a second thread costs less than it saves."""


def storage_type(dtype: str) -> str:
    """Return the type as which elements are moved: only their size matters, so that kernels are few."""
    return f"uint{8 * np.dtype(dtype).itemsize}"


def copy(views: Sequence[View], dtype: str = "float32", threads: int = 2) -> Made:
    """Make the call that copies a strided tensor of any rank to another of the same extents."""
    loops = collapse(views)
    itemsize = np.dtype(dtype).itemsize
    kind, loops = _kind(loops, itemsize)
    loops = loops.filled(at=2 if kind == "transpose" else 1) if len(loops.extents) > 1 else loops
    extent = loops.extents[0]
    source: tuple[Dim, ...]
    target: tuple[Dim, ...]
    if kind == "transpose":
        width = _block(itemsize)
        source = (Dim(min=width), Dim(stride=1, min=width))
        target = (Dim(stride=1, min=width), Dim(min=width))
    else:
        width = vector_width(extent, itemsize) if loops.strides[1][0] == 1 and loops.strides[0][0] in (0, 1) else 1
        source, target = ((inner_dim(steps[0], width),) for steps in loops.strides[:2])
    rest = (Dim(),) * (len(loops.extents) - len(source))
    desc = OpDesc(
        op_types=("Copy",),
        family="copy",
        inputs=(Operand("x", storage_type(dtype), source + rest),),
        outputs=(Operand("out", storage_type(dtype), target + rest),),
        variant={
            "kind": kind,
            "width": width,
            "parallel": threads > 1 and loops.size * itemsize >= PARALLEL_BYTES,
        },
    )
    return desc, loops.views(views)


def _block(itemsize: int) -> int:
    """Return the edge of the square blocks that a transposition goes by: one vector, at most 16 elements."""
    return min(16, 64 // itemsize)


def _kind(loops: Loops, itemsize: int) -> tuple[str, Loops]:
    source, target = loops.strides
    if target[0] == 1 and source[0] not in (0, 1) and 1 in source[1:]:
        other = source.index(1, 1)
        if loops.extents[0] >= _block(itemsize) and loops.extents[other] >= _block(itemsize):
            return "transpose", loops.moved(other, 1)
    return "rows", loops
