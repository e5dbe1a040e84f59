"""Sums of products of bytes with zero points, as one product of uint8 by int8 and what corrects it.

``sum (a - za)(b - zb) = sum a b - za (sum b - K zb) - zb sum a``. All of it is computed in int32, which wraps, so it is
exact whatever the parts are. A left operand of int8 and a right one of uint8 have their highest bit turned over, which
moves them and their zero points by 128.
"""

from __future__ import annotations

import numpy as np

from opbuild.graph.constants import Deferred
from opbuild.graph.passes.integers.registry import IntegerBuilder
from opbuild.graph.types import Array, TensorType
from opbuild.operations.expression import Expression, arg, const

_HALF = 128

Operand = tuple[str, str]
"""A value and its zero point as int32 (``""``: 0), which broadcasts to it."""


def add_product(of: IntegerBuilder, left: Operand, right: Operand, output: str = "") -> str:
    """Append a matrix product of bytes; return the name of the int32 result.

    Args:
        of: What is appended to.
        left: ``(..., M, K)``, uint8 or int8, and its zero point: uint8 or int8, one number or one a row.
        right: ``(..., K, N)``, uint8 or int8, and its zero point: one number or one a column.
        output: The name of the result; one is made if it is empty.
    """
    (a, za), (b, zb) = _as(of, left, "uint8"), _as(of, right, "int8")
    if not za and not zb:
        return of("IntegerMatMul", a, b, output=output, domain="opbuild")
    total = of("IntegerMatMul", a, b, domain="opbuild")
    inputs, expression = [total], arg(0)
    if za:
        inputs += [za, _column_sums(of, b, zb)]
        expression = ("sub", expression, ("mul", arg(1), arg(2)))
    if zb:
        expression = ("sub", expression, ("mul", arg(len(inputs)), arg(len(inputs) + 1)))
        inputs += [zb, _row_sums(of, a)]
    return of.elementwise(tuple(inputs), expression, output)


def _as(of: IntegerBuilder, operand: Operand, dtype: str) -> Operand:
    """Return an operand as bytes of the type that the product takes, and its zero point as int32."""
    name, zero = operand
    moved = of.types[name].dtype != dtype
    by = (_HALF if dtype == "uint8" else -_HALF) if moved else 0
    return (turned(of, name, dtype) if moved else name), _moved(of, zero, by)


def turned(of: IntegerBuilder, name: str, dtype: str) -> str:
    """Return bytes with their highest bit turned over, as another type."""
    found = of.scope.derived.get((name, dtype))
    if found is None:
        if name in of.constants:
            array = of.constants[name]
            kind = TensorType(dtype, array.shape)
            turned = Deferred(kind, "highest bit turned", (array,), lambda: (array.view(np.uint8) ^ _HALF).view(dtype))
            found = of.constant(turned, name=f"{name}/{dtype}")
        else:
            bits: Expression = ("bit_xor", ("cast", "uint8", arg(0)), const(_HALF, "uint8"))
            found = of.elementwise((name,), bits if dtype == "uint8" else ("cast", dtype, bits))
        of.scope.derived[name, dtype] = found
    return found


def _moved(of: IntegerBuilder, zero: str, by: int) -> str:
    """Return a zero point as int32 and moved; ``""`` if it is known to be 0."""
    if not zero:
        return of.constant(np.array(by, np.int32)) if by else ""
    if zero in of.constants:
        value = of.constants[zero].astype(np.int32) + np.int32(by)
        value = value.reshape(-1)[0] if value.size == 1 else value
        return of.constant(np.asarray(value), name=f"{zero}/int32") if value.any() else ""
    wide: Expression = ("cast", "int32", arg(0))
    return of.elementwise((zero,), ("add", wide, const(by, "int32")) if by else wide)


def _column_sums(of: IntegerBuilder, b: str, zb: str) -> str:
    """Return ``sum b - K zb`` for each column, ``(..., 1, N)``."""
    *batch, k, n = (1, *of.types[b].shape)[-max(2, len(of.types[b].shape)) :]
    if b in of.constants and (not zb or zb in of.constants):
        array, zero = of.constants[b], of.constants[zb] if zb else np.zeros((), np.int32)
        kind = TensorType("int32", (*batch, 1, n))

        def make() -> Array:
            sums = array.sum(-2, np.int32, keepdims=True) - np.int32(k) * zero
            return np.asarray(sums, np.int32)

        return of.constant(Deferred(kind, "column sums", (array, zero), make), name=f"{b}/sums")
    ones = of.constant(np.ones((1, k), np.uint8))
    sums = of("IntegerMatMul", ones, b, domain="opbuild")
    return sums if not zb else of.elementwise((sums, zb), ("sub", arg(0), ("mul", arg(1), const(k, "int32"))))


def _row_sums(of: IntegerBuilder, a: str) -> str:
    """Return ``sum a`` for each row, ``(..., M, 1)``."""
    if (a, "row sums") not in of.scope.derived:
        ones = of.constant(np.ones((of.types[a].shape[-1], 1), np.int8))
        of.scope.derived[a, "row sums"] = of("IntegerMatMul", a, ones, domain="opbuild")
    return of.scope.derived[a, "row sums"]
