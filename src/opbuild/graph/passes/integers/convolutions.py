"""Convolutions of quantised numbers: ONNX's, and Conv of dequantised values, as sums of products of bytes.

``(a - za) (b - zb)`` is what ConvInteger adds up, exactly; scales and the bias follow as elementwise operators, which
fuse into it. ``requantization`` has what quantises the result of a Conv.
"""

from __future__ import annotations

import math

import numpy as np

from opbuild.graph.graph_builder import Value
from opbuild.graph.passes.integers import MICROSOFT, IntegerBuilder, IntegerGraph, Quantized, Rewrite, rewrites
from opbuild.graph.passes.integers.products import SCALED_SUMS, requantized, turned
from opbuild.graph.passes.rewriter import KeptError
from opbuild.graph.types import TensorType
from opbuild.operations.expression import Expression, arg

MOST_TAPS = 256
"""Pixels of the largest image whose channels are added up as a depthwise convolution."""

MOST_IN_FLOATS = 2**24 // (255 * 255) - 1
"""Products of which float32 holds every sum exactly."""

POOLING = ("auto_pad", "ceil_mode", "count_include_pad", "dilations", "kernel_shape", "pads", "strides")

ATTRIBUTES = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")

SAME_SCALE = 1e-5
"""Relative difference up to which the scale of a bias is that of the sums: tools compute it in other precisions."""


@rewrites("ConvInteger")
def _conv_integer(of: IntegerBuilder) -> None:
    x, w, x_zero, w_zero = (*of.inputs, "", "")[:4]
    if not _has_sums(of.scope, w) or (of.types[x].dtype != "int8" and w in of.constants):
        raise KeptError
    _sums(of, (x, x_zero), (w, w_zero), of.outputs[0])


@rewrites("QLinearConv")
@rewrites("QLinearConv", domain=MICROSOFT)
def _qlinear_conv(of: IntegerBuilder) -> None:
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias = (*of.inputs, "")[:9]
    if {of.types[name].dtype for name in (x_scale, w_scale, y_scale)} != {"float32"}:
        raise KeptError
    if of.attr("channels_last", 0):
        _channels_first(of, _qlinear_conv)
        return
    if not _has_sums(of.scope, w) or max(of.types[name].size for name in (x_scale, x_zero, y_scale, y_zero)) > 1:
        raise KeptError
    total = _sums(of, (x, x_zero), (w, w_zero))
    total = of("Add", total, _by_output_channel(of, bias)) if bias else total
    requantized(of, total, _factor(of, x_scale, w_scale, y_scale), of.reshaped(y_zero, ()))


@rewrites("Conv")
def _conv(of: IntegerBuilder) -> None:
    x, w = (of.scope.quantized(name) for name in of.inputs[:2])
    if x is None or w is None or x.axis is not None or w.axis not in (None, 0) or w.value not in of.constants:
        raise KeptError
    bias = of.input(2) if len(of.inputs) > 2 else ""
    whole = _whole_bias(of.scope, bias, x, w)
    total = _sums(of, (x.value, x.zero_point), (w.value, w.zero_point))
    total = of("Add", total, _by_output_channel(of, whole)) if whole else total
    factor = _factor(of, x.scale, w.scale)
    if bias and not whole:
        of.elementwise((total, factor, _by_output_channel(of, bias)), ("add", SCALED_SUMS, arg(2)), of.outputs[0])
        return
    of.elementwise((total, factor), SCALED_SUMS, of.outputs[0])
    of.scope.derived[of.outputs[0], "sums"] = total
    of.scope.derived[of.outputs[0], "factor"] = factor


@rewrites("QLinearGlobalAveragePool", domain=MICROSOFT)
def _global_average(of: IntegerBuilder) -> None:
    """Add up each channel as a depthwise convolution by ones does, as large as the image."""
    x, x_scale, x_zero, y_scale, y_zero = of.inputs
    if of.attr("channels_last", 0):
        _channels_first(of, _global_average)
        return
    _, channels, *image = of.types[x].shape
    if 0 in of.types[x].shape or len(image) > 2 or math.prod(image) > MOST_TAPS:
        _average(of)
        return
    ones = of.constant(np.ones((channels, 1, *image), np.int8))
    total = _sums(of.scope.at(of.node.with_(attrs={"group": channels})), (x, x_zero), (ones, ""))
    count = of.constant(np.array(math.prod(image), np.float32))
    divisor = of("Mul", of.reshaped(y_scale, ()), count)
    requantized(of, total, of("Div", of.reshaped(x_scale, ()), divisor), of.reshaped(y_zero, ()))


@rewrites("QLinearAveragePool", domain=MICROSOFT)
def _average(of: IntegerBuilder) -> None:
    """Dequantise, compute and quantise."""
    if of.attr("channels_last", 0):
        _channels_first(of, _average)
        return
    x = of("DequantizeLinear", *of.inputs[:3])
    kind = "AveragePool" if "kernel_shape" in of.node.attrs else "GlobalAveragePool"
    attrs = {name: of.node.attrs[name] for name in POOLING if name in of.node.attrs}
    of("QuantizeLinear", of(kind, x, **attrs), *of.inputs[3:5], output=of.outputs[0])


