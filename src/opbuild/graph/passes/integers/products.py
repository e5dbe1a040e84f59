"""Matrix products of quantised numbers: ONNX's, those of com.microsoft, and MatMul and Gemm of what is dequantised."""

from __future__ import annotations

import numpy as np

from opbuild.graph.constants import Deferred
from opbuild.graph.passes.integers.registry import BYTES, MICROSOFT, IntegerRewriter, rewrites
from opbuild.graph.passes.integers.sums import Operand, add_product
from opbuild.graph.quantized import quantized
from opbuild.graph.types import Node, TensorType
from opbuild.operations.expression import Expression, arg


@rewrites("MatMulInteger")
def _matmul_integer(to: IntegerRewriter, node: Node) -> bool:
    a, b, za, zb, *_ = *node.inputs, "", ""
    _product(to, node, (a, za), (b, zb), node.outputs[0])
    return True


@rewrites("QLinearMatMul")
@rewrites("QLinearMatMul", domain=MICROSOFT)
def _qlinear_matmul(to: IntegerRewriter, node: Node) -> bool:
    a, a_scale, za, b, b_scale, zb, y_scale, zy = node.inputs
    scales = (a_scale, b_scale, y_scale)
    if not {to.types[name].dtype for name in scales} <= {"float32", "float16"} or to.types[y_scale].size != 1:
        return False
    if not {to.types[name].dtype for name in (a, b, zy)} <= {*BYTES}:
        return False
    total = _product(to, node, (a, za), (b, zb))
    a_scale, b_scale, y_scale = (
        name if to.types[name].dtype == "float32" else to.add(node, "Cast", (name,), to="float32") for name in scales
    )
    factor = to.add(node, "Mul", (_rows(to, node, a_scale, a), b_scale))
    factor = to.add(node, "Div", (factor, _number(to, node, y_scale)))
    requantized(to, node, total, factor, _number(to, node, zy))
    return True


def requantized(to: IntegerRewriter, node: Node, total: str, factor: str, zero: str) -> None:
    """Append an int32 times a float32 as bytes with a zero point: the node's output."""
    kind = to.types[node.outputs[0]].dtype
    place = None if to.is_zero(zero) else arg(2)
    inputs = (total, factor) if place is None else (total, factor, zero)
    value: Expression = ("mul", ("cast", "float32", arg(0)), arg(1))
    to.elementwise(node, inputs, quantized(value, place, kind), node.outputs[0])


@rewrites("MatMulIntegerToFloat", domain=MICROSOFT)
def _to_float(to: IntegerRewriter, node: Node) -> bool:
    a, b, a_scale, b_scale, za, zb, bias, *_ = *node.inputs, "", "", ""
    if to.types[node.outputs[0]].dtype != "float32":
        return False
    total = _product(to, node, (a, za), (b, zb))
    dequantized(to, node, total, (_rows(to, node, a_scale, a), b_scale), bias)
    return True


@rewrites("DynamicQuantizeMatMul", domain=MICROSOFT)
def _dynamic(to: IntegerRewriter, node: Node) -> bool:
    x, b, b_scale, zb, bias, *_ = *node.inputs, "", ""
    a, a_scale, za = quantize_dynamically(to, node, x)
    total = _product(to, node, (a, za), (b, zb))
    dequantized(to, node, total, (a_scale, b_scale), bias)
    return True


def quantize_dynamically(to: IntegerRewriter, node: Node, x: str) -> tuple[str, str, str]:
    """Append DynamicQuantizeLinear of a value, once for all that read it; return its three outputs."""
    parts = ("quantized", "scale", "zero point")
    if (x, parts[0]) not in to.derived:
        names = tuple(to.fresh(f"{x}/{part}") for part in parts)
        to.add(node, "DynamicQuantizeLinear", (x,), *names)
        to.derived.update(((x, part), name) for part, name in zip(parts, names, strict=True))
    value, scale, zero = (to.derived[x, part] for part in parts)
    return value, scale, zero


def dequantized(to: IntegerRewriter, node: Node, total: str, scales: tuple[str, str], bias: str) -> None:
    """Append an int32 times two scales, plus a bias ("": none): the node's output."""
    factor = to.add(node, "Mul", scales)
    value: Expression = ("mul", ("cast", "float32", arg(0)), arg(1))
    inputs = (total, factor, bias) if bias else (total, factor)
    to.elementwise(node, inputs, ("add", value, arg(2)) if bias else value, node.outputs[0])


