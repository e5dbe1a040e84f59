"""Parts that kernels for NVIDIA's GPUs have in common, as far as descriptors say them; nothing of a compiler is loaded.

A family with such kernels has a file ``cuda.py``: ``serve`` returns the descriptor of the kernel that computes what a
CPU's computes, on the same operands, or None; ``COST`` is the time of a call, if it does more than move its operands.
Its kernels are in ``triton.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from opbuild.dtypes import itemsize
from opbuild.families.family import Variant
from opbuild.kernel.opdesc import FREE, Dim, OpDesc, Operand
from opbuild.operations.expression import Expression, walk
from opbuild.operations.table import OPERATIONS
from opbuild.platform.records import replace

TARGET = "cuda:sm_90a"

TYPES = frozenset(
    {"bool", "float16", "bfloat16", "float32", "float64"}
    | {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
)
"""The types of operands."""

CORES = 132
"""Multiprocessors, each of which computes a tile at a time, or several small ones."""

MOST = 2**31 - 2**16
"""The greatest extent: indices are int32, also behind the end of the last tile."""

ROW_BYTES = 2048
"""Bytes of a tile's row where elements are adjacent: 16 for each thread of four warps."""


def wide_tile(desc: OpDesc) -> Variant:
    """Return a tile of rows whose elements are adjacent: each thread moves 16 bytes at once, and does so twice."""
    return {"columns": ROW_BYTES // max(itemsize(operand.dtype) for operand in desc.operands), "rows": 2}


def on_device(desc: OpDesc, variant: Variant) -> OpDesc:
    """Return a CPU's descriptor for the device: any extents, of strides only 0 and 1 of the innermost dimension."""
    inputs, outputs = (tuple(map(_free, side)) for side in (desc.inputs, desc.outputs))
    return replace(desc, inputs=inputs, outputs=outputs, variant=dict(variant), target=TARGET)


def of_types(desc: OpDesc, types: Collection[str], variant: Variant) -> OpDesc | None:
    """Return a CPU's descriptor for the device; None if an operand has none of some types."""
    return on_device(desc, variant) if all(operand.dtype in types for operand in desc.operands) else None


def _free(operand: Operand) -> Operand:
    dims = [Dim(stride=dim.stride if dim.stride in (0, 1) else FREE, max=MOST) for dim in operand.dims]
    return replace(operand, dims=tuple(dims))


def is_plain(desc: OpDesc) -> bool:
    """Return whether operands have types of the device, and nothing is asked for that only CPUs' kernels do."""
    return not desc.source and not desc.is_precise and {operand.dtype for operand in desc.operands} <= TYPES


def has_code(expression: Expression, dtypes: Sequence[str]) -> bool:
    """Return whether an expression of operands of some types can be computed."""
    parts = [*walk(expression)]
    types = {*dtypes, *(part[1] for part in parts if part[0] in ("const", "cast"))}
    heads = {part[0] for part in parts} - {"arg", "acc", "const", "cast"}
    if not types <= TYPES or not heads <= OPERATIONS.keys():
        return False
    return "float64" not in types or all(OPERATIONS[head].float64 for head in heads)
