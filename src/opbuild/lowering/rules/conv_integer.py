"""ConvInteger: convolutions of 8-bit numbers, with what is fused into them, as calls of the integer families."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from opbuild.families.blocked import BLOCK, blocks
from opbuild.families.conv_integer import family as dense
from opbuild.families.conv_integer_depthwise import family as depthwise
from opbuild.families.epilogue import Epilogue
from opbuild.families.family import Variant
from opbuild.families.winograd import family as winograd_family
from opbuild.families.winograd_integer import family as winograd
from opbuild.graph.types import Array, Node
from opbuild.lowering import integer_weights as packing
from opbuild.lowering.context import Lowering, NotServedError, rule
from opbuild.lowering.epilogue import CHANNEL_FILL, epilogue_of, pack_channels, pack_scalar
from opbuild.lowering.halo import with_halo
from opbuild.lowering.integer_weights import Part
from opbuild.lowering.operands import Blocked, BlockedTaps, OperandRef, Plain
from opbuild.lowering.windows import Pair, Window, image_shape, window_of
from opbuild.operations.evaluation import evaluate_scalar
from opbuild.operations.expression import ACC, Expression, arg, canonical, substitute, walk
from opbuild.platform.records import dataclass, replace

_SUMS = ""
"""Stands for the name of an operand: the sums of each channel's weights."""

OPERANDS = ("float32", "int32", "uint8", "int8")
"""Element types that an epilogue may read."""

RESULTS = ("float32", "int32", "uint8", "int8")
"""Element types that an epilogue may make."""


@dataclass(frozen=True, eq=False)
class _Convolution:
    """A convolution, ready to be given to a family.

    Attributes:
        node: The node.
        inputs: Input channels.
        outputs: Output channels.
        window: The geometry.
        weights: The weights less their zero points.
        made_of: Names of the constants that the weights are made of.
        zero: The zero point of the input; 0 if it is computed.
        computed_zero: Name of a zero point that is computed, or empty.
        bias: Name of the constant bias, or empty.
        epilogue: What is applied to the sums.
    """

    node: Node
    inputs: int
    outputs: int
    window: Window
    weights: Array
    made_of: tuple[str, ...]
    zero: int
    computed_zero: str
    bias: str
    epilogue: Epilogue


@rule("ConvInteger")
def lower_conv_integer(lowering: Lowering, node: Node) -> None:
    """Lower a ConvInteger of one or two spatial dimensions, and its epilogue."""
    conv = _conv(lowering, node)
    groups, padding = int(node.attrs.get("group", 1)), _padding(lowering, conv)
    source = _in_zero_points(lowering, conv)
    taps = conv.window.kernel[0] * conv.window.kernel[1]
    if groups == conv.inputs == conv.outputs and groups > 1 and taps <= depthwise.MOST_TAPS:
        _depthwise(lowering, conv, source, padding)
    elif (variant := _winograd_variant(lowering, conv, groups)) is not None:
        _winograd(lowering, conv, source, padding, variant)
    else:
        _dense(lowering, conv, source, padding)


def _in_zero_points(lowering: Lowering, conv: _Convolution) -> Blocked:
    """Return the input in a halo of its zero point."""
    name, number = conv.node.inputs[0], conv.zero
    if conv.computed_zero:
        filling, known = _number(lowering, conv.computed_zero), None
    else:
        filling = lowering.packed((), f"zero point {number}", (1,), "uint8", lambda: np.full(1, number, np.uint8))
        known = number
    return with_halo(lowering, lowering.blocked(name), conv.window.halo, filling, known, conv.node.name)


def _number(lowering: Lowering, name: str) -> Plain:
    """Return a value of one element."""
    if lowering.is_constant(name):
        return pack_scalar(lowering, name)
    value = lowering.dense(name)
    return Plain(value.storage, (1,), (1,), value.offset)


