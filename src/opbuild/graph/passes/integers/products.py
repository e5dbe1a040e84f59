"""Matrix products of quantised numbers: ONNX's, com.microsoft's, and MatMul and Gemm of dequantised values.

``sum (a - za)(b - zb) = sum a b - za (sum b - K zb) - zb sum a``. All of it is computed in int32, which wraps, so it is
exact whatever the parts are. A left operand of int8 and a right one of uint8 have their highest bit turned over, which
moves them and their zero points by 128.
"""

from __future__ import annotations

import numpy as np

from opbuild.graph.constants import Deferred
from opbuild.graph.graph_builder import Value
from opbuild.graph.passes.integers import BYTES, MICROSOFT, IntegerBuilder, rewrites
from opbuild.graph.passes.rewriter import KeptError
from opbuild.graph.quantization import quantized
from opbuild.graph.types import Array, TensorType
from opbuild.operations.expression import Expression, arg, const

_HALF = 128

SCALED_SUMS: Expression = ("mul", ("cast", "float32", arg(0)), arg(1))
"""The sums of products, times their scale."""

Operand = tuple[str, str]
"""A value and its zero point as int32 (``""``: 0), which broadcasts to it."""


def add_product(of: IntegerBuilder, left: Operand, right: Operand, output: str = "") -> Value:
    """Append a matrix product of bytes, ``(..., M, K)`` by ``(..., K, N)``; return the name of the int32 result.

    Zero points are uint8 or int8, one number, or one a row of the left operand, one a column of the right one.
    """
    (a, za), (b, zb) = _converted(of, left, "uint8"), _converted(of, right, "int8")
    if not za and not zb:
        return of("IntegerMatMul", a, b, output=output, domain="opbuild")
    total = of("IntegerMatMul", a, b, domain="opbuild")
    inputs, expression = list[str]([total]), arg(0)
    if za:
        inputs += [za, _column_sums(of, b, zb)]
        expression = ("sub", expression, ("mul", arg(1), arg(2)))
    if zb:
        expression = ("sub", expression, ("mul", arg(len(inputs)), arg(len(inputs) + 1)))
        inputs += [zb, _row_sums(of, a)]
    return of.elementwise(tuple(inputs), expression, output)


def _converted(of: IntegerBuilder, operand: Operand, dtype: str) -> Operand:
    """Return an operand as bytes of the type that the product takes, and its zero point as int32."""
    name, zero = operand
    moved = of.types[name].dtype != dtype
    by = (_HALF if dtype == "uint8" else -_HALF) if moved else 0
    return (turned(of, name, dtype) if moved else name), _shifted_zero_point(of, zero, by)


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


def _shifted_zero_point(of: IntegerBuilder, zero: str, by: int) -> str:
    """Return a zero point as int32 and moved; ``""`` if it is known to be 0."""
    if not zero:
        return of.constant(np.array(by, np.int32)) if by else ""
    if zero in of.constants:
        value = of.constants[zero].astype(np.int32) + np.int32(by)
        value = value.reshape(-1)[0] if value.size == 1 else value
        return of.constant(np.asarray(value), name=f"{zero}/int32") if value.any() else ""
    wide: Expression = ("cast", "int32", arg(0))
    return of.elementwise((zero,), ("add", wide, const(by, "int32")) if by else wide)


def _column_sums(of: IntegerBuilder, b: str, zb: str) -> Value:
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


@rewrites("MatMulInteger")
def _matmul_integer(of: IntegerBuilder) -> None:
    a, b, za, zb, *_ = *of.inputs, "", ""
    _product(of, (a, za), (b, zb), of.outputs[0])


