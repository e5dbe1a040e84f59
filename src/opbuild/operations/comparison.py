"""Comparisons, classes of numbers, and the choice between two values."""

from __future__ import annotations

from opbuild.operations.record import Cost, Formula, Kinds, Operation


def _predicate(
    name: str, arity: int, formula: Formula, kinds: Kinds, onnx: str | None = None, cost: Cost = Cost.CHEAP
) -> Operation:
    return Operation(name, arity, formula, kinds, onnx, predicate=True, cost=cost)


OPERATIONS = (
    _predicate("equal", 2, "equal", "any", "Equal"),
    _predicate("not_equal", 2, "not_equal", "any"),
    _predicate("less", 2, "less", "any", "Less"),
    _predicate("less_equal", 2, "less_equal", "any", "LessOrEqual"),
    _predicate("greater", 2, lambda m, a, b: m.less(b, a), "any", "Greater"),
    _predicate("greater_equal", 2, lambda m, a, b: m.less_equal(b, a), "any", "GreaterOrEqual"),
    _predicate("is_nan", 1, "is_nan", "numbers", "IsNaN", Cost.ORDINARY),
    _predicate("is_inf", 1, "is_inf", "numbers", cost=Cost.ORDINARY),
    _predicate("is_finite", 1, "is_finite", "numbers", cost=Cost.ORDINARY),
    Operation(
        "where",
        3,
        lambda m, condition, a, b: m.select(m.truth(condition), a, b),
        "any",
        "Where",
        exact=True,
        conditions=1,
        cost=Cost.CHEAP,
    ),
)