def _conv(lowering: Lowering, node: Node) -> _Convolution:
    data, weights, x_zero, w_zero = (*node.inputs[:4], "", "")[:4]
    if lowering.type(data).dtype not in dense.FAMILY.types:
        raise NotServedError(f"{node.op_type} of {lowering.type(data).dtype}")
    if lowering.type(node.outputs[0]).dtype not in RESULTS:
        raise NotServedError(f"{node.op_type} with a result of {lowering.type(node.outputs[0]).dtype}")
    if not all(lowering.is_constant(name) for name in (weights, w_zero) if name):
        raise NotServedError(f"{node.op_type} whose weights are computed")
    window = window_of(lowering, node, lowering.type(weights).shape[2:])
    _, inputs, _, _ = image_shape(lowering.type(data).shape)
    array = packing.shifted(np.asarray(lowering.constant(weights)), lowering.constant(w_zero))
    if math.prod(array.shape[1:]) > dense.MOST_PRODUCTS:
        raise NotServedError(f"{node.op_type} whose sums of {math.prod(array.shape[1:])} products may leave int32")
    zero = lowering.constant(x_zero)
    bias, epilogue = _without_bias(epilogue_of(lowering, node, OPERANDS))
    number, computed = (0, x_zero) if zero is None else (int(zero.reshape(-1)[0]), "")
    epilogue = _less_zero(epilogue, computed) if computed else epilogue
    made_of = (weights, w_zero) if w_zero else (weights,)
    return _Convolution(node, inputs, array.shape[0], window, array, made_of, number, computed, bias, epilogue)


def _less_zero(epilogue: Epilogue, zero: str) -> Epilogue:
    """Return an epilogue that takes a zero point times the sum of each channel's weights from the sums first."""
    count = len(epilogue.operands)
    total = ("sub", ACC, ("mul", ("cast", "int32", arg(count)), arg(count + 1)))
    expression, order = canonical(substitute(epilogue.expression, lambda e: total if e == ACC else None))
    operands = (*epilogue.operands, ("scalar", zero), ("channel", _SUMS))
    dtypes = (*epilogue.dtypes, "uint8", "int32")
    return replace(
        epilogue,
        expression=expression,
        operands=tuple(operands[index] for index in order),
        dtypes=tuple(dtypes[index] for index in order),
    )


def _without_bias(epilogue: Epilogue) -> tuple[str, Epilogue]:
    """Return the name of the int32 that is added to the sums first, empty if none is, and the rest of an epilogue."""
    parts = list(walk(epilogue.expression))
    for index, ((kind, name), dtype) in enumerate(zip(epilogue.operands, epilogue.dtypes, strict=True)):
        sum_ = ("add", ACC, arg(index))
        if kind == "residual" or dtype != "int32" or sum_ not in parts:
            continue
        if parts.count(ACC) == parts.count(arg(index)) == parts.count(sum_):
            return name, _with_sums_for(epilogue, sum_)
    return "", epilogue


def _with_sums_for(epilogue: Epilogue, part: Expression) -> Epilogue:
    """Return an epilogue that reads the sums where it read a part of its expression."""
    expression, order = canonical(substitute(epilogue.expression, lambda e: ACC if e == part else None))
    operands = tuple(epilogue.operands[index] for index in order)
    return replace(epilogue, expression=expression, operands=operands, dtypes=tuple(epilogue.dtypes[i] for i in order))


