"""Local response normalization of blocked values, one call an image."""

from __future__ import annotations

from opbuild.families.blocked import BLOCK
from opbuild.families.lrn import family as lrn
from opbuild.graph.types import Node
from opbuild.lowering.context import Lowering
from opbuild.lowering.implementations import NotServedError, serves
from opbuild.lowering.windows import image_shape, require_float


@serves("LRN")
def lower_lrn(lowering: Lowering, node: Node) -> None:
    """Lower a local response normalization whose window of channels reaches at most one block to each side."""
    require_float(lowering, node)
    _, channels, _, _ = image_shape(lowering.type(node.inputs[0]).shape)
    size = int(node.attrs["size"])
    if size > lrn.MOST_CHANNELS:
        raise NotServedError(f"LRN over {size} channels")
    if channels % BLOCK and lowering.has_blocked(node.inputs[0]) and lowering.blocked(node.inputs[0]).padding_value:
        raise NotServedError("LRN of channels that do not fill their blocks with zeros")
    source = lowering.blocked(node.inputs[0])
    target = lowering.new_blocked(node.outputs[0])
    attrs = {
        "size": size,
        "alpha": float(node.attrs.get("alpha", 1e-4)),
        "beta": float(node.attrs.get("beta", 0.75)),
        "bias": float(node.attrs.get("bias", 1.0)),
    }
    desc = lrn.describe(attrs, lowering.impl_mode(node))
    lowering.emit_images(desc, source.shape[0], node, source.window, target.window)
