"""Convolutions of quantised numbers: ONNX's, and Conv of what is dequantised, as sums of products of bytes.

``(a - za) (b - zb)`` is what ConvInteger adds up, exactly; scales and the bias follow as elementwise operators, which
fuse into it. ``requantization`` has what quantises the result of a Conv.
"""

from __future__ import annotations

import math

import numpy as np

from opbuild.graph.passes.integers.products import requantized
from opbuild.graph.passes.integers.registry import MICROSOFT, IntegerRewriter, Quantized, Rewrite, rewrites
from opbuild.graph.passes.integers.sums import turned
from opbuild.graph.types import Node, TensorType
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
def _conv_integer(to: IntegerRewriter, node: Node) -> bool:
    x, w, x_zero, w_zero = (*node.inputs, "", "")[:4]
    if not _has_sums(to, w) or (to.types[x].dtype != "int8" and w in to.constants):
        return False
    _sums(to, node, (x, x_zero), (w, w_zero), node.outputs[0])
    return True


@rewrites("QLinearConv")
@rewrites("QLinearConv", domain=MICROSOFT)
def _qlinear_conv(to: IntegerRewriter, node: Node) -> bool:
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias = (*node.inputs, "")[:9]
    if {to.types[name].dtype for name in (x_scale, w_scale, y_scale)} != {"float32"}:
        return False
    if node.attrs.get("channels_last", 0):
        return _channels_first(to, node, _qlinear_conv)
    if not _has_sums(to, w) or max(to.types[name].size for name in (x_scale, x_zero, y_scale, y_zero)) > 1:
        return False
    total = _sums(to, node, (x, x_zero), (w, w_zero))
    total = to.add(node, "Add", (total, _each(to, node, bias))) if bias else total
    factor = _factor(to, node, x_scale, w_scale, y_scale)
    requantized(to, node, total, factor, to.reshaped(node, y_zero, ()))
    return True


@rewrites("Conv")
def _conv(to: IntegerRewriter, node: Node) -> bool:
    x, w = (to.quantized(name) for name in node.inputs[:2])
    if x is None or w is None or x.axis is not None or w.axis not in (None, 0) or w.value not in to.constants:
        return False
    bias = node.inputs[2] if len(node.inputs) > 2 else ""
    whole = _whole_bias(to, bias, x, w)
    total = _sums(to, node, (x.value, x.zero_point), (w.value, w.zero_point))
    total = to.add(node, "Add", (total, _each(to, node, whole))) if whole else total
    factor = _factor(to, node, x.scale, w.scale)
    value: Expression = ("mul", ("cast", "float32", arg(0)), arg(1))
    if bias and not whole:
        to.elementwise(node, (total, factor, _each(to, node, bias)), ("add", value, arg(2)), node.outputs[0])
        return True
    to.elementwise(node, (total, factor), value, node.outputs[0])
    to.derived[node.outputs[0], "sums"] = total
    to.derived[node.outputs[0], "factor"] = factor
    return True


@rewrites("QLinearGlobalAveragePool", domain=MICROSOFT)
def _global_average(to: IntegerRewriter, node: Node) -> bool:
    """Add up each channel as a depthwise convolution by ones does, as large as the image."""
    x, x_scale, x_zero, y_scale, y_zero = node.inputs
    if node.attrs.get("channels_last", 0):
        return _channels_first(to, node, _global_average)
    _, channels, *image = to.types[x].shape
    if 0 in to.types[x].shape or len(image) > 2 or math.prod(image) > MOST_TAPS:
        return _average(to, node)
    ones = to.constant(f"{node.name}/ones", np.ones((channels, 1, *image), np.int8))
    total = _sums(to, node.with_(attrs={"group": channels}), (x, x_zero), (ones, ""))
    count = to.constant(f"{node.name}/count", np.array(math.prod(image), np.float32))
    divisor = to.add(node, "Mul", (to.reshaped(node, y_scale, ()), count))
    factor = to.add(node, "Div", (to.reshaped(node, x_scale, ()), divisor))
    requantized(to, node, total, factor, to.reshaped(node, y_zero, ()))
    return True


@rewrites("QLinearAveragePool", domain=MICROSOFT)
def _average(to: IntegerRewriter, node: Node) -> bool:
    """Dequantise, compute and quantise."""
    if node.attrs.get("channels_last", 0):
        return _channels_first(to, node, _average)
    x = to.add(node, "DequantizeLinear", node.inputs[:3])
    kind = "AveragePool" if "kernel_shape" in node.attrs else "GlobalAveragePool"
    attrs = {name: node.attrs[name] for name in POOLING if name in node.attrs}
    to.add(node, "QuantizeLinear", (to.add(node, kind, (x,), **attrs), *node.inputs[3:5]), node.outputs[0])
    return True


