"""Convolutions of 8-bit numbers by the direct algorithm."""

from __future__ import annotations

from functools import partial
from math import prod

from opbuild.families.blocked import BLOCK, blocks
from opbuild.families.conv_integer import family as dense
from opbuild.lowering import conv_weights as packing
from opbuild.lowering.context import Lowering
from opbuild.lowering.conv_weights import WeightSlice
from opbuild.lowering.implementations import NotServedError, serves
from opbuild.lowering.operands import Plain
from opbuild.lowering.rules.conv_integer import ChannelBlocks, IntegerConvolution, begin, operands_of, result_of


@serves("lowering.IntegerConvolution")
def lower_dense(lowering: Lowering, conv: IntegerConvolution) -> None:
    """Emit one call for each image and each part of a grouped convolution."""
    count = prod(conv.weights.shape[1:])
    if count > dense.MOST_PRODUCTS:
        raise NotServedError(f"{conv.node.op_type} whose sums of {count} products may leave int32")
    source, padding = begin(lowering, conv)
    window, out = conv.window, result_of(lowering, conv)
    dtype = packing.element_type(conv.weights)
    halves = dense.in_halves(packing.largest(conv.weights), lowering.machine)
    adjacent = dense.adjacent(dtype, halves, lowering.machine)
    parts = tuple(packing.parts(conv.inputs, conv.outputs, conv.groups))
    extra, target, bias = operands_of(lowering, conv, padding)
    for part in parts:
        steps = -(-part.inputs[1] // adjacent) if part.inputs[1] <= BLOCK else BLOCK // adjacent
        added = prod(window.kernel) * -(-part.inputs[1] // (adjacent * steps)) * steps
        variant = lowering.choose(dense.FAMILY, window.out, part.outputs[1], added)
        desc = dense.describe(
            window.kernel, window.stride, window.dilation, (dtype, adjacent, steps), halves, conv.epilogue, out, variant
        )
        weights = _packed_weights(lowering, conv, part, (dtype, adjacent, steps))
        first, reads = part.inputs[0] // BLOCK, blocks(part.inputs[1])
        data = source if len(parts) == 1 else source.part(first, reads)
        place = ChannelBlocks(part.outputs[0] // BLOCK, blocks(part.outputs[1]), len(parts) == 1)
        for image in lowering.images(source.shape[0]):
            operands = (place.of(each, image) for each in (bias, *extra, target))
            lowering.emit(desc, [window.taps(data, image), weights, *operands], conv.node)


def _packed_weights(
    lowering: Lowering, conv: IntegerConvolution, part: WeightSlice, form: tuple[str, int, int]
) -> Plain:
    dtype, adjacent, steps = form
    shape = (
        blocks(part.outputs[1]), -(-part.inputs[1] // (adjacent * steps)), *conv.window.kernel[::-1],
        steps, BLOCK, adjacent,
    )  # fmt: skip
    recipe = f"integer {adjacent} {steps} groups {part.first} {part.count}"
    pack = partial(packing.pack_dense, conv.weights, part, adjacent, steps, dtype)
    return lowering.packed(conv.made_of, recipe, shape, dtype, pack)
