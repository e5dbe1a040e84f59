"""Conv of plain values, for devices: channels lie innermost, weights in 16 bits where those are what they are.

A kernel of 1 x 1 over images that lie so is a product of matrices; others read their windows where they lie.
"""

from __future__ import annotations

from math import prod

import numpy as np

from opbuild.dtypes import NARROW_FLOATS, numpy_dtype
from opbuild.graph.constants import factors_of, numbers_of, scaled, unscaled_numbers_of
from opbuild.graph.extents import is_open
from opbuild.graph.types import Array, Node
from opbuild.lowering.context import Lowering
from opbuild.lowering.implementations import ASKED, ask
from opbuild.lowering.matrix import Product, in_canonical_form
from opbuild.lowering.operands import Plain
from opbuild.lowering.rows import fused_with
from opbuild.lowering.strided import broadcast, merge, transposed, viewed_as
from opbuild.lowering.windows import ConvolvedWindows, image_shape, window_of, with_height
from opbuild.operations.expression import ACC, Expression, arg, substitute
from opbuild.platform.records import dataclass

SMALL = 1024
"""Elements up to which constants are looked at for numbers of 16 bits: passes do not say it of them."""

LEAST_TURNED = 16
"""Channels from which on an image that lies otherwise is copied first: 16 bytes of them are read at once."""


@dataclass(frozen=True)
class PlainConvolution:
    """A convolution of plain values.

    Attributes:
        of: Its node, channels and windows.
        x: The image ``(N, C, H, W)``.
        weights: ``(groups, outputs of one, taps * inputs)``, inputs innermost.
        operands: Those of the epilogue, in the shape of the output.
        out: The output.
        expression: The epilogue.
    """

    of: ConvolvedWindows
    x: Plain
    weights: Plain
    operands: tuple[Plain, ...]
    out: Plain
    expression: Expression


def conv_of_plain(lowering: Lowering, node: Node) -> bool:
    """Emit a Conv for a device; return whether it has one or two dimensions, float32, and a known padding."""
    data, weights, bias = (*node.inputs[: node.attrs.get("own_inputs", 3)], "")[:3]
    (outputs, *_), kernel = lowering.type(weights).shape, lowering.type(weights).shape[2:]
    if len(kernel) > 2 or {lowering.type(name).dtype for name in (data, weights, bias) if name} != {"float32"}:
        return False
    window = window_of(lowering, node, kernel)
    images, inputs, *_ = image_shape(lowering.type(data).shape)
    if is_open((*window.before, inputs, outputs)):
        return False
    own = ConvolvedWindows(node, images, inputs, outputs, int(node.attrs.get("group", 1)), window)
    packed, factors = _weights(lowering, weights, own)
    expression, names = fused_with(node)
    operands = [with_height(broadcast(lowering.plain(name), lowering.type(node.outputs[0]).shape)) for name in names]
    value = ACC
    for operation, operand in (("mul", factors), ("add", lowering.dense(bias) if bias else None)):
        if operand is not None:
            value = (operation, value, arg(len(operands)))
            operands.append(viewed_as(operand, (outputs, 1, 1), (1, 0, 0)))
    expression = substitute(expression, lambda e: value if e == ACC else None)
    x = with_height(lowering.channels_last(data) if inputs >= LEAST_TURNED else lowering.plain(data))
    out = with_height(lowering.new_channels_last(node.outputs[0]))
    conv = PlainConvolution(own, x, packed, tuple(broadcast(each, out.shape) for each in operands), out, expression)
    product = _as_product(lowering, conv)
    if product is None:
        ask(lowering, (ASKED, "PlainConvolution"), conv)
    else:
        ask(lowering, (ASKED, "BatchProduct"), product)
    return True