@rewrites("NhwcMaxPool", domain=MICROSOFT)
def _max_pool(of: IntegerBuilder) -> None:
    _channels_first(of, lambda of: of("MaxPool", *of.inputs, output=of.outputs[0], **of.node.attrs))


def _channels_first(of: IntegerBuilder, rewrite: Rewrite) -> None:
    """Rewrite an operator on images whose channels are innermost between two transpositions."""
    rank = len(of.input(0).shape)
    x = of("Transpose", *of.inputs[:1], perm=(0, rank - 1, *range(1, rank - 1)))
    output, (n, *image, channels) = of.scope.fresh(f"{of.outputs[0]}/planes"), of.types[of.outputs[0]].shape
    of.types[output] = TensorType(of.types[of.outputs[0]].dtype, (n, channels, *image))
    attrs = {name: value for name, value in of.node.attrs.items() if name != "channels_last"}
    inner = of.node.with_(inputs=(x, *of.inputs[1:]), outputs=(output,), attrs=attrs, domain="")
    try:
        rewrite(of.scope.at(inner))
    except KeptError:
        of.scope.nodes.append(inner)  # ONNX's own
    of("Transpose", output, output=of.outputs[0], perm=(0, *range(2, rank), 1))


def _sums(of: IntegerBuilder, left: tuple[str, str], right: tuple[str, str], output: str = "") -> Value:
    """Append a convolution of bytes with their zero points; return the name of the int32 result."""
    (x, x_zero), (w, w_zero) = left, right
    attrs = {name: of.node.attrs[name] for name in ATTRIBUTES if name in of.node.attrs}
    if w not in of.constants:
        each = (-1, *(1 for _ in of.types[w].shape[1:]))
        w_zero = of.reshaped(w_zero, each) if w_zero and of.types[w_zero].size > 1 else w_zero
        moved = tuple(_moved_to_zero(of, *operand) for operand in ((x, x_zero), (w, w_zero)))
        return of("Cast", of("Conv", *moved, **attrs), output=output, to="int32")
    if of.types[x].dtype == "int8":
        x, x_zero = turned(of, x, "uint8"), _shifted_zero_point(of, x_zero)
    inputs = [x, w, *("" if of.scope.is_zero(zero) else zero for zero in (x_zero, w_zero))]
    while not inputs[-1]:
        inputs.pop()
    return of("ConvInteger", *tuple(inputs), output=output, **attrs)


def _has_sums(to: IntegerGraph, w: str) -> bool:
    """Return whether sums of products by these weights have kernels: those by computed weights if floats are exact."""
    return w in to.constants or math.prod(to.types[w].shape[1:]) <= MOST_IN_FLOATS


def _moved_to_zero(of: IntegerBuilder, name: str, zero: str) -> Value:
    """Return bytes less their zero point as float32."""
    if of.scope.is_zero(zero):
        return of("Cast", name, to="float32")
    less: Expression = ("sub", ("cast", "int32", arg(0)), ("cast", "int32", arg(1)))
    return of.elementwise((name, zero), ("cast", "float32", less))


def _shifted_zero_point(of: IntegerBuilder, zero: str) -> str:
    """Return the zero point of bytes whose highest bit was turned over."""
    zero = zero or of.constant(np.zeros((), np.int8))
    if zero in of.constants:
        return of.constant(of.constants[zero].view(np.uint8) ^ np.uint8(128), name=f"{zero}/uint8")
    return turned(of, zero, "uint8")


def _factor(of: IntegerBuilder, x_scale: str, w_scale: str, y_scale: str = "") -> Value:
    """Return the factor of the sums of each output channel."""
    factor = of("Mul", of.reshaped(x_scale, ()), _by_output_channel(of, w_scale))
    return of("Div", factor, of.reshaped(y_scale, ())) if y_scale else factor


def _by_output_channel(of: IntegerBuilder, name: str) -> Value:
    """Return one number for all output channels, or one for each, so that it broadcasts to the result."""
    if of.types[name].size == 1:
        return of.reshaped(name, ())
    return of.reshaped(name, (-1, *(1 for _ in of.types[of.outputs[0]].shape[2:])))


def _whole_bias(to: IntegerGraph, name: str, x: Quantized, w: Quantized) -> str:
    """Return a bias as int32 in the scale of the sums; empty if it is another number, or none."""
    node = to.producers.get(name)
    if node is None or node.domain not in ("", MICROSOFT) or node.op_type != "DequantizeLinear":
        return ""
    value, scale, zero = (*node.inputs, "")[:3]
    known = all(each in to.constants for each in (scale, x.scale, w.scale))
    if to.types[value].dtype != "int32" or not known or not to.is_zero(zero):
        return ""
    wanted = to.constants[x.scale].reshape(-1) * to.constants[w.scale].reshape(-1)
    same = np.allclose(to.constants[scale].reshape(-1), wanted, rtol=SAME_SCALE, atol=0)
    return value if same else ""
