"""Convolutions of plain images of few channels: first layers."""

from __future__ import annotations

from opbuild.families.blocked import BLOCK, blocks
from opbuild.families.conv_first import family as first_layer
from opbuild.graph.extents import is_one
from opbuild.lowering import conv_weights as packing
from opbuild.lowering import run_time_weights
from opbuild.lowering.context import Lowering
from opbuild.lowering.epilogue import references
from opbuild.lowering.implementations import serves
from opbuild.lowering.rules.conv import Convolution, keep_unpacked, packed_weights, result_of
from opbuild.lowering.strided import with_inner_stride
from opbuild.lowering.windows import Window, each_padding


def _has_few_channels(lowering: Lowering, conv: Convolution) -> bool:
    is_small = conv.groups == 1 and conv.inputs <= first_layer.MOST_CHANNELS
    return is_small and not lowering.has_blocked(conv.node.inputs[0])


@serves("lowering.Convolution", cost=0.25, where=_has_few_channels)
def lower_first(lowering: Lowering, conv: Convolution) -> None:
    """Emit a convolution that reads a plain image of few channels."""
    window = conv.window
    shape = (blocks(conv.outputs), conv.inputs, window.kernel[1], window.kernel[0], BLOCK)
    weights = packed_weights(lowering, conv, "first", packing.pack_first, shape, run_time_weights.FIRST)
    keep_unpacked(lowering, conv, first_layer.FAMILY.name, weights)
    source = lowering.plain(conv.node.inputs[0])
    if not is_one(source.strides[-1]) and not is_one(source.shape[-1]):
        source = lowering.dense(conv.node.inputs[0])
    bias, result = result_of(lowering, conv)

    def emit(own: Window) -> None:
        variant = lowering.choose(first_layer.FAMILY, own.out[0], conv.outputs)
        desc = first_layer.describe(own.kernel, own.stride, own.dilation, own.before, conv.epilogue, variant)
        for number in lowering.images(conv.images):
            plain = with_inner_stride(source.image(number), 1)
            extra = references(conv.epilogue, lowering, conv.outputs, number)
            lowering.emit(desc, [plain, weights, bias, *extra, result.window(number)], conv.node)

    each_padding(lowering, window, emit)