def _dense(lowering: Lowering, conv: _Convolution, source: Blocked, padding: float) -> None:
    """Emit one call for each image and each part of a grouped convolution."""
    window, out = conv.window, _result(lowering, conv)
    dtype = packing.element_type(conv.weights)
    halves = dense.in_halves(packing.largest(conv.weights), lowering.machine)
    adjacent = dense.adjacent(dtype, halves, lowering.machine)
    parts = tuple(packing.parts(conv.inputs, conv.outputs, int(conv.node.attrs.get("group", 1))))
    extra, target, bias = _operands(lowering, conv, padding)
    for part in parts:
        steps = -(-part.inputs[1] // adjacent) if part.inputs[1] <= BLOCK else BLOCK // adjacent
        added = math.prod(window.kernel) * -(-part.inputs[1] // (adjacent * steps)) * steps
        variant = lowering.choose(dense.choose, window.out, part.outputs[1], added)
        desc = dense.describe(
            window.kernel, window.stride, window.dilation, (dtype, adjacent, steps), halves, conv.epilogue, out, variant
        )
        weights = _packed_weights(lowering, conv, part, (dtype, adjacent, steps))
        begin, count = part.inputs[0] // BLOCK, blocks(part.inputs[1])
        data = source if len(parts) == 1 else source.part(begin, count)
        place = _Place(part.outputs[0] // BLOCK, blocks(part.outputs[1]), len(parts) == 1)
        for image in lowering.images(source.shape[0]):
            left, top = window.before
            taps = BlockedTaps(data, image, (-left, -top), window.out, window.stride, window.kernel, window.dilation)
            operands = (place.of(each, image) for each in (bias, *extra, target))
            lowering.emit(desc, [taps, weights, *operands], conv.node)


def _winograd_variant(lowering: Lowering, conv: _Convolution, groups: int) -> Variant | None:
    """Return Winograd's variant, or None where the direct convolution is faster."""
    window = conv.window
    geometry = (window.kernel, window.stride, window.dilation, groups)
    if geometry != (winograd_family.KERNEL, (1, 1), (1, 1), 1):
        return None
    return lowering.choose(winograd.choose, window.out, conv.inputs, conv.outputs)


def _winograd(lowering: Lowering, conv: _Convolution, source: Blocked, padding: float, variant: Variant) -> None:
    """Emit one call for each image; the output is rounded up to whole chunks, and what it reads with it."""
    window, (width, height) = conv.window, winograd_family.rounded(variant, conv.window.out)
    desc = winograd.describe(conv.epilogue, _result(lowering, conv), variant)
    left, top = window.before
    over = (max(0, width + 2 - left - window.size[0]), max(0, height + 2 - top - window.size[1]))
    source.storage.grow_halo(left, top, *over)
    shape = (winograd.POINTS, blocks(conv.outputs), blocks(conv.inputs), BLOCK // 2, BLOCK, 2)
    weights = lowering.packed(
        conv.made_of, "integer winograd", shape, "int16", lambda: packing.pack_winograd(conv.weights)
    )
    extra, target, bias = _operands(lowering, conv, padding)
    for image in lowering.images(source.shape[0]):
        data = source.window(image, left, top, window.out[0] + 2, window.out[1] + 2)
        others = (_rounded(each, image, window.out, (width, height)) for each in (bias, *extra, target))
        lowering.emit(desc, [data, weights, *others], conv.node)


def _rounded(operand: Plain | Blocked, image: int, out: Pair, whole: Pair) -> OperandRef:
    """Return an operand of an image, a blocked one with extents rounded up to ``whole``."""
    if isinstance(operand, Plain):
        return operand
    operand.storage.grow_halo(0, 0, whole[0] - out[0], whole[1] - out[1])
    return operand.window(image, 0, 0, *whole)


def _result(lowering: Lowering, conv: _Convolution) -> str:
    """Return the element type of the result."""
    return lowering.type(conv.node.outputs[0]).dtype


def _depthwise(lowering: Lowering, conv: _Convolution, source: Blocked, padding: float) -> None:
    window, out = conv.window, _result(lowering, conv)
    variant = lowering.choose(depthwise.choose, window.out[0])
    desc = depthwise.describe(window.kernel, window.stride, window.dilation, conv.epilogue, out, variant)
    shape = (blocks(conv.outputs), window.kernel[1], window.kernel[0], BLOCK)
    weights = lowering.packed(
        conv.made_of, "integer depthwise", shape, "int16", lambda: packing.pack_depthwise(conv.weights)
    )
    extra, target, bias = _operands(lowering, conv, padding)
    place = _Place(0, 0, True)
    left, top = window.before
    for image in lowering.images(source.shape[0]):
        operands = (place.of(each, image) for each in (bias, *extra, target))
        lowering.emit(desc, [source.window(image, left, top, *window.span), weights, *operands], conv.node)


@dataclass(frozen=True)
class _Place:
    """Some of the channel blocks of an output, or all of them."""

    first: int
    count: int
    whole: bool

    def of(self, operand: Plain | Blocked, image: int) -> OperandRef:
        """Return their part of an operand: of a blocked value that of an image."""
        if isinstance(operand, Blocked):
            return (operand if self.whole else operand.part(self.first, self.count)).window(image)
        if self.whole or operand.shape[0] == 1 == len(operand.shape):
            return operand
        return Plain(operand.storage, (self.count, BLOCK), (BLOCK, 1), self.first * BLOCK)


def _operands(lowering: Lowering, conv: _Convolution, padding: float) -> tuple[list[Plain | Blocked], Blocked, Plain]:
    """Return the operands of the epilogue, the place of the result, and the packed bias."""
    extra: list[Plain | Blocked] = []
    for kind, name in conv.epilogue.operands:
        if kind == "residual":
            extra.append(lowering.blocked(name))
        elif name == _SUMS:
            extra.append(_channel_sums(lowering, conv))
        elif kind == "channel":
            extra.append(pack_channels(lowering, name, conv.outputs, CHANNEL_FILL))
        else:
            extra.append(_number(lowering, name))
    target = lowering.new_blocked(conv.node.outputs[0], padding)
    names = (*conv.made_of, conv.bias) if conv.bias else conv.made_of
    recipe = f"integer bias {conv.zero} {len(conv.made_of)}"
    pack = partial(packing.pack_bias, conv.weights, lowering.constant(conv.bias), conv.zero)
    bias = lowering.packed(names, recipe, (blocks(conv.outputs), BLOCK), "int32", pack)
    return extra, target, bias


def _channel_sums(lowering: Lowering, conv: _Convolution) -> Plain:
    """Return the sum of the weights of each channel."""
    shape, recipe = (blocks(conv.outputs), BLOCK), f"integer sums {len(conv.made_of)}"
    return lowering.packed(conv.made_of, recipe, shape, "int32", lambda: -packing.pack_bias(conv.weights, None, 1))


def _packed_weights(lowering: Lowering, conv: _Convolution, part: Part, form: tuple[str, int, int]) -> Plain:
    dtype, adjacent, steps = form
    shape = (
        blocks(part.outputs[1]), -(-part.inputs[1] // (adjacent * steps)), *conv.window.kernel[::-1],
        steps, BLOCK, adjacent,
    )  # fmt: skip
    recipe = f"integer {adjacent} {steps} groups {part.first} {part.count}"
    pack = partial(packing.pack_dense, conv.weights, part, adjacent, steps, dtype)
    return lowering.packed(conv.made_of, recipe, shape, dtype, pack)


def _padding(lowering: Lowering, conv: _Convolution) -> float:
    """Return what lanes beyond the channels hold.

    Raises:
        NotServedError: If it is not finite.
    """
    if conv.outputs % BLOCK == 0:
        return 0.0
    found = {_lane_value(lowering, conv.epilogue, number) for number in (1.0, 2.0)}
    value = found.pop()
    if found or not math.isfinite(value):
        raise NotServedError("the epilogue has no known finite value for the lanes beyond the channels")
    return value


def _lane_value(lowering: Lowering, epilogue: Epilogue, unknown: float) -> float:
    """Return what lanes beyond the channels hold where all computed numbers are ``unknown``."""
    args: list[float] = []
    for kind, name in epilogue.operands:
        if kind == "residual":
            args.append(lowering.blocked(name).padding_value)
        elif name == _SUMS:
            args.append(0.0)
        elif kind == "channel":
            args.append(CHANNEL_FILL)
        else:
            known = lowering.constant(name)
            args.append(unknown if known is None else float(known.reshape(-1)[0]))
    return evaluate_scalar(epilogue.expression, args, epilogue.dtypes, np.asarray(0, np.int32))
