"""Gradients of depthwise convolutions' weights: one call for all images and channels."""

from __future__ import annotations

from math import prod

from opbuild.families.blocked import BLOCK, blocks
from opbuild.families.conv_weight_gradient_depthwise import family as depthwise
from opbuild.lowering.context import Lowering
from opbuild.lowering.implementations import serves
from opbuild.lowering.rules.conv_weight_gradient import emit_gradient
from opbuild.lowering.windows import ConvolvedWindows


def _is_depthwise(_lowering: Lowering, conv: ConvolvedWindows) -> bool:
    return conv.is_depthwise


@serves("lowering.WeightGradient", cost=0.5, where=_is_depthwise)
def lower_depthwise(lowering: Lowering, conv: ConvolvedWindows) -> None:
    """Emit the gradient of a depthwise convolution's weights."""
    node, window = conv.node, conv.window
    source, back = lowering.blocked(node.inputs[0], window.halo), lowering.blocked(node.inputs[1])
    result = lowering.new_plain(node.outputs[0])
    variant = lowering.choose(depthwise.FAMILY, window.out, conv.images, window.kernel)
    shape = (blocks(conv.outputs) * BLOCK, prod(window.kernel))
    desc = depthwise.describe(window.kernel, variant)
    emit_gradient(lowering, node, window, desc, source, back, result, shape)
