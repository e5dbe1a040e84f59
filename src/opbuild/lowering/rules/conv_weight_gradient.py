"""ConvWeightGradient: the gradient of a convolution's weights, as the families that compute it are asked."""

from __future__ import annotations

from math import prod

from opbuild.graph.types import Node, TensorType
from opbuild.kernel.opdesc import OpDesc
from opbuild.lowering.context import Lowering
from opbuild.lowering.implementations import ASKED, NotServedError, ask, serves
from opbuild.lowering.operands import Blocked, Plain
from opbuild.lowering.strided import dense_as, narrowed
from opbuild.lowering.windows import ConvolvedWindows, Window, window_of


@serves("opbuild.ConvWeightGradient")
def lower_conv_weight_gradient(lowering: Lowering, node: Node) -> None:
    """Lower the gradient of a convolution's weights, of one or two spatial dimensions."""
    data, dy = node.inputs
    if lowering.type(data).dtype != "float32":
        raise NotServedError(f"{node.op_type} of {lowering.type(data).dtype}")
    window, groups = window_of(lowering, node, node.attrs["kernel_shape"], dy), int(node.attrs.get("group", 1))
    images, inputs, outputs = lowering.type(data).shape[0], lowering.type(data).shape[1], lowering.type(dy).shape[1]
    ask(lowering, (ASKED, "WeightGradient"), ConvolvedWindows(node, images, inputs, outputs, groups, window))


def emit_gradient(
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
    lowering.emit(desc, (back.planes(), window.image_taps(source), target), node)
    if kept != shape:
        lowering.copy(narrowed(narrowed(target, 0, 0, kept[0]), 1, 0, kept[1]), dense_as(result, kept), node.name)
