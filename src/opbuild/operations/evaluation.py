"""Operations and expressions of them evaluated on numpy arrays: to fold constants, to run and to check kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from opbuild.dtypes import NARROW_FLOATS, numpy_dtype
from opbuild.errors import UnsupportedOperatorError
from opbuild.operations import arrays
from opbuild.operations.arrays import Array
from opbuild.operations.casting import cast
from opbuild.operations.expression import Expression, children
from opbuild.operations.record import evaluate
from opbuild.operations.table import OPERATIONS

UserOperators = Mapping[str, Callable[..., Array]]


def apply(name: str, *operands: Array) -> Array:
    """Return one operation applied to arrays that broadcast together.

    The result has the last operand's element type, except that predicates give bool. What has 16 bits is
    computed in float32 and rounded once.
    """
    operation, kind = OPERATIONS[name], operands[-1].dtype
    if any(operand.dtype.name in NARROW_FLOATS for operand in operands):
        operands = tuple(each.astype(np.float32) if each.dtype.name in NARROW_FLOATS else each for each in operands)
    with np.errstate(all="ignore"):
        found = np.asarray(evaluate(operation.numpy or operation.formula, arrays, operands))
        return found if operation.predicate else found.astype(kind, copy=False)


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
        _, dtype, text = expression
        return np.array(int(text) if dtype.startswith(("int", "uint", "bool")) else float(text), numpy_dtype(dtype))
    operands = [evaluate_expression(child, args, acc, user) for child in children(expression)]
    if head == "cast":
        return cast(operands[0], expression[1])
    if head == "cast_as":
        return cast(operands[0], expression[1], expression[2].split())
    if head == "user":
        if user is None or expression[1] not in user:
            raise UnsupportedOperatorError(
                f"operator {expression[1]!r} has no numpy definition",
                "it can be compiled, but not evaluated on the host",
            )
        return np.asarray(user[expression[1]](*operands))
    if head not in OPERATIONS:
        raise UnsupportedOperatorError(f"{head!r} is not an operation", "operations/table.py lists them")
    return apply(head, *operands)


def evaluate_scalar(
    expression: Expression, args: Sequence[float], dtypes: Sequence[str] = (), acc: Array | None = None
) -> float:
    """Return the value of an expression for one element.

    Lowering asks whether unused lanes of channel blocks stay finite.

    Args:
        expression: What to evaluate.
        args: What ``("arg", i)`` stands for.
        dtypes: The types of ``args``; float32 if there are none.
        acc: What ``("acc",)`` stands for.

    Returns:
        The value; NaN too for what cannot be known here: a user-defined operator, an accumulator that is not given.
    """
    with np.errstate(all="ignore"):
        kinds = dtypes or ["float32"] * len(args)
        numbers = [np.asarray(value, kind) for value, kind in zip(args, kinds, strict=True)]
    try:
        return float(evaluate_expression(expression, numbers, acc))
    except UnsupportedOperatorError:
        return math.nan
