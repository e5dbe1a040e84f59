"""Counting in expressions that are merged step by step, at each of which ``expression.walk`` would take too long."""

from __future__ import annotations

from opbuild.dtypes import NARROW_FLOATS
from opbuild.operations.expression import Expression, children

_NONE = ("arg", "acc", "const")


def parts_of(expression: Expression) -> list[Expression]:
    """Return all sub-expressions, an operation before its operands."""
    found = [expression]
    for part in found:
        found += children(part)
    return found


def count_operations(expression: Expression) -> int:
    """Return the number of ``expression.operations``."""
    return len({part for part in parts_of(expression) if part[0] not in _NONE and not _is_way_back(part)})


def _is_way_back(part: Expression) -> bool:
    return part[0] == "cast" and part[2][0] == "cast" and part[2][1] in NARROW_FLOATS