@rewrites("QGemm", domain=MICROSOFT)
def _qgemm(to: IntegerRewriter, node: Node) -> bool:
    a, a_scale, za, b, b_scale, zb, c, y_scale, zy, *_ = *node.inputs, "", "", ""
    a, b = _turned(to, node, a, "transA"), _turned(to, node, b, "transB")
    total = _product(to, node, (a, za), (b, zb))
    if c:
        total = to.add(node, "Add", (total, c))
    alpha = np.array(node.attrs.get("alpha", 1.0), np.float32)
    a_scale = a_scale if alpha == 1 else to.add(node, "Mul", (to.constant(f"{node.name}/alpha", alpha), a_scale))
    factor = to.add(node, "Mul", (a_scale, b_scale))
    if not y_scale:
        value: Expression = ("mul", ("cast", "float32", arg(0)), arg(1))
        to.elementwise(node, (total, factor), value, node.outputs[0])
        return True
    requantized(to, node, total, to.add(node, "Div", (factor, _number(to, node, y_scale))), _number(to, node, zy))
    return True


@rewrites("MatMul")
def _matmul(to: IntegerRewriter, node: Node) -> bool:
    a, b = (to.quantized(name) for name in node.inputs)
    if a is None or b is None or a.axis is not None or b.axis not in (None, len(to.types[b.value].shape) - 1):
        return False
    total = _product(to, node, (a.value, a.zero_point), (b.value, b.zero_point))
    dequantized(to, node, total, (_number(to, node, a.scale), b.scale), "")
    return True


@rewrites("Gemm")
def _gemm(to: IntegerRewriter, node: Node) -> bool:
    a, b = (to.quantized(name) for name in node.inputs[:2])
    columns = 0 if node.attrs.get("transB", 0) else 1
    if a is None or b is None or a.axis is not None or b.axis not in (None, columns):
        return False
    left, right = _turned(to, node, a.value, "transA"), _turned(to, node, b.value, "transB")
    total = _product(to, node, (left, a.zero_point), (right, b.zero_point))
    alpha, beta = (np.array(node.attrs.get(name, 1.0), np.float32) for name in ("alpha", "beta"))
    scale = _number(to, node, a.scale)
    scale = scale if alpha == 1 else to.add(node, "Mul", (to.constant(f"{node.name}/alpha", alpha), scale))
    c = node.inputs[2] if len(node.inputs) > 2 and beta != 0 else ""
    c = c if not c or beta == 1 else to.add(node, "Mul", (to.constant(f"{node.name}/beta", beta), c))
    dequantized(to, node, total, (scale, b.scale), c)
    return True


@rewrites("MatMulNBits", domain=MICROSOFT)
def _few_bits(to: IntegerRewriter, node: Node) -> bool:
    """Compute a product of halves in float32: kernels have no other type."""
    kind = to.types[node.inputs[0]].dtype
    if kind == "float32":
        return False
    halves = [bool(name) and to.types[name].dtype == kind for name in node.inputs]
    inputs = tuple(
        to.add(node, "Cast", (name,), to="float32") if half else name
        for name, half in zip(node.inputs, halves, strict=True)
    )
    product = to.add(node, "MatMulNBits", inputs, domain=MICROSOFT, **node.attrs)
    to.add(node, "Cast", (product,), node.outputs[0], to=kind)
    return True


def _product(to: IntegerRewriter, node: Node, left: Operand, right: Operand, output: str = "") -> str:
    """Append a product with numpy's rules for vectors; zero points of one dimension are one a row, one a column."""
    (a, za), (b, zb) = left, right
    za = "" if to.is_zero(za) else _rows(to, node, za, a)
    zb = "" if to.is_zero(zb) else zb
    rows, columns = to.types[a].shape, to.types[b].shape
    if min(len(rows), len(columns)) > 1:
        return add_product(to, node, (a, za), (b, zb), output)
    a = to.reshaped(node, a, (1, *rows)) if len(rows) == 1 else a
    b = to.reshaped(node, b, (*columns, 1)) if len(columns) == 1 else b
    total = add_product(to, node, (a, za), (b, zb))
    kept = columns[:-2] if len(rows) == 1 else rows[:-1]
    return to.reshaped(node, total, (*kept, *(columns[-1:] if len(columns) > 1 else ())), output)


def _rows(to: IntegerRewriter, node: Node, name: str, a: str) -> str:
    """Return what is one number, or one for each row of the left operand, so that it broadcasts to the product."""
    kind = to.types[name]
    if kind.size == 1:
        return _number(to, node, name)
    return to.reshaped(node, name, (*kind.shape, 1)) if len(kind.shape) == 1 and len(to.types[a].shape) > 1 else name


def _number(to: IntegerRewriter, node: Node, name: str) -> str:
    return to.reshaped(node, name, ()) if name else ""


def _turned(to: IntegerRewriter, node: Node, name: str, attribute: str) -> str:
    """Return a matrix transposed if an attribute says so."""
    if not node.attrs.get(attribute, 0):
        return name
    if name not in to.constants:
        return to.add(node, "Transpose", (name,), perm=(1, 0))
    array = to.constants[name]
    kind = TensorType(str(array.dtype), array.shape[::-1])
    return to.constant(f"{name}/transposed", Deferred(kind, "transposed", (array,), lambda: array.T))
