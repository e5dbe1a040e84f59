"""Pools of plain values over up to three dimensions: maxima, where they stand, averages and norms of windows."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from opbuild.families.family import FLOATS, INTEGERS, Dims, Family, Variant, VariantPart, elements, lanes_of_row
from opbuild.graph.tables import SPATIAL
from opbuild.kernel.opdesc import FREE, Dim, OpDesc, Operand
from opbuild.platform.records import replace
from opbuild.target.machine import Machine

TYPES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("max", "place"), (*FLOATS, *INTEGERS, "int8", "uint8")),
    **dict.fromkeys(("average", "l1", "l2"), FLOATS),
}
"""Element types of each kind of pool."""


def work(desc: OpDesc, shapes: Sequence[Dims], machine: Machine) -> float:
    """Return the nanoseconds on one core: 0.5 a tap of a vector."""
    taps = prod(extent for extent, _ in shapes[0][SPATIAL : 2 * SPATIAL])
    return elements(shapes[-1]) * taps * 0.5 / (machine.lanes if desc.variant["lanes"] > 1 else 1)


def describe(op_type: str, kind: str, dtype: str, step: int, variant: Variant, impl_mode: str) -> OpDesc:
    """Return the descriptor.

    Args:
        op_type: ``MaxPool``, ``AveragePool`` or ``LpPool``.
        kind: What is computed of a window, of ``TYPES``. Operands are x, the kind's and out: of ``average`` the number
            of elements of each window, of ``place`` the place of each tap in a plane and where each plane begins.
        dtype: Element type of x.
        step: Elements of x from one output to the next.
        variant: Of those that ``choose`` returns.
        impl_mode: The implementation mode.
    """
    lanes = variant["lanes"]
    one, steps = Dim(stride=1, min=lanes), (Dim(),) * (2 * SPATIAL - 1)
    along = Dim(stride=step if step in (1, 2) and lanes > 1 else FREE)  # vectors of every second one are loaded whole
    inputs = [Operand("x", dtype, (along, *steps, Dim()))]
    if kind == "average":
        inputs.append(Operand("count", dtype, (one, *(Dim(),) * (SPATIAL - 1))))
    elif kind == "place":
        inputs.append(Operand("place", "int64", (along, *steps)))
        inputs.append(Operand("start", "int64", (Dim(stride=1),)))
    out = Operand("out", "int64" if kind == "place" else dtype, (one, *(Dim(),) * SPATIAL))
    return FAMILY.desc((op_type,), tuple(inputs), (out,), {"kind": kind}, variant, impl_mode)


def _opened(_desc: OpDesc, operand: Operand, number: int, dim: Dim) -> Dim:
    return replace(dim, stride=FREE) if operand.name in ("x", "place") and number == 0 else dim


FAMILY = Family(
    "window",
    lanes_of_row,
    attributes=("kind",),
    variant={"lanes": VariantPart(least=1)},
    types=TYPES["max"],
    least_extent=1,
    opened=_opened,
    work=work,
)
