"""ConvWeightGradient: one call for all images, from blocked values to weights. PlainWeights: weights out of blocks.

Groups that are whole blocks of channels have a call each; a depthwise convolution is one of all its channels.
"""

from __future__ import annotations

from math import prod

from opbuild.families.blocked import BLOCK, blocks
from opbuild.families.conv_weight_gradient import family as dense
from opbuild.families.conv_weight_gradient_depthwise import family as depthwise
from opbuild.graph.types import Node, TensorType
from opbuild.kernel.opdesc import OpDesc
from opbuild.lowering.context import Lowering, NotServedError, rule
from opbuild.lowering.operands import Blocked, BlockedImageTaps, Plain
from opbuild.lowering.strided import dense_as, narrowed
from opbuild.lowering.windows import Window, window_of


@rule("ConvWeightGradient", domain="opbuild")
def lower_conv_weight_gradient(lowering: Lowering, node: Node) -> None:
    """Lower the gradient of a convolution's weights, of one or two spatial dimensions."""
    data, dy = node.inputs
    if lowering.type(data).dtype not in dense.FAMILY.types:
        raise NotServedError(f"{node.op_type} of {lowering.type(data).dtype}")
    window, groups = window_of(lowering, node, node.attrs["kernel_shape"], dy), int(node.attrs.get("group", 1))
    images, inputs, outputs = lowering.type(data).shape[0], lowering.type(data).shape[1], lowering.type(dy).shape[1]
    is_depthwise = 1 < groups == inputs == outputs
    inner, outer = inputs // groups, outputs // groups
    if not is_depthwise and groups > 1 and (inner % BLOCK or outer % BLOCK):
        raise NotServedError(f"{node.op_type} of groups of {inner} and {outer} channels")
    source, back = lowering.blocked(data, window.halo), lowering.blocked(dy)
    result = lowering.new_plain(node.outputs[0])
    if is_depthwise:
        variant = lowering.choose(depthwise.choose, window.out, images, window.kernel)
        shape = (blocks(outputs) * BLOCK, prod(window.kernel))
        _emit(lowering, node, window, depthwise.describe(window.kernel, variant), source, back, result, shape)
        return
    variant = lowering.choose(dense.choose, window.out, images, inner, outer)
    if node.attrs.get("block"):
        desc = dense.describe(window.kernel, inner, variant, blocked=True)
        lowering.emit(desc, (back.planes(), _taps(window, source), result), node)
        return
    desc, rounded = dense.describe(window.kernel, inner, variant), dense.rounded(inner, outer)
    shape = (rounded[1], rounded[0] * prod(window.kernel))
    if groups == 1:
        _emit(lowering, node, window, desc, source, back, result, shape)
        return
    reads, writes = inner // BLOCK, outer // BLOCK
    for group in range(groups):
        parts = source.part(group * reads, reads), back.part(group * writes, writes)
        _emit(lowering, node, window, desc, *parts, narrowed(result, 0, group * outer, outer), shape)


def _emit(
    lowering: Lowering,
    node: Node,
    window: Window,
    desc: OpDesc,
    source: Blocked,
    back: Blocked,
    result: Plain,
    shape: tuple[int, int],
) -> None:
    """Emit a call that writes rows of ``shape``, each an output channel's weights; those beyond the result are left."""
    kept = (result.shape[0], prod(result.shape[1:]))
    target = dense_as(result, kept) if kept == shape else lowering.temporary(TensorType("float32", shape))
    lowering.emit(desc, (back.planes(), _taps(window, source), target), node)
    if kept != shape:
        lowering.copy(narrowed(narrowed(target, 0, 0, kept[0]), 1, 0, kept[1]), dense_as(result, kept), node.name)


def _taps(window: Window, source: Blocked) -> BlockedImageTaps:
    """Return what each output has read at each tap, of all images."""
    left, top = window.before
    return BlockedImageTaps(source, 0, (-left, -top), window.out, window.stride, window.kernel, window.dilation)


@rule("PlainWeights", domain="opbuild")
def lower_plain_weights(lowering: Lowering, node: Node) -> None:
    """Weights that lie in blocks are read there by convolutions, and become plain if something else reads them."""
    lowering.weight_blocks[node.outputs[0]] = lowering.dense(node.inputs[0])
