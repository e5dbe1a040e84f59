"""ArgMax and ArgMin."""

from __future__ import annotations

from opbuild.families.dims import VECTOR, free_dims
from opbuild.families.family import Family, Part, Variant
from opbuild.families.reduce.family import TYPES
from opbuild.kernel.machine import Machine
from opbuild.kernel.opdesc import FREE, OpDesc, Operand


def choose(layout: str, columns: int, _machine: Machine) -> Variant:
    """Return the variant; the arguments are those of ``reduce``."""
    return {"lanes": VECTOR if columns >= VECTOR else 1} if layout == "outer" else {}


def describe(op_type: str, layout: str, last: bool, dtype: str, variant: Variant) -> OpDesc:
    """Return the descriptor of an ``ArgMax`` or ``ArgMin``; operands x and out."""
    lanes = variant.get("lanes", 0)
    x = Operand("x", dtype, free_dims(3, inner_stride=1, inner_min=lanes))
    out = Operand("out", "int64", free_dims(2, inner_stride=1 if lanes else FREE))
    attrs = {"least": op_type == "ArgMin", "last": last, "layout": layout}
    return FAMILY.desc((op_type,), (x,), (out,), attrs, variant)


FAMILY = Family(
    "arg_reduce",
    choose,
    attributes=("least", "last", "layout"),
    variant={"lanes": Part(least=1)},
    types=TYPES["max"],
    least_extent=1,
)
