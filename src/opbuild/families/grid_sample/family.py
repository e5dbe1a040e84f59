"""Images interpolated at places that a grid names."""

from __future__ import annotations

from collections.abc import Sequence

from opbuild.families.family import FLOATS, Dims, Family, Variant, VariantPart, elements, lanes_of_row
from opbuild.families.layouts import TAPS
from opbuild.kernel.opdesc import Dim, OpDesc, Operand
from opbuild.target.machine import Machine


def work(desc: OpDesc, shapes: Sequence[Dims], machine: Machine) -> float:
    """Return the nanoseconds on one core: 0.5 a neighbour, which is loaded by itself."""
    return elements(shapes[-1]) * 0.5 * float(TAPS[desc.attrs["mode"]] ** int(desc.attrs["rank"]))


def describe(rank: int, mode: str, padding: str, aligned: bool, dtype: str, variant: Variant) -> OpDesc:
    """Return the descriptor of a ``GridSample``; operands x, grid and out.

    Args:
        rank: Dimensions of an image.
        mode: Of ``TAPS``.
        padding: ``zeros``, ``border`` or ``reflection``.
        aligned: Whether -1 and 1 are the centres of the outermost pixels, not their edges.
        dtype: Element type of all operands.
        variant: Of those that ``choose`` returns.
    """
    x = Operand("x", dtype, (Dim(stride=1, min=1), *(Dim(min=1),) * (rank - 1), Dim(), Dim()))
    grid = Operand("grid", dtype, (Dim(rank, 1), Dim(stride=rank), Dim()))
    out = Operand("out", dtype, (Dim(stride=1, min=variant["lanes"]), Dim(), Dim()))
    attrs = {"rank": rank, "mode": mode, "padding": padding, "aligned": aligned}
    return FAMILY.desc(("GridSample",), (x, grid), (out,), attrs, variant)


FAMILY = Family(
    "grid_sample",
    lanes_of_row,
    attributes=("rank", "mode", "padding", "aligned"),
    variant={"lanes": VariantPart(least=1)},
    types=FLOATS,
    milliseconds=90,
    least_extent=1,
    work=work,
)
