"""Conv: which family serves a convolution, and its call for each image."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod

import numpy as np

from opbuild.families.blocked import BLOCK, blocks
from opbuild.families.conv import family as direct
from opbuild.families.conv_depthwise import family as depthwise
from opbuild.families.conv_first import family as first_layer
from opbuild.families.conv_grouped import family as grouped
from opbuild.families.epilogue import Epilogue
from opbuild.families.family import Variant
from opbuild.families.weight_blocks import family as weight_blocks
from opbuild.families.winograd import family as winograd
from opbuild.graph.constants import factors_of, numbers_of
from opbuild.graph.extents import example_value, is_one
from opbuild.graph.factors import MODERATE, reach
from opbuild.graph.types import Array, Node, TensorType
from opbuild.kernel.opdesc import HIGH_PRECISION, OpDesc
from opbuild.lowering import conv_weights as packing
from opbuild.lowering import run_time_weights
from opbuild.lowering.context import Lowering, NotServedError, rule
from opbuild.lowering.epilogue import epilogue_of, order_recipe, pack_channels, padding, references
from opbuild.lowering.gates import PRODUCT
from opbuild.lowering.operands import Blocked, BlockedTaps, Gate, OperandRef, Plain
from opbuild.lowering.strided import dense_as, viewed_as, with_inner_stride
from opbuild.lowering.windows import Window, each_padding, image_shape, window_of
from opbuild.platform.records import dataclass, replace


@dataclass(frozen=True)
class Convolution:
    """A convolution, ready to be given to a family.

    Attributes:
        node: The node.
        images: Images of the batch.
        inputs: Input channels.
        outputs: Output channels.
        groups: Groups of channels.
        window: The geometry.
        weights: Name of the weights.
        bias: Name of the bias, or empty.
        epilogue: What is applied to the result.
    """

    node: Node
    images: int
    inputs: int
    outputs: int
    groups: int
    window: Window
    weights: str
    bias: str
    epilogue: Epilogue


@rule("Conv")
def lower_conv(lowering: Lowering, node: Node) -> None:
    """Lower a Conv of one or two spatial dimensions to the fastest family that serves it."""
    if lowering.type(node.inputs[0]).dtype == "float64":
        from opbuild.lowering.rules.conv_product import conv_by_product

        conv_by_product(lowering, node)
        return
    gate = lowering.gates.get(node.inputs[0])
    conv = _conv(lowering, node if gate is None else replace(node, inputs=(gate.data, *node.inputs[1:])))
    window = conv.window
    if conv.groups > 1:
        _grouped(lowering, conv)
        return
    if conv.inputs <= first_layer.MOST_CHANNELS and not lowering.has_blocked(conv.node.inputs[0]):
        _first(lowering, conv)
        return
    taps = window.kernel[0] * window.kernel[1]
    if by_tiles(lowering, conv):
        return
    if direct.worth_pairs(conv.outputs, lowering.machine) and _in_pairs(lowering, conv, taps):
        return
    variant = lowering.choose(direct.choose, window.out, conv.inputs, conv.outputs, taps, False)
    desc = direct.describe(window.kernel, window.stride, window.dilation, conv.epilogue, variant)
    shape = (blocks(conv.outputs), blocks(conv.inputs), *window.kernel[::-1], BLOCK, BLOCK)
    weights = _packed(lowering, conv, "direct", packing.pack_direct, shape, run_time_weights.DIRECT)
    if gate is not None:
        weights = _multiplied(lowering, weights, gate)
    _emit(lowering, conv, desc, weights, taps=True)


def _multiplied(lowering: Lowering, weights: Plain, gate: Gate) -> Plain:
    """Emit the product of weights of 1 x 1 and the factors of input channels, and return it."""
    from opbuild.lowering.rules.elementwise import describe

    target = lowering.temporary(TensorType("float32", weights.shape))
    shape = (*weights.shape[:2], BLOCK, BLOCK)
    make = partial(describe, expression=PRODUCT, dtypes=("float32",) * 3, choose=lowering.choose)
    operands = (dense_as(weights, shape), replace(gate, outputs=shape[0]), dense_as(target, shape))
    lowering.emit(make, operands, (gate.node,))
    return target


def _in_pairs(lowering: Lowering, conv: Convolution, taps: int) -> bool:
    """Emit a convolution of bfloat16 by the instruction for pairs; return whether it is one.

    Weights that a pass made float32 are those of an operator whose input has bfloat16's numbers too.
    """
    window = conv.window
    if numbers_of(lowering.graph.constants, conv.weights) != "bfloat16":
        return False
    if lowering.impl_mode(conv.node) == HIGH_PRECISION:
        return False
    variant = lowering.choose(direct.choose, window.out, conv.inputs, conv.outputs, taps, True)
    desc = direct.describe(window.kernel, window.stride, window.dilation, conv.epilogue, variant, pairs=True)
    shape = (blocks(conv.outputs), blocks(conv.inputs), *window.kernel[::-1], BLOCK // 2, 2 * BLOCK)

    def pack() -> Array:
        array = packing.four_dimensional(np.asarray(lowering.constant(conv.weights)))
        return packing.pack_pairs(array).reshape(shape)

    _emit(lowering, conv, desc, lowering.packed((conv.weights,), "pairs", shape, "bfloat16", pack), taps=True)
    return True


def operands_of(lowering: Lowering, node: Node) -> tuple[str, str, str]:
    """Return the names of a convolution's data, weights and bias, which is empty if there is none.

    Raises:
        NotServedError: If the data are not float32.
    """
    data, weights, bias = (*node.inputs[:3], "")[:3]
    if lowering.type(data).dtype not in direct.FAMILY.types:
        raise NotServedError(f"{node.op_type} of {lowering.type(data).dtype}")
    return data, weights, bias


def _conv(lowering: Lowering, node: Node) -> Convolution:
    data, weights, bias = operands_of(lowering, node)
    shape = lowering.type(weights).shape
    window = window_of(lowering, node, shape[2:])
    images, inputs, _, _ = image_shape(lowering.type(data).shape)
    epilogue = epilogue_of(lowering, node)
    return Convolution(node, images, inputs, shape[0], int(node.attrs.get("group", 1)), window, weights, bias, epilogue)


def _grouped(lowering: Lowering, conv: Convolution) -> None:
    window = conv.window
    kx, ky = window.kernel
    source, order = lowering.ordered(conv.node.inputs[0])
    if conv.groups == conv.inputs == conv.outputs:
        known = all(lowering.is_constant(name) for name in (conv.weights, conv.bias) if name)
        if order is not None and not (known and _keeps_order(lowering, conv)):
            source, order = lowering.blocked(conv.node.inputs[0]), None
        variant = lowering.choose(depthwise.choose, window.out[0])
        desc = depthwise.describe(window.kernel, window.stride, window.dilation, conv.epilogue, variant)
        shape, recipe = (blocks(conv.outputs), ky, kx, BLOCK), f"depthwise{order_recipe(order)}"
        pack = partial(packing.pack_depthwise, order=order)
        weights = _packed(lowering, conv, recipe, pack, shape, run_time_weights.DEPTHWISE)
        _emit(lowering, conv, desc, weights, source=source, order=order)
        return
    variant = lowering.choose(grouped.choose, window.out[0])
    masked = conv.outputs // conv.groups % BLOCK != 0
    desc = grouped.describe(window.kernel, window.stride, window.dilation, conv.epilogue, variant, masked)
    weights = _packed(
        lowering,
        conv,
        "grouped",
        packing.pack_grouped,
        (blocks(conv.outputs), ky, kx, conv.inputs // conv.groups, BLOCK),
        run_time_weights.GROUPED,
    )
    tables = group_tables(lowering, conv.inputs, conv.outputs, conv.groups, order)
    _emit(lowering, conv, desc, weights, *tables, source=source)


def _keeps_order(lowering: Lowering, conv: Convolution) -> bool:
    """Return whether a depthwise convolution may write channels in the order in which it reads them.

    It may if nothing else depends on the channel, and should if only grouped convolutions, which look channels up,
    read the result.
    """
    name = conv.node.outputs[0]
    readers = lowering.consumers.get(name, [])
    if not conv.epilogue.has_scalars_only or name in lowering.graph.outputs:
        return False
    return all(reader.op_type == "Conv" and int(reader.attrs.get("group", 1)) > 1 for reader in readers)


def group_tables(
    lowering: Lowering, inputs: int, outputs: int, groups: int, order: Array | None = None
) -> tuple[Plain, Plain, Plain]:
    """Return the constants that say where the channels of groups lie: operands channel, group and segments."""
    lanes, segments = packing.group_lanes(outputs, groups)
    recipe = f"{outputs} {groups}"
    places = np.arange(inputs, dtype=np.int32) if order is None else order
    return (
        lowering.packed((), f"places {inputs}{order_recipe(order)}", (inputs,), "int32", lambda: places),
        lowering.packed((), f"groups {recipe}", lanes.shape, "int32", lambda: lanes),
        lowering.packed((), f"segments {recipe}", segments.shape, "int32", lambda: segments),
    )


def _first(lowering: Lowering, conv: Convolution) -> None:
    window = conv.window
    shape = (blocks(conv.outputs), conv.inputs, window.kernel[1], window.kernel[0], BLOCK)
    weights = _packed(lowering, conv, "first", packing.pack_first, shape, run_time_weights.FIRST)
    source = lowering.plain(conv.node.inputs[0])
    if not is_one(source.strides[-1]) and not is_one(source.shape[-1]):
        source = lowering.dense(conv.node.inputs[0])
    bias, result = _result(lowering, conv)

    def emit(own: Window) -> None:
        variant = lowering.choose(first_layer.choose, own.out[0], conv.outputs)
        desc = first_layer.describe(own.kernel, own.stride, own.dilation, own.before, conv.epilogue, variant)
        for number in lowering.images(conv.images):
            plain = with_inner_stride(source.image(number), 1)
            extra = references(conv.epilogue, lowering, conv.outputs, number)
            lowering.emit(desc, [plain, weights, bias, *extra, result.window(number)], conv.node)

    each_padding(lowering, window, emit)


def by_tiles(lowering: Lowering, conv: Convolution, turned: bool = False) -> bool:
    """Emit a convolution by Winograd's algorithm; return whether it is worth it.

    Args:
        lowering: The lowering.
        conv: The convolution.
        turned: Whether its weights are a transposed convolution's, which are known only at run time.
    """
    window, known = conv.window, lowering.is_constant(conv.weights) and not turned
    if window.kernel != winograd.KERNEL or window.stride != (1, 1) or window.dilation != (1, 1):
        return False
    variant = _winograd_variant(lowering, conv)
    if variant is None or (known and not _are_ordinary(lowering, conv.weights)):
        return False
    tile = variant["tile"]
    if known:
        shape = ((tile + 2) ** 2, blocks(conv.outputs), blocks(conv.inputs) * BLOCK, BLOCK)
        weights = _packed(lowering, conv, f"winograd {tile}", partial(packing.pack_winograd, tile=tile), shape, ())
    else:
        if example_value(prod(window.out) * conv.images) < weight_blocks.LEAST_POSITIONS:
            return False
        found = run_time_weights.in_blocks(lowering, conv.weights, conv.node.name, turned=turned, tile=tile)
        if found is None:
            return False
        weights = found
    _winograd(lowering, conv, variant, weights)
    return True


def _are_ordinary(lowering: Lowering, weights: str) -> bool:
    """Return whether weights are no sign of inputs near the greatest number, of which the transform makes 100 times."""
    return reach(1 / MODERATE, *factors_of(lowering.graph.constants, weights))


def _winograd_variant(lowering: Lowering, conv: Convolution) -> Variant | None:
    """Return Winograd's variant, or None where the direct convolution is faster."""
    precise = lowering.impl_mode(conv.node) == HIGH_PRECISION
    return lowering.choose(winograd.choose, conv.window.out, conv.inputs, conv.outputs, precise)


