"""Elementwise operators of com.microsoft on quantised numbers: dequantised, computed in float32, quantised.

What is written out here fuses to one kernel.
"""

from __future__ import annotations

from opbuild.graph.passes.integers.registry import MICROSOFT, IntegerBuilder, Quantized, rewrites
from opbuild.graph.passes.integers.requantization import is_ordinary, quantize_sum

_BINARY = {"QLinearAdd": "Add", "QLinearMul": "Mul"}
_UNARY = {"QLinearSigmoid": "Sigmoid", "QLinearLeakyRelu": "LeakyRelu", "QLinearSoftmax": "Softmax"}


@rewrites(*_BINARY, domain=MICROSOFT)
def _binary(of: IntegerBuilder) -> None:
    a, a_scale, a_zero, b, b_scale, b_zero, scale, zero = (*of.inputs, "")[:8]
    if of.node.op_type == "QLinearAdd" and all(is_ordinary(of.scope, each) for each in (a_scale, b_scale, scale)):
        operands = Quantized(a, a_scale, a_zero, None), Quantized(b, b_scale, b_zero, None)
        quantize_sum(of, operands, [], (scale, zero))
        return
    values = tuple(_dequantized(of, each) for each in ((a, a_scale, a_zero), (b, b_scale, b_zero)))
    _quantized(of, of(_BINARY[of.node.op_type], *values), (scale, zero))


@rewrites(*_UNARY, domain=MICROSOFT)
def _unary(of: IntegerBuilder) -> None:
    attrs = {name: value for name, value in of.node.attrs.items() if name in ("alpha", "axis")}
    value = _dequantized(of, of.inputs[:3])
    _quantized(of, of(_UNARY[of.node.op_type], value, **attrs), (*of.inputs, "")[3:5])


@rewrites("QLinearConcat", domain=MICROSOFT)
def _concat(of: IntegerBuilder) -> None:
    values = tuple(_dequantized(of, of.inputs[i : i + 3]) for i in range(2, len(of.inputs), 3))
    parts = tuple(_requantized(of, value, of.inputs[:2]) for value in values)
    of("Concat", *parts, output=of.outputs[0], axis=of.node.attrs["axis"])


@rewrites("QLinearWhere", domain=MICROSOFT)
def _where(of: IntegerBuilder) -> None:
    values = tuple(_dequantized(of, of.inputs[first : first + 3]) for first in (1, 4))
    _quantized(of, of("Where", of.input(0), *values), of.inputs[7:9])


def _dequantized(of: IntegerBuilder, names: tuple[str, ...]) -> str:
    return of("DequantizeLinear", *_present(names))


def _requantized(of: IntegerBuilder, value: str, parameters: tuple[str, ...]) -> str:
    return of("QuantizeLinear", *_present((value, *parameters)))


def _quantized(of: IntegerBuilder, value: str, parameters: tuple[str, ...]) -> None:
    kind = of.types[of.outputs[0]].dtype
    attrs = {} if parameters[1] else {"output_dtype": kind}
    of("QuantizeLinear", *_present((value, *parameters)), output=of.outputs[0], **attrs)


def _present(names: tuple[str, ...]) -> tuple[str, ...]:
    return names if names[-1] else names[:-1]
