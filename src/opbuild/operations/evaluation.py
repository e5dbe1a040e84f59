"""Operations, conversions and expressions evaluated on numpy arrays: to fold constants, to run and to check kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from opbuild.dtypes import ADDED, NARROW_FLOATS, ROUND_MODES, UNSATURATED, numpy_dtype, stored_bits
from opbuild.errors import UnsupportedOperatorError
from opbuild.operations import arrays
from opbuild.operations.arrays import Array
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

    ``user`` has implementations of user-defined operators by name.

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
    """Return the value of an expression for one element, whose operands are float32 unless ``dtypes`` says otherwise.

    Lowering asks whether unused lanes of channel blocks stay finite. NaN stands for what cannot be known here, too: a
    user-defined operator, an accumulator that is not given.
    """
    with np.errstate(all="ignore"):
        kinds = dtypes or ["float32"] * len(args)
        numbers = [np.asarray(value, kind) for value, kind in zip(args, kinds, strict=True)]
    try:
        return float(evaluate_expression(expression, numbers, acc))
    except UnsupportedOperatorError:
        return math.nan


# Conversions between element types, as ONNX's Cast defines them and kernels compute them


def cast(value: Array, dtype: str, options: Iterable[str] = ()) -> Array:
    """Convert as ONNX's Cast does: floats to integers towards zero, NaN and anything but 0 to true.

    Floats outside an integer type's range, and NaN, are open in ONNX; here they become what kernels make of them on
    every machine, see docs/concepts/operators.md. Options are ``UNSATURATED``, and one of ``ROUND_MODES``.
    """
    with np.errstate(all="ignore"):
        value = widened(value)
        if dtype == "bool":
            return np.asarray(value != 0)
        if dtype in ADDED:
            return _to_added(value, dtype, frozenset(options))
        target = np.dtype(dtype)
        if np.issubdtype(value.dtype, np.floating) and np.issubdtype(target, np.integer):
            return _to_integer(value, target)
        if target == np.float16 and value.dtype != np.float16:
            value = value.astype(np.float32)
        return value.astype(target)


def widened(value: Array) -> Array:
    """Return numbers of a type that ``ml_dtypes`` adds as float32, int8 or uint8, which have them all."""
    name = value.dtype.name
    if name not in ADDED:
        return value
    return value.astype("float32" if "float" in name else "uint8" if name[0] == "u" else "int8")


def _to_added(value: Array, dtype: str, options: frozenset[str]) -> Array:
    target = numpy_dtype(dtype)
    if "float" not in dtype:
        whole = _to_integer(value, np.dtype(np.int32)) if np.issubdtype(value.dtype, np.floating) else value
        return (whole.astype(np.uint8) & np.uint8(2 ** stored_bits(dtype) - 1)).view(target)
    value = value.astype(np.float32)
    if dtype == "float8_e8m0fnu":
        return _powers_of_two(value, options).view(target)
    if dtype.startswith("float8") and UNSATURATED not in options:
        from ml_dtypes import finfo

        greatest = np.float32(finfo(target).max)  # type: ignore[no-untyped-call]
        value = np.clip(value, -greatest, greatest)
    if dtype == "float4_e2m1fn":
        value = np.where(np.isnan(value), np.float32(-0.0), value)  # whatever the sign of NaN
    return value.astype(target)


def _powers_of_two(value: Array, options: frozenset[str]) -> Array:
    """Return the codes of powers of two: the exponent and 127, 255 for NaN; a negative number counts by its magnitude.

    What is less than the least power is that one, and what is more than the greatest one, infinity too, is that one;
    unsaturated both are NaN.
    """
    mantissa, exponent = np.frexp(np.abs(value))  # the mantissa is at least 0.5: the number is 2 * mantissa * 2**(e-1)
    mode = next((mode for mode in ROUND_MODES if mode in options), ROUND_MODES[0])
    higher = mantissa > 0.5 if mode == "up" else mantissa >= 0.75 if mode == "nearest" else np.zeros(value.shape, bool)
    code = exponent - 1 + 127 + higher
    least, greatest = np.abs(value) < 2.0**-127, ~np.isnan(value) & (np.isinf(value) | (code > 254))
    outside = (255, 255) if UNSATURATED in options else (0, 254)
    code = np.select([np.isnan(value), least, greatest], [255, *outside], code)
    return np.asarray(code.astype(np.uint8))


def _to_integer(value: Array, target: np.dtype[Any]) -> Array:
    bits = max(8 * target.itemsize, 32)
    kind, half = np.dtype(f"int{bits}"), 2.0 ** (bits - 1)
    value = value.astype(np.float32) if value.dtype == np.float16 else value
    upper = (value >= half) if target in (np.uint32, np.uint64) else np.zeros(value.shape, bool)
    value = np.where(upper, value - value.dtype.type(half), value)
    inside = np.abs(value) < half
    signed = np.where(inside, np.where(inside, value, 0).astype(kind), np.iinfo(kind).min)
    return np.asarray(signed ^ np.where(upper, np.iinfo(kind).min, 0)).astype(target)