def _winograd(lowering: Lowering, conv: Convolution, variant: Variant, weights: Plain) -> None:
    window, desc = conv.window, winograd.describe(conv.epilogue, variant)
    width, height = winograd.rounded(variant, window.out)
    left, top = window.before
    source = lowering.blocked(
        conv.node.inputs[0],
        (left, top, max(0, width + 2 - left - window.size[0]), max(0, height + 2 - top - window.size[1])),
    )
    slack = (0, 0, width - window.out[0], height - window.out[1])

    def rounded(value: Blocked, image: int) -> OperandRef:
        value.storage.grow_halo(*slack)
        return value.window(image, 0, 0, width, height)

    extra = [
        references(conv.epilogue, lowering, conv.outputs, image, partial(rounded, image=image))
        for image in lowering.images(conv.images)
    ]
    bias, result = _result(lowering, conv)
    for image, more in zip(lowering.images(conv.images), extra, strict=True):
        data = source.window(image, left, top, window.out[0] + 2, window.out[1] + 2)
        lowering.emit(desc, [data, weights, bias, *more, rounded(result, image)], conv.node)


def _emit(
    lowering: Lowering,
    conv: Convolution,
    desc: OpDesc,
    weights: Plain,
    *more: OperandRef,
    source: Blocked | None = None,
    order: Array | None = None,
    taps: bool = False,
) -> None:
    """Emit a family that reads a blocked window, or its taps, and writes a blocked value, its channels in ``order``."""
    window = conv.window
    left, top = window.before
    source = source or lowering.blocked(conv.node.inputs[0])
    source.storage.grow_halo(*window.halo)
    extra = [references(conv.epilogue, lowering, conv.outputs, image) for image in lowering.images(conv.images)]
    bias, result = _result(lowering, conv, order)
    for image, other in zip(lowering.images(conv.images), extra, strict=True):
        data: OperandRef = source.window(image, left, top, *window.span)
        if taps:
            data = BlockedTaps(source, image, (-left, -top), window.out, window.stride, window.kernel, window.dilation)
        lowering.emit(desc, [data, weights, bias, *more, *other, result.window(image)], conv.node)


