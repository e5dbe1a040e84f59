"""ArgMax and ArgMin."""

from __future__ import annotations

from collections.abc import Sequence

from opbuild.families.dims import free_dims
from opbuild.families.family import FLOATS, INTEGERS, Dims, Family, Variant, VariantPart, elements, lanes_of_row
from opbuild.families.reduce.family import SMALL
from opbuild.kernel.opdesc import FREE, OpDesc, Operand
from opbuild.target.machine import Machine


def choose(layout: str, columns: int, machine: Machine) -> Variant:
    """Return the variant; the arguments are those of ``reduce``."""
    return lanes_of_row(columns, machine) if layout == "outer" else {"vector": machine.lanes}


def work(desc: OpDesc, shapes: Sequence[Dims], machine: Machine) -> float:
    """Return the nanoseconds on one core: 2.3 a vector of the input, 1 an element where columns are too few."""
    return elements(shapes[0]) * (1.0 if desc.variant.get("lanes") == 1 else 2.3 / machine.lanes)


def describe(op_type: str, layout: str, last: bool, dtype: str, variant: Variant, *, is_turned: bool = False) -> OpDesc:
    """Return the descriptor of an ``ArgMax`` or ``ArgMin``; operands x and out.

    ``is_turned``: the elements along the axis are adjacent although it is the middle dimension.
    """
    lanes = variant.get("lanes", 0)
    x = Operand("x", dtype, free_dims(3, inner_stride=FREE if is_turned else 1, inner_min=lanes))
    out = Operand("out", "int64", free_dims(2, inner_stride=1 if lanes else FREE))
    attrs = {"least": op_type == "ArgMin", "last": last, "layout": layout}
    return FAMILY.desc((op_type,), (x,), (out,), attrs, variant)


FAMILY = Family(
    "arg_reduce",
    choose,
    attributes=("least", "last", "layout"),
    variant={"lanes": VariantPart(least=1), "vector": VariantPart()},
    work=work,
    types=(*FLOATS, *INTEGERS, *SMALL),
    least_extent=1,
)