@rewrites("QLinearMatMul")
@rewrites("QLinearMatMul", domain=MICROSOFT)
def _qlinear_matmul(of: IntegerBuilder) -> None:
    a, a_scale, za, b, b_scale, zb, y_scale, zy = of.inputs
    scales = (a_scale, b_scale, y_scale)
    if not {of.types[name].dtype for name in scales} <= {"float32", "float16"} or of.types[y_scale].size != 1:
        raise KeptError
    if not {of.types[name].dtype for name in (a, b, zy)} <= {*BYTES}:
        raise KeptError
    total = _product(of, (a, za), (b, zb))
    a_scale, b_scale, y_scale = (
        name if of.types[name].dtype == "float32" else of("Cast", name, to="float32") for name in scales
    )
    factor = of("Div", of("Mul", _rows(of, a_scale, a), b_scale), _number(of, y_scale))
    requantized(of, total, factor, _number(of, zy))


def requantized(of: IntegerBuilder, total: str, factor: str, zero: str) -> None:
    """Append an int32 times a float32 as bytes with a zero point: the node's output."""
    kind = of.types[of.outputs[0]].dtype
    place = None if of.scope.is_zero(zero) else arg(2)
    inputs = (total, factor) if place is None else (total, factor, zero)
    of.elementwise(inputs, quantized(SCALED_SUMS, place, kind), of.outputs[0])


@rewrites("MatMulIntegerToFloat", domain=MICROSOFT)
def _to_float(of: IntegerBuilder) -> None:
    a, b, a_scale, b_scale, za, zb, bias, *_ = *of.inputs, "", "", ""
    if of.types[of.outputs[0]].dtype != "float32":
        raise KeptError
    total = _product(of, (a, za), (b, zb))
    dequantized(of, total, (_rows(of, a_scale, a), b_scale), bias)


@rewrites("DynamicQuantizeMatMul", domain=MICROSOFT)
def _dynamic(of: IntegerBuilder) -> None:
    x, b, b_scale, zb, bias, *_ = *of.inputs, "", ""
    a, a_scale, za = quantize_dynamically(of, x)
    total = _product(of, (a, za), (b, zb))
    dequantized(of, total, (a_scale, b_scale), bias)


def quantize_dynamically(of: IntegerBuilder, x: str) -> tuple[str, str, str]:
    """Append DynamicQuantizeLinear of a value, once for all that read it; return its three outputs."""
    parts = ("quantized", "scale", "zero point")
    if (x, parts[0]) not in of.scope.derived:
        names = tuple(of.scope.fresh(f"{x}/{part}") for part in parts)
        of.write("DynamicQuantizeLinear", (x,), names, {})
        of.scope.derived.update(((x, part), name) for part, name in zip(parts, names, strict=True))
    value, scale, zero = (of.scope.derived[x, part] for part in parts)
    return value, scale, zero


def dequantized(of: IntegerBuilder, total: str, scales: tuple[str, str], bias: str) -> None:
    """Append an int32 times two scales, plus a bias ("": none): the node's output."""
    factor = of("Mul", *scales)
    inputs = (total, factor, bias) if bias else (total, factor)
    of.elementwise(inputs, ("add", SCALED_SUMS, arg(2)) if bias else SCALED_SUMS, of.outputs[0])


@rewrites("QGemm", domain=MICROSOFT)
def _qgemm(of: IntegerBuilder) -> None:
    a, a_scale, za, b, b_scale, zb, c, y_scale, zy, *_ = *of.inputs, "", "", ""
    a, b = _transposed(of, a, "transA"), _transposed(of, b, "transB")
    total = _product(of, (a, za), (b, zb))
    if c:
        total = of("Add", total, c)
    alpha = np.array(of.attr("alpha", 1.0), np.float32)
    a_scale = a_scale if alpha == 1 else of("Mul", of.constant(alpha), a_scale)
    factor = of("Mul", a_scale, b_scale)
    if not y_scale:
        of.elementwise((total, factor), SCALED_SUMS, of.outputs[0])
        return
    requantized(of, total, of("Div", factor, _number(of, y_scale)), _number(of, zy))


