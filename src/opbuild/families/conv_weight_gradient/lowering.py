"""Gradients of convolutions' weights: one call for all images, from blocked values to weights.

Groups that are whole blocks of channels have a call each.
"""

from __future__ import annotations

from math import prod

from opbuild.families.blocked import BLOCK
from opbuild.families.conv_weight_gradient import family as dense
from opbuild.lowering.context import Lowering
from opbuild.lowering.implementations import NotServedError, serves
from opbuild.lowering.rules.conv_weight_gradient import emit_gradient
from opbuild.lowering.strided import narrowed
from opbuild.lowering.windows import ConvolvedWindows


@serves("lowering.WeightGradient")
def lower_dense(lowering: Lowering, conv: ConvolvedWindows) -> None:
    """Emit the gradient of the weights of a convolution of one group, or of groups that are whole blocks."""
    node, window, groups = conv.node, conv.window, conv.groups
    inner, outer = conv.inputs // groups, conv.outputs // groups
    if groups > 1 and (inner % BLOCK or outer % BLOCK):
        raise NotServedError(f"{node.op_type} of groups of {inner} and {outer} channels")
    source, back = lowering.blocked(node.inputs[0], window.halo), lowering.blocked(node.inputs[1])
    result = lowering.new_plain(node.outputs[0])
    variant = lowering.choose(dense.FAMILY, window.out, conv.images, inner, outer)
    if node.attrs.get("block"):
        desc = dense.describe(window.kernel, inner, variant, blocked=True)
        lowering.emit(desc, (back.planes(), window.image_taps(source), result), node)
        return
    desc, rounded = dense.describe(window.kernel, inner, variant), dense.rounded(inner, outer)
    shape = (rounded[1], rounded[0] * prod(window.kernel))
    if groups == 1:
        emit_gradient(lowering, node, window, desc, source, back, result, shape)
        return
    reads, writes = inner // BLOCK, outer // BLOCK
    for group in range(groups):
        parts = source.part(group * reads, reads), back.part(group * writes, writes)
        emit_gradient(lowering, node, window, desc, *parts, narrowed(result, 0, group * outer, outer), shape)
