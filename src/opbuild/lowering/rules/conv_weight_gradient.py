"""ConvWeightGradient: one call for all images, from blocked values to weights. PlainWeights: weights out of blocks."""

from __future__ import annotations

from math import prod

from opbuild.families.blocked import BLOCK
from opbuild.families.conv_weight_gradient import family as gradient
from opbuild.graph.types import Node, TensorType
from opbuild.lowering.context import Lowering, NotServedError, rule
from opbuild.lowering.operands import BlockedImageTaps
from opbuild.lowering.strided import dense_as, narrowed, transposed
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
    planes, result, count = lowering.blocked(dy).planes(), lowering.new_plain(node.outputs[0]), prod(window.kernel)
    block, rounded = node.attrs.get("block", 0), gradient.rounded(inputs, outputs)
    if block:
        desc = gradient.describe(window.kernel, inputs, variant, blocked=True)
        if block == BLOCK and lowering.may_call(desc):
            lowering.emit(desc, (planes, taps, result), node)
            return
    target = result
    if block or rounded != (inputs, outputs):
        target = lowering.temporary(TensorType("float32", (rounded[1], rounded[0] * count)))
    written = dense_as(target, (rounded[1], rounded[0] * count))
    lowering.emit(gradient.describe(window.kernel, inputs, variant), (planes, taps, written), node)
    if block:
        rows = dense_as(written, (outputs // block, block, inputs // block, block, *result.shape[2:-2]))
        lowering.copy(transposed(rows, (0, 2, *range(4, len(rows.shape)), 3, 1)), result, node.name)
    elif target is not result:
        kept = narrowed(narrowed(written, 0, 0, outputs), 1, 0, inputs * count)
        lowering.copy(kept, dense_as(result, kept.shape), node.name)


@rule("PlainWeights", domain="opbuild")
def lower_plain_weights(lowering: Lowering, node: Node) -> None:
    """Weights that lie in blocks are read there by convolutions, and become plain if something else reads them."""
    lowering.weight_blocks[node.outputs[0]] = lowering.dense(node.inputs[0])
