"""Elements of one tensor at places that another one names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opbuild.families.dims import inner_dim, storage_type, vector_width
from opbuild.families.family import Family, Part, Variant
from opbuild.kernel.machine import Machine
from opbuild.kernel.opdesc import Dim, OpDesc, Operand

Dims = tuple[tuple[int, int], ...]
"""Extents and strides, innermost first."""


def choose(row: int, itemsize: int, kind: str, _machine: Machine) -> Variant:
    """Return the variant for an output in rows of ``row``; single elements are gathered one by one."""
    return {"width": 1 if kind == "elements" else vector_width(row, itemsize)}


def describe(
    op_type: str, attrs: Mapping[str, Any], types: tuple[str, str], views: tuple[Dims, Dims, Dims], variant: Variant
) -> OpDesc:
    """Return the descriptor; operands x, indices and out, ``types`` those of the first two, ``views`` their dims."""
    x, indices, out = views
    moved, width = storage_type(types[0]), variant["width"]
    inputs = (Operand("x", moved, _dims(x, width, 1)), Operand("indices", types[1], _dims(indices, 1, 0)))
    return FAMILY.desc((op_type,), inputs, (Operand("out", moved, _dims(out, width, 0)),), attrs, variant)


def _dims(view: Dims, width: int, least: int) -> tuple[Dim, ...]:
    extent, stride = view[0]
    first = inner_dim(1 if extent == 1 and width == 1 and stride not in (0, 1) else stride, width)
    return (Dim(stride=first.stride, min=max(first.min, least)), *(Dim(min=least) for _ in view[1:]))


FAMILY = Family(
    "gather",
    choose,
    attributes=("kind", "axis"),
    variant={"width": Part(least=1)},
    least_extent=1,
    any_stride=True,
)
