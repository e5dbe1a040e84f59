"""Sums of the leaves that rows reach in many decision trees."""

from __future__ import annotations

from collections.abc import Sequence

from opbuild.families.family import FLOATS, Dims, Family, Variant, VariantPart
from opbuild.families.tree_ensemble.layout import BITS
from opbuild.kernel.opdesc import Dim, OpDesc, Operand
from opbuild.target.machine import Machine

FEW = {"paths": 16, "bits": 3}
"""Rows below which trees are walked side by side for each row, by what is done with more; with fewer than those of
``bits``, rules are not read."""

BLOCK = 16
"""Rows that are walked down a tree side by side."""

STEP, RULE, LEAVES = 1.2, 0.75, 12.0
"""Nanoseconds of a step of a path; of a rule for a vector of rows; and of adding up the leaves of one in a piece."""

DEPTH = 8
"""Steps of a path, of which only an upper limit is known."""


PATHS = 4
"""Operands that a kernel which walks down trees has besides rows and what is added; those of ``bits`` follow them."""


def choose(rows: int, kind: str, machine: Machine) -> Variant:
    """Return the variant: how many rows are taken side by side, 1 where trees are.

    Args:
        rows: How many rows there are.
        kind: ``paths`` or ``bits``.
        machine: What runs it.
    """
    if kind == "bits":
        return {"lanes": machine.lanes if rows <= machine.lanes else 2 * machine.lanes}
    return {"lanes": 1 if rows < FEW["paths"] else BLOCK}


def work(desc: OpDesc, shapes: Sequence[Dims], machine: Machine) -> float:
    """Return the nanoseconds on one core."""
    rows, each = shapes[0][1][0], shapes[2][1][0]
    if desc.attrs["kind"] == "bits":
        blocks = -(-rows // machine.lanes)
        return blocks * (RULE * shapes[1][1][0] + LEAVES * each * shapes[-1][0][0])
    return rows * each * STEP * DEPTH


def describe(
    kind: str, aggregate: str, *, sides: bool, targets: bool, types: tuple[str, str], variant: Variant
) -> OpDesc:
    """Return the descriptor of a ``TreeEnsemble``; operands as the definition has them.

    Args:
        kind: ``paths`` or ``bits``.
        aggregate: ``sum``, ``min`` or ``max``.
        sides: Whether a feature has two columns.
        targets: Whether trees have targets.
        types: Element types of the rows and of the weights.
        variant: Of those that ``choose`` returns.
    """
    x, weights = types
    numbers = ("int32", 3) if x == "float32" else ("int64", 2)
    rows = Operand("x", x, (Dim(stride=1, min=1), Dim()))
    out = Operand("out", weights, (Dim(stride=1, min=1), Dim(min=1), Dim()))
    base = Operand("base", weights, (Dim(stride=1, min=1), Dim(min=1)))
    parts: tuple[Operand, ...]
    if kind == "paths":
        parts = (
            _table("records", *numbers), _table("trees", "int32", 5), Operand("depths", "int32", (Dim(stride=1),)),
            Operand("weights", weights, (Dim(stride=1, min=1), Dim(min=1))), base,
        )  # fmt: skip
    else:
        leaves = (Dim(stride=1, min=1), Dim(BITS), Dim(min=1))
        parts = (_table("rules", *numbers), _table("pieces", "int32", 3), Operand("weights", weights, leaves), base)
    attrs = {"kind": kind, "aggregate": aggregate, "sides": sides, "targets": targets}
    return FAMILY.desc(("TreeEnsemble",), (rows, *parts), (out,), attrs, variant)


def _table(name: str, dtype: str, width: int) -> Operand:
    return Operand(name, dtype, (Dim(width, 1), Dim(stride=width, min=1)))


FAMILY = Family(
    "tree_ensemble",
    choose,
    attributes=("kind", "aggregate", "sides", "targets"),
    variant={"lanes": VariantPart()},
    types=FLOATS,
    milliseconds=150,
    least_extent=1,
    work=work,
)
