"""Elementwise operators of com.microsoft on quantised numbers: dequantised, computed in float32, quantised.

What is written out here fuses to one kernel.
"""

from __future__ import annotations

from opbuild.graph.passes.integers.movement import is_ordinary
from opbuild.graph.passes.integers.registry import MICROSOFT, IntegerRewriter, Quantized, rewrites
from opbuild.graph.passes.integers.requantization import quantize_sum
from opbuild.graph.types import Node

_BINARY = {"QLinearAdd": "Add", "QLinearMul": "Mul"}
_UNARY = {"QLinearSigmoid": "Sigmoid", "QLinearLeakyRelu": "LeakyRelu", "QLinearSoftmax": "Softmax"}


@rewrites(*_BINARY, domain=MICROSOFT)
def _binary(to: IntegerRewriter, node: Node) -> bool:
    a, a_scale, a_zero, b, b_scale, b_zero, scale, zero = (*node.inputs, "")[:8]
    if node.op_type == "QLinearAdd" and all(is_ordinary(to, each) for each in (a_scale, b_scale, scale)):
        operands = Quantized(a, a_scale, a_zero, None), Quantized(b, b_scale, b_zero, None)
        quantize_sum(to, node, operands, [], (scale, zero))
        return True
    values = tuple(_dequantized(to, node, each) for each in ((a, a_scale, a_zero), (b, b_scale, b_zero)))
    _quantized(to, node, to.add(node, _BINARY[node.op_type], values), (scale, zero))
    return True


@rewrites(*_UNARY, domain=MICROSOFT)
def _unary(to: IntegerRewriter, node: Node) -> bool:
    attrs = {name: value for name, value in node.attrs.items() if name in ("alpha", "axis")}
    value = _dequantized(to, node, node.inputs[:3])
    _quantized(to, node, to.add(node, _UNARY[node.op_type], (value,), **attrs), (*node.inputs, "")[3:5])
    return True


@rewrites("QLinearConcat", domain=MICROSOFT)
def _concat(to: IntegerRewriter, node: Node) -> bool:
    values = tuple(_dequantized(to, node, node.inputs[i : i + 3]) for i in range(2, len(node.inputs), 3))
    parts = tuple(_requantized(to, node, value, node.inputs[:2]) for value in values)
    to.add(node, "Concat", parts, node.outputs[0], axis=node.attrs["axis"])
    return True


@rewrites("QLinearWhere", domain=MICROSOFT)
def _where(to: IntegerRewriter, node: Node) -> bool:
    values = tuple(_dequantized(to, node, node.inputs[first : first + 3]) for first in (1, 4))
    _quantized(to, node, to.add(node, "Where", (node.inputs[0], *values)), node.inputs[7:9])
    return True


def _dequantized(to: IntegerRewriter, node: Node, names: tuple[str, ...]) -> str:
    return to.add(node, "DequantizeLinear", _present(names))


def _requantized(to: IntegerRewriter, node: Node, value: str, parameters: tuple[str, ...]) -> str:
    return to.add(node, "QuantizeLinear", _present((value, *parameters)))


def _quantized(to: IntegerRewriter, node: Node, value: str, parameters: tuple[str, ...]) -> None:
    kind = to.types[node.outputs[0]].dtype
    attrs = {} if parameters[1] else {"output_dtype": kind}
    to.add(node, "QuantizeLinear", _present((value, *parameters)), node.outputs[0], **attrs)


def _present(names: tuple[str, ...]) -> tuple[str, ...]:
    return names if names[-1] else names[:-1]
