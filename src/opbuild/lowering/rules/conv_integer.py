"""ConvInteger: a convolution of 8-bit numbers with its fused operations, as the families are asked.

Padding is the zero point. A halo of zeros costs nothing (``OperandStorage``); any other is written by who is about to
read it, each time.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from opbuild.families.blocked import BLOCK, blocks
from opbuild.families.epilogue import Epilogue
from opbuild.graph.extents import at_most
from opbuild.graph.types import Array, Node
from opbuild.lowering import conv_weights as packing
from opbuild.lowering.context import Lowering
from opbuild.lowering.epilogue import CHANNEL_FILL, epilogue_of, pack_channels, pack_scalar
from opbuild.lowering.implementations import ASKED, NotServedError, ask, serves
from opbuild.lowering.operands import ZEROS, Blocked, BlockedPhase, OperandRef, OperandStorage, Plain
from opbuild.lowering.windows import ConvolvedWindows, image_shape, window_of
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
class IntegerConvolution(ConvolvedWindows):
    """A convolution, ready to be given to a family.

    Attributes:
        weights: The weights less their zero points.
        made_of: Names of the constants that the weights are made of.
        zero: The zero point of the input; 0 if it is computed.
        computed_zero: Name of a zero point that is computed, or empty.
        bias: Name of the constant bias, or empty.
        epilogue: What is applied to the sums.
    """

    weights: Array
    made_of: tuple[str, ...]
    zero: int
    computed_zero: str
    bias: str
    epilogue: Epilogue


@serves("ConvInteger")
def lower_conv_integer(lowering: Lowering, node: Node) -> None:
    """Lower a ConvInteger of one or two spatial dimensions, and its epilogue."""
    ask(lowering, (ASKED, "IntegerConvolution"), _conv(lowering, node))


def begin(lowering: Lowering, conv: IntegerConvolution) -> tuple[Blocked, float]:
    """Return the input in a halo of its zero point, and the value of lanes beyond the output's channels."""
    padding = padding_of(lowering, conv)
    return in_zero_points(lowering, conv), padding


def in_zero_points(lowering: Lowering, conv: IntegerConvolution) -> Blocked:
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


def _conv(lowering: Lowering, node: Node) -> IntegerConvolution:
    data, weights, x_zero, w_zero = (*node.inputs[:4], "", "")[:4]
    if lowering.type(data).dtype != "uint8":
        raise NotServedError(f"{node.op_type} of {lowering.type(data).dtype}")
    if lowering.type(node.outputs[0]).dtype not in RESULTS:
        raise NotServedError(f"{node.op_type} with a result of {lowering.type(node.outputs[0]).dtype}")
    if not all(lowering.is_constant(name) for name in (weights, w_zero) if name):
        raise NotServedError(f"{node.op_type} whose weights are computed")
    window = window_of(lowering, node, lowering.type(weights).shape[2:])
    images, inputs, _, _ = image_shape(lowering.type(data).shape)
    array = packing.shifted(np.asarray(lowering.constant(weights)), lowering.constant(w_zero))
    zero = lowering.constant(x_zero)
    bias, epilogue = _without_bias(epilogue_of(lowering, node, OPERANDS))
    number, computed = (0, x_zero) if zero is None else (int(zero.reshape(-1)[0]), "")
    epilogue = _subtract_zero_point(epilogue, computed) if computed else epilogue
    made_of = (weights, w_zero) if w_zero else (weights,)
    groups = int(node.attrs.get("group", 1))
    return IntegerConvolution(
        node, images, inputs, array.shape[0], groups, window, array, made_of, number, computed, bias, epilogue
    )


def _subtract_zero_point(epilogue: Epilogue, zero: str) -> Epilogue:
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


def result_of(lowering: Lowering, conv: IntegerConvolution) -> str:
    """Return the element type of the result."""
    return lowering.type(conv.node.outputs[0]).dtype


@dataclass(frozen=True)
class ChannelBlocks:
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


def operands_of(
    lowering: Lowering, conv: IntegerConvolution, padding: float
) -> tuple[list[Plain | Blocked], Blocked, Plain]:
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


def _channel_sums(lowering: Lowering, conv: IntegerConvolution) -> Plain:
    """Return the sum of the weights of each channel."""
    shape, recipe = (blocks(conv.outputs), BLOCK), f"integer sums {len(conv.made_of)}"
    return lowering.packed(conv.made_of, recipe, shape, "int32", lambda: -packing.pack_bias(conv.weights, None, 1))


def padding_of(lowering: Lowering, conv: IntegerConvolution) -> float:
    """Return the value of lanes beyond the channels.

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
    """Return the value of lanes beyond the channels where all computed numbers are ``unknown``."""
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


Sides = tuple[int, int, int, int]


def with_halo(
    lowering: Lowering, value: Blocked, sides: Sides, filling: Plain, known: int | None, name: str
) -> Blocked:
    """Return a value that lies in a halo of one number: the value itself, or a copy if its halo has another number.

    Args:
        lowering: What the calls are emitted to.
        value: The value.
        sides: Width of the halo: left, top, right, bottom.
        filling: One element of the value's type: the number.
        known: The number if it is known.
        name: The value's name, for reports.
    """
    left, top, right, bottom = map(at_most, sides)  # one that follows from the size is filled as far as any reaches
    sides = left, top, right, bottom
    if not any(sides):
        return value
    owner, _ = value.storage.root()
    wanted = f"of {id(filling.storage)}" if known is None else str(known)
    if owner.halo_value not in (None, wanted):
        value = _copied(lowering, value, name)
        owner = value.storage
    owner.halo_value = wanted
    value.storage.grow_halo(*sides)
    if wanted != ZEROS:
        _fill(lowering, value, sides, filling, name)
    return value


def _copied(lowering: Lowering, value: Blocked, name: str) -> Blocked:
    dtype, count = value.storage.dtype, value.shape[0]
    target = Blocked(OperandStorage("temporary", dtype, value.shape, blocked=True), value.channels, value.padding_value)
    lowering.emit_images(lowering.moving("Copy", dtype), count, (name,), value.window, target.window)
    return target


def _fill(lowering: Lowering, value: Blocked, sides: Sides, filling: Plain, name: str) -> None:
    left, top, right, bottom = sides
    images, count, height, width = value.shape
    strips = (
        ((-left, -top), (left + width + right, top)),
        ((-left, height), (left + width + right, bottom)),
        ((-left, 0), (left, height)),
        ((width, 0), (right, height)),
    )
    make = lowering.moving("Copy", value.storage.dtype)
    for image in lowering.images(images):
        for start, extents in strips:
            if all(extents):
                shape = (count, extents[1], extents[0], 16)
                source = Plain(filling.storage, shape, (0, 0, 0, 0), filling.offset)
                lowering.emit(make, (source, BlockedPhase(value, image, start, extents)), (name,))
