"""Expressions of ``operations/expression.py`` evaluated on numpy arrays: to fold constants and to check kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from opbuild.backend.host.elementwise import OPERATORS, apply, cast
from opbuild.errors import UnsupportedOperatorError
from opbuild.graph.types import Array
from opbuild.operations.expression import Expression, children

UserOperators = Mapping[str, Callable[..., Array]]


def evaluate_expression(
    expression: Expression, args: Sequence[Array], acc: Array | None = None, user: UserOperators | None = None
) -> Array:
    """Return an expression's value; operands broadcast together as numpy's do.

    Args:
        expression: What to compute.
        args: The operands that ``("arg", i)`` names.
        acc: The accumulator that ``("acc",)`` names.
        user: Implementations of user-defined operators by name.

    Raises:
        UnsupportedOperatorError: If an operation is unknown.
    """
    head = expression[0]
    if head == "arg":
        return np.asarray(args[expression[1]])
    if head == "acc":
        if acc is None:
            raise UnsupportedOperatorError("the expression reads an accumulator, and none was given", "pass acc=")
        return np.asarray(acc)
    if head == "const":
        return _literal(expression[1], expression[2])
    operands = [evaluate_expression(child, args, acc, user) for child in children(expression)]
    if head == "cast":
        return cast(operands[0], expression[1])
    if head == "user":
        if user is None or expression[1] not in user:
            raise UnsupportedOperatorError(
                f"operator {expression[1]!r} has no numpy definition",
                "it can be compiled, but not evaluated on the host",
            )
        return np.asarray(user[expression[1]](*operands))
    if head not in OPERATORS:
        raise UnsupportedOperatorError(f"{head!r} is not an operation", "operations/expression.py lists them")
    return apply(head, *operands)


def _literal(dtype: str, text: str) -> Array:
    if dtype.startswith(("int", "uint", "bool")):
        return np.array(int(text), dtype)
    return np.array(float(text), dtype)