@rewrites("MatMul")
def _matmul(of: IntegerBuilder) -> None:
    a, b = (of.scope.quantized(name) for name in of.inputs)
    if a is None or b is None or a.axis is not None or b.axis not in (None, len(of.types[b.value].shape) - 1):
        raise KeptError
    total = _product(of, (a.value, a.zero_point), (b.value, b.zero_point))
    dequantized(of, total, (_number(of, a.scale), b.scale), "")


@rewrites("Gemm")
def _gemm(of: IntegerBuilder) -> None:
    a, b = (of.scope.quantized(name) for name in of.inputs[:2])
    columns = 0 if of.attr("transB", 0) else 1
    if a is None or b is None or a.axis is not None or b.axis not in (None, columns):
        raise KeptError
    left, right = _transposed(of, a.value, "transA"), _transposed(of, b.value, "transB")
    total = _product(of, (left, a.zero_point), (right, b.zero_point))
    alpha, beta = (np.array(of.attr(name, 1.0), np.float32) for name in ("alpha", "beta"))
    scale = _number(of, a.scale)
    scale = scale if alpha == 1 else of("Mul", of.constant(alpha), scale)
    c = of.input(2) if len(of.inputs) > 2 and beta != 0 else ""
    c = c if not c or beta == 1 else of("Mul", of.constant(beta), c)
    dequantized(of, total, (scale, b.scale), c)


@rewrites("MatMulNBits", domain=MICROSOFT)
def _few_bits(of: IntegerBuilder) -> None:
    """Compute a product of halves in float32: kernels have no other type."""
    kind = of.input(0).dtype
    if kind == "float32":
        raise KeptError
    halves = [bool(name) and of.types[name].dtype == kind for name in of.inputs]
    inputs = tuple(
        of("Cast", name, to="float32") if half else name for name, half in zip(of.inputs, halves, strict=True)
    )
    product = of("MatMulNBits", *inputs, domain=MICROSOFT, **of.node.attrs)
    of("Cast", product, output=of.outputs[0], to=kind)


def _product(of: IntegerBuilder, left: Operand, right: Operand, output: str = "") -> Value:
    """Append a product with numpy's rules for vectors; zero points of one dimension are one a row, one a column."""
    (a, za), (b, zb) = left, right
    za = "" if of.scope.is_zero(za) else _rows(of, za, a)
    zb = "" if of.scope.is_zero(zb) else zb
    rows, columns = of.types[a].shape, of.types[b].shape
    if min(len(rows), len(columns)) > 1:
        return add_product(of, (a, za), (b, zb), output)
    a = of.reshaped(a, (1, *rows)) if len(rows) == 1 else a
    b = of.reshaped(b, (*columns, 1)) if len(columns) == 1 else b
    total = add_product(of, (a, za), (b, zb))
    kept = columns[:-2] if len(rows) == 1 else rows[:-1]
    return of.reshaped(total, (*kept, *(columns[-1:] if len(columns) > 1 else ())), output)


def _rows(of: IntegerBuilder, name: str, a: str) -> str:
    """Return a value of one number, or of one for each row of the left operand: it broadcasts to the product."""
    kind = of.types[name]
    if kind.size == 1:
        return _number(of, name)
    return of.reshaped(name, (*kind.shape, 1)) if len(kind.shape) == 1 and len(of.types[a].shape) > 1 else name


def _number(of: IntegerBuilder, name: str) -> str:
    return of.reshaped(name, ()) if name else ""


def _transposed(of: IntegerBuilder, name: str, attribute: str) -> str:
    """Return a matrix transposed if an attribute says so."""
    if not of.attr(attribute, 0):
        return name
    if name not in of.constants:
        return of("Transpose", name, perm=(1, 0))
    array = of.constants[name]
    kind = TensorType(str(array.dtype), array.shape[::-1])
    return of.constant(Deferred(kind, "transposed", (array,), lambda: array.T), name=f"{name}/transposed")