def _result(lowering: Lowering, conv: Convolution, order: Array | None = None) -> tuple[Plain, Blocked]:
    """Return the packed bias and the place of the result."""
    fill, beyond = padding(conv.epilogue, lowering, conv.outputs)
    bias = pack_channels(lowering, conv.bias, conv.outputs, fill, order)
    return bias, lowering.new_blocked(conv.node.outputs[0], beyond, order)


def _packed(
    lowering: Lowering,
    conv: Convolution,
    recipe: str,
    pack: Callable[[Array, Array | None], Array],
    shape: tuple[int, ...],
    layout: Sequence[run_time_weights.Place],
) -> Plain:
    """Return the weights as a family reads them, packed now or, if they are not known, by copies at each call."""
    if not lowering.is_constant(conv.weights):
        by_kernel = layout is run_time_weights.DIRECT
        found = run_time_weights.in_blocks(lowering, conv.weights, conv.node.name) if by_kernel else None
        if found is not None:
            return found
        weights = lowering.plain(conv.weights)
        co, ci, *taps = weights.shape
        flat = weights if len(taps) == 2 else viewed_as(weights, (co, ci, 1, *taps), _with_row(weights.strides))
        return run_time_weights.packed(lowering, flat, layout, conv.node.name)

    def late() -> Array:
        array, factors = factors_of(lowering.graph.constants, conv.weights)
        four = packing.four_dimensional
        return pack(four(np.asarray(array)), None if factors is None else four(factors))

    return lowering.packed((conv.weights,), recipe, shape, "float32", late)


def _with_row(strides: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of weights of one spatial dimension with those of a height of 1."""
    return (*strides[:2], 0, *strides[2:])
