"""Depthwise convolutions of 8-bit numbers."""

from __future__ import annotations

from math import prod

from opbuild.families.blocked import BLOCK, blocks
from opbuild.families.conv_integer_depthwise import family as depthwise
from opbuild.lowering import conv_weights as packing
from opbuild.lowering.context import Lowering
from opbuild.lowering.implementations import serves
from opbuild.lowering.rules.conv_integer import ChannelBlocks, IntegerConvolution, begin, operands_of, result_of


def _is_depthwise(_lowering: Lowering, conv: IntegerConvolution) -> bool:
    return conv.is_depthwise and prod(conv.window.kernel) <= depthwise.MOST_TAPS


@serves("lowering.IntegerConvolution", cost=0.25, where=_is_depthwise)
def lower_depthwise(lowering: Lowering, conv: IntegerConvolution) -> None:
    """Emit a convolution whose every channel is a group of its own."""
    source, padding = begin(lowering, conv)
    window, out = conv.window, result_of(lowering, conv)
    variant = lowering.choose(depthwise.FAMILY, window.out[0])
    desc = depthwise.describe(window.kernel, window.stride, window.dilation, conv.epilogue, out, variant)
    shape = (blocks(conv.outputs), window.kernel[1], window.kernel[0], BLOCK)
    weights = lowering.packed(
        conv.made_of, "integer depthwise", shape, "int16", lambda: packing.pack_depthwise(conv.weights, dtype="int16")
    )
    extra, target, bias = operands_of(lowering, conv, padding)
    place = ChannelBlocks(0, 0, True)
    for image in lowering.images(source.shape[0]):
        operands = (place.of(each, image) for each in (bias, *extra, target))
        lowering.emit(desc, [window.read(source, image), weights, *operands], conv.node)
