"""Weighted neighbours along one axis."""

from __future__ import annotations

from collections.abc import Sequence

from opbuild.families.family import Dims, Family, Variant, VariantPart, elements
from opbuild.kernel.opdesc import Dim, OpDesc, Operand
from opbuild.target.machine import Machine


def choose(row: int, machine: Machine) -> Variant:
    """Return the variant for an output in rows of ``row``."""
    # Of a level's own lanes: 16 on AVX2, two registers, take 1.1 to 1.25 times as long.
    return {"width": next((width for width in (machine.lanes, 4) if width <= row), 1)}


def work(desc: OpDesc, shapes: Sequence[Dims], _machine: Machine) -> float:
    """Return the nanoseconds on one core: 0.07 a neighbour, 0.5 one that is gathered, along the innermost axis."""
    return elements(shapes[-1]) * int(desc.attrs["taps"]) * (0.07 if len(shapes[-1]) == 3 else 0.5)


def describe(taps: int, rank: int, variant: Variant) -> OpDesc:
    """Return the descriptor; operands x, places, weights and out. The innermost axis of a rank of 2 is resized."""
    width, rest = variant["width"], (Dim(min=1),) * (rank - 1)
    entries = (Dim(extent=taps, stride=1), Dim(stride=taps))
    inputs = (
        Operand("x", "float32", (Dim(stride=1, min=width if rank == 3 else 1), *rest)),
        Operand("places", "int32", entries),
        Operand("weights", "float32", entries),
    )
    out = Operand("out", "float32", (Dim(stride=1, min=width), *rest))
    return FAMILY.desc(("Resize",), inputs, (out,), {"taps": taps}, variant)


FAMILY = Family(
    "resize",
    choose,
    attributes=("taps",),
    variant={"width": VariantPart(least=1)},
    types=("float32",),
    work=work,
    least_extent=1,
)