def _weights(lowering: Lowering, name: str, conv: ConvolvedWindows) -> tuple[Plain, Plain | None]:
    """Return weights as kernels read them, and factors of their outputs that are left to the epilogue, if there are."""
    outputs, *rest = lowering.type(name).shape
    groups, count = conv.groups, prod(rest)
    rows = (count, outputs) if conv.is_depthwise else (outputs, count)
    if not lowering.is_constant(name):
        value = with_height(lowering.plain(name))
        order = (2, 3, 1, 0) if conv.is_depthwise else (0, 2, 3, 1)
        turned = transposed(value, order)
        packed, factors = turned if turned.dense else lowering.dense_copy(turned, conv.node.name), None
    else:
        dtype, is_unscaled = _stored_type(lowering, name)

        def pack() -> Array:
            array, scales = factors_of(lowering.graph.constants, name)
            array = np.asarray(array if is_unscaled else scaled(array, scales))
            taps_last = array.reshape(*array.shape[:2], -1).transpose(0, 2, 1).reshape(outputs, count)
            return np.ascontiguousarray(taps_last.T if conv.is_depthwise else taps_last).astype(numpy_dtype(dtype))

        recipe = f"inputs last{', by tap' * conv.is_depthwise}{', unscaled' * is_unscaled}"
        packed = lowering.packed((name,), recipe, rows, dtype, pack)
        factors = _factors(lowering, name, outputs) if is_unscaled else None
    if conv.is_depthwise:
        return viewed_as(packed, (groups, 1, count), (1, 0, groups)), factors
    each = outputs // groups
    return viewed_as(packed, (groups, each, count), (each * count, count, 1)), factors


def _factors(lowering: Lowering, name: str, outputs: int) -> Plain:
    def pack() -> Array:
        scales = np.asarray(factors_of(lowering.graph.constants, name)[1], np.float32)
        return np.ascontiguousarray(np.broadcast_to(scales.reshape(-1), (outputs,)))

    return lowering.packed((name,), "scales", (outputs,), "float32", pack)


def _stored_type(lowering: Lowering, name: str) -> tuple[str, bool]:
    """Return the type in which weights are stored, and whether as they were before they were scaled."""
    constants = lowering.graph.constants
    unscaled = unscaled_numbers_of(constants, name)
    known = unscaled or numbers_of(constants, name)
    if known or lowering.type(name).size > SMALL:
        return known or "float32", bool(unscaled)
    array, scales = factors_of(constants, name)
    types = {kind.dtype for kind in lowering.graph.types.values()}.intersection(NARROW_FLOATS)
    with np.errstate(over="ignore"):
        fitting = [each for each in types if np.array_equal(array.astype(numpy_dtype(each)).astype(array.dtype), array)]
    return (fitting[0], scales is not None) if len(fitting) == 1 else ("float32", False)


def _as_product(lowering: Lowering, conv: PlainConvolution) -> Product | None:
    """Return a convolution of 1 x 1 as a product of matrices, if all that it touches is one."""
    window, node = conv.of.window, conv.of.node
    if (window.kernel, window.stride, conv.of.groups) != ((1, 1), (1, 1), 1) or window.padded:
        return None
    lhs, out, *operands = (_matrix(value) for value in (conv.x, conv.out, *conv.operands))
    if lhs is None or out is None or None in operands:
        return None
    _, outputs, inputs = conv.weights.shape
    rhs = viewed_as(conv.weights, (inputs, outputs), (1, inputs))
    mode = lowering.impl_mode(node, differs=False)
    found = tuple(each for each in operands if each is not None)
    return in_canonical_form(Product(lhs, rhs, out, conv.expression, found, node.name, None, mode))


def _matrix(value: Plain) -> Plain | None:
    """Return an image as ``(positions, channels)``, if positions of all images are one dimension."""
    positions = transposed(value, (0, 2, 3, 1))
    extents, (strides,) = merge(positions.shape[:3], [positions.strides[:3]])
    if len(extents) > 1:
        return None
    (rows,), (step,) = extents or (1,), strides or (0,)
    return viewed_as(value, (rows, value.shape[1]), (step, value.strides[1]))
