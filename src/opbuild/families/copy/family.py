"""Elements of one strided tensor, in another."""

from __future__ import annotations

from opbuild.families.dims import inner_dim, storage_type, vector_width
from opbuild.families.family import THREADS, Family, Part, Variant
from opbuild.kernel.machine import Machine
from opbuild.kernel.opdesc import Dim, OpDesc, Operand

PARALLEL_BYTES = 1 << 19
"""From here on waking a second thread costs less than it saves."""


def edge(itemsize: int) -> int:
    """Return the edge of the square blocks that a transposition goes by: one vector, at most 16 elements."""
    return min(16, 64 // itemsize)


def choose(row: int, elements: int, itemsize: int, adjacent: bool, transposes: bool, machine: Machine) -> Variant:
    """Return the variant.

    ``kind``: ``rows`` reads along the output's rows, ``width`` elements at once; ``transpose`` goes by square blocks of
    that width.

    Args:
        row: Elements of an innermost row.
        elements: Elements in all.
        itemsize: Bytes of one.
        adjacent: Whether neighbours in a row are adjacent in the output, and adjacent or one in the input.
        transposes: Whether the input's adjacent elements lie along another dimension, in blocks.
        machine: What runs it.
    """
    width = edge(itemsize) if transposes else vector_width(row, itemsize) if adjacent else 1
    parallel = THREADS > 1 and elements * itemsize >= PARALLEL_BYTES
    return {"kind": "transpose" if transposes else "rows", "width": width, "parallel": parallel}


def describe(dtype: str, steps: tuple[int, int], rank: int, variant: Variant) -> OpDesc:
    """Return the descriptor; operands x and out of a rank, ``steps`` their innermost strides."""
    width = variant["width"]
    source: tuple[Dim, ...]
    target: tuple[Dim, ...]
    if variant["kind"] == "transpose":
        source, target = (Dim(min=width), Dim(stride=1, min=width)), (Dim(stride=1, min=width), Dim(min=width))
    else:
        source, target = ((inner_dim(step, width),) for step in steps)
    rest = (Dim(),) * rank
    x, out = (
        Operand(name, storage_type(dtype), (*inner, *rest)[:rank]) for name, inner in (("x", source), ("out", target))
    )
    return FAMILY.desc(("Copy",), (x,), (out,), {}, variant)


FAMILY = Family(
    "copy",
    choose,
    variant={"kind": Part(least="rows", lacking=2.0), "width": Part(least=1), "parallel": Part(False, lacking=3.0)},
    any_stride=True,
    any_rank=True,
)
