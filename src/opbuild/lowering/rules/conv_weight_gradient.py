"""ConvWeightGradient: one call for all images, from blocked values to weights as they lie in the graph."""

from __future__ import annotations

from math import prod

from opbuild.families.conv_weight_gradient import family as gradient
from opbuild.graph.types import Node, TensorType
from opbuild.lowering.context import Lowering, NotServedError, rule
from opbuild.lowering.operands import BlockedImageTaps
from opbuild.lowering.strided import dense_as, narrowed
from opbuild.lowering.windows import window_of


@rule("ConvWeightGradient", domain="opbuild")
def lower_conv_weight_gradient(lowering: Lowering, node: Node) -> None:
    """Lower the gradient of a convolution's weights, of one or two spatial dimensions."""
    data, dy = node.inputs
    if lowering.type(data).dtype not in gradient.FAMILY.types:
        raise NotServedError(f"{node.op_type} of {lowering.type(data).dtype}")
    window = window_of(lowering, node, node.attrs["kernel_shape"], dy)
    images, inputs, outputs = lowering.type(data).shape[0], lowering.type(data).shape[1], lowering.type(dy).shape[1]
    variant = lowering.choose(gradient.choose, window.out, images, inputs, outputs)
    source = lowering.blocked(data, window.halo)
    left, top = window.before
    taps = BlockedImageTaps(source, 0, (-left, -top), window.out, window.stride, window.kernel, window.dilation)
    planes = lowering.blocked(dy).planes()
    result, rounded = lowering.new_plain(node.outputs[0]), gradient.rounded(inputs, outputs)
    count = prod(window.kernel)
    target = result
    if rounded != (inputs, outputs):
        target = lowering.temporary(TensorType("float32", (rounded[1], rounded[0] * count)))
    written = dense_as(target, (rounded[1], rounded[0] * count))
    lowering.emit(gradient.describe(window.kernel, inputs, variant), (planes, taps, written), node)
    if target is not result:
        kept = narrowed(narrowed(written, 0, 0, outputs), 1, 0, inputs * count)
        lowering.copy(kept, dense_as(result, kept.shape), node.name)
