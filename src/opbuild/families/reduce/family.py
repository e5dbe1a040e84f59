"""Reductions: neighbouring axes that are reduced, or kept, are one."""

from __future__ import annotations

from collections.abc import Sequence

from opbuild.families.dims import free_dims
from opbuild.families.elementwise.family import HEAVY
from opbuild.families.family import FLOATS, INTEGERS, Dims, Family, Variant, VariantPart, elements, moved_bytes
from opbuild.kernel.opdesc import FREE, OpDesc, Operand
from opbuild.target.machine import Machine

VECTORS = 4
"""Vectors of columns that are reduced side by side, where there are so many."""

SMALL, UNSIGNED = ("int8", "uint8"), ("uint32", "uint64")

TYPES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("sum", "prod", "l1", "sum_square"), (*FLOATS, *INTEGERS, *UNSIGNED)),
    **dict.fromkeys(("max", "min"), (*FLOATS, *INTEGERS, *SMALL, *UNSIGNED, "bool")),
    **dict.fromkeys(("mean", "l2", "log_sum", "log_sum_exp"), FLOATS),
}
"""Element types that the kernels of each reduction serve."""


def choose(layout: str, columns: int, machine: Machine) -> Variant:
    """Return the variant.

    Args:
        layout: ``inner`` or ``outer``, as the definition has it.
        columns: Extent of the innermost dimension that is kept.
        machine: What runs it.
    """
    # Of a level's own lanes: 16 on AVX2, two registers, take 0.9 to 1.3 times as long for rows, 1.3 to 2.1 for columns.
    vector = machine.lanes
    if layout == "inner":
        return {"vector": vector}
    return {"lanes": next(lanes for lanes in (VECTORS * vector, vector, 1) if lanes <= max(columns, 1))}


def candidates(layout: str, columns: int, machine: Machine) -> list[Variant]:
    """Return the variants among which tuning searches; the arguments are those of ``choose``."""
    own = choose(layout, columns, machine)
    name, most = ("vector", VECTORS * machine.lanes) if layout == "inner" else ("lanes", columns)
    others = [{name: count * machine.lanes} for count in (1, 2, VECTORS) if count * machine.lanes <= most]
    return [own, *(each for each in others if each != own)]


def work(desc: OpDesc, shapes: Sequence[Dims], machine: Machine) -> float:
    """Return the nanoseconds on one core: reading takes half as long as moving."""
    powers = HEAVY / machine.lanes * elements(shapes[0]) if desc.attrs["reduction"] == "log_sum_exp" else 0.0
    return moved_bytes(desc, shapes, machine) / 2 + powers


def describe(
    op_type: str,
    reduction: str,
    layout: str,
    dtype: str,
    ranks: tuple[int, int],
    variant: Variant,
    impl_mode: str,
    *,
    is_turned: bool = False,
) -> OpDesc:
    """Return the descriptor; operands x and out, of these ranks.

    ``is_turned``: elements that are reduced are adjacent although columns are.
    """
    lanes = variant.get("lanes", 0)
    x = Operand("x", dtype, free_dims(ranks[0], inner_stride=FREE if is_turned else 1, inner_min=lanes))
    out = Operand("out", dtype, free_dims(ranks[1], inner_stride=1 if lanes else FREE))
    return FAMILY.desc((op_type,), (x,), (out,), {"reduction": reduction, "layout": layout}, variant, impl_mode)


FAMILY = Family(
    "reduce",
    choose,
    attributes=("reduction", "layout"),
    variant={"lanes": VariantPart(least=1), "vector": VariantPart()},
    work=work,
    types=TYPES["max"],
    least_extent=1,
    candidates=candidates,
)