@rewrites("NhwcMaxPool", domain=MICROSOFT)
def _max_pool(to: IntegerRewriter, node: Node) -> bool:
    return _channels_first(to, node, _plain_max_pool)


def _plain_max_pool(to: IntegerRewriter, node: Node) -> bool:
    to.add(node, "MaxPool", node.inputs, node.outputs[0], **node.attrs)
    return True


def _channels_first(to: IntegerRewriter, node: Node, rewrite: Rewrite) -> bool:
    """Rewrite an operator on images whose channels are innermost between two transpositions."""
    rank = len(to.types[node.inputs[0]].shape)
    x = to.add(node, "Transpose", node.inputs[:1], perm=(0, rank - 1, *range(1, rank - 1)))
    output, (n, *image, channels) = to.fresh(f"{node.outputs[0]}/planes"), to.types[node.outputs[0]].shape
    to.types[output] = TensorType(to.types[node.outputs[0]].dtype, (n, channels, *image))
    attrs = {name: value for name, value in node.attrs.items() if name != "channels_last"}
    inner = node.with_(inputs=(x, *node.inputs[1:]), outputs=(output,), attrs=attrs, domain="")
    if not rewrite(to, inner):
        to.nodes.append(inner)  # ONNX's own
    to.add(node, "Transpose", (output,), node.outputs[0], perm=(0, *range(2, rank), 1))
    return True


def _sums(to: IntegerRewriter, node: Node, left: tuple[str, str], right: tuple[str, str], output: str = "") -> str:
    """Append a convolution of bytes with their zero points; return the name of the int32 result."""
    (x, x_zero), (w, w_zero) = left, right
    attrs = {name: node.attrs[name] for name in ATTRIBUTES if name in node.attrs}
    if w not in to.constants:
        each = (-1, *(1 for _ in to.types[w].shape[1:]))
        w_zero = to.reshaped(node, w_zero, each) if w_zero and to.types[w_zero].size > 1 else w_zero
        moved = tuple(_moved_to_zero(to, node, *operand) for operand in ((x, x_zero), (w, w_zero)))
        return to.add(node, "Cast", (to.add(node, "Conv", moved, **attrs),), output, to="int32")
    if to.types[x].dtype == "int8":
        x, x_zero = turned(to, node, x, "uint8"), _moved(to, node, x_zero)
    inputs = [x, w, *("" if to.is_zero(zero) else zero for zero in (x_zero, w_zero))]
    while not inputs[-1]:
        inputs.pop()
    return to.add(node, "ConvInteger", tuple(inputs), output, **attrs)


def _has_sums(to: IntegerRewriter, w: str) -> bool:
    """Return whether sums of products by these weights have kernels: those by computed weights if floats are exact."""
    return w in to.constants or math.prod(to.types[w].shape[1:]) <= MOST_IN_FLOATS


def _moved_to_zero(to: IntegerRewriter, node: Node, name: str, zero: str) -> str:
    """Return bytes less their zero point as float32."""
    if to.is_zero(zero):
        return to.add(node, "Cast", (name,), to="float32")
    less: Expression = ("sub", ("cast", "int32", arg(0)), ("cast", "int32", arg(1)))
    return to.elementwise(node, (name, zero), ("cast", "float32", less))


def _moved(to: IntegerRewriter, node: Node, zero: str) -> str:
    """Return the zero point of bytes whose highest bit was turned over."""
    zero = zero or to.constant(f"{node.name}/zero", np.zeros((), np.int8))
    if zero in to.constants:
        return to.constant(f"{zero}/uint8", to.constants[zero].view(np.uint8) ^ np.uint8(128))
    return turned(to, node, zero, "uint8")


def _factor(to: IntegerRewriter, node: Node, x_scale: str, w_scale: str, y_scale: str = "") -> str:
    """Return by what the sums of each output channel are multiplied."""
    scales = to.reshaped(node, x_scale, ()), _each(to, node, w_scale)
    factor = to.add(node, "Mul", scales)
    return to.add(node, "Div", (factor, to.reshaped(node, y_scale, ()))) if y_scale else factor


def _each(to: IntegerRewriter, node: Node, name: str) -> str:
    """Return one number for all output channels, or one for each, so that it broadcasts to the result."""
    if to.types[name].size == 1:
        return to.reshaped(node, name, ())
    return to.reshaped(node, name, (-1, *(1 for _ in to.types[node.outputs[0]].shape[2:])))


def _whole_bias(to: IntegerRewriter, name: str, x: Quantized, w: Quantized) -> str:
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
