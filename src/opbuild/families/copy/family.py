"""Elements of one strided tensor, in another."""

from __future__ import annotations

from collections.abc import Sequence

from opbuild.families.dims import inner_dim, storage_type, vector_width
from opbuild.families.family import Dims, Family, Variant, VariantPart, elements, moved_bytes
from opbuild.kernel.opdesc import Dim, OpDesc, Operand
from opbuild.target.machine import Machine

BLOCKS = 2.0
"""Time of going by square blocks, in that of moving as many bytes in order."""

SINGLE = 0.5
"""Nanoseconds that one core takes to move an element by itself."""


def edge(itemsize: int) -> int:
    """Return the edge of the square blocks that a transposition goes by.

    Blocks of 8 by 8 float32 take 0.4 to 0.86 of the time of 16 by 16 on AVX-512, 0.77 to 0.96 on AVX2, and less than a
    fifth of the code.
    """
    return 8 if itemsize >= 4 else 16


def choose(row: int, itemsize: int, adjacent: bool, column: int, _machine: Machine) -> Variant:
    """Return the variant.

    ``kind``: ``rows`` reads along the output's rows, ``width`` elements at once; ``transpose`` goes by square blocks of
    that width.

    Args:
        row: Elements of an innermost row.
        itemsize: Bytes of an element.
        adjacent: Whether neighbours in a row are adjacent in the output, and adjacent or one in the input.
        column: Elements of the dimension along which the input's are adjacent, if that is another one; else 0.
    """
    transposes = min(row, column) >= edge(itemsize)
    width = edge(itemsize) if transposes else vector_width(row, itemsize) if adjacent else 1
    return {"kind": "transpose" if transposes else "rows", "width": width}


def work(desc: OpDesc, shapes: Sequence[Dims], machine: Machine) -> float:
    """Return the nanoseconds on one core."""
    if desc.variant["width"] == 1:
        return SINGLE * elements(shapes[-1])
    return moved_bytes(desc, shapes, machine) * (BLOCKS if desc.variant["kind"] == "transpose" else 1)


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
    variant={"kind": VariantPart(least="rows", lacking=2.0), "width": VariantPart(least=1)},
    any_stride=True,
    any_rank=True,
    work=work,
    is_certain=True,
)
