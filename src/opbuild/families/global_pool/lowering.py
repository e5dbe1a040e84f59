"""Pools of whole planes: of blocked values, one call an image."""

from __future__ import annotations

from collections.abc import Callable

from opbuild.families.blocked import BLOCK, blocks
from opbuild.families.global_pool import family as global_pool
from opbuild.graph.types import Node
from opbuild.kernel.opdesc import FREE, Dim, OpDesc, Operand
from opbuild.lowering.context import Lowering
from opbuild.lowering.implementations import NotServedError, ask, serves
from opbuild.lowering.operands import Plain
from opbuild.lowering.windows import image_shape, require_float
from opbuild.platform.records import replace
from opbuild.program import View

BLOCKED_READERS = ("Conv", "ConvTranspose", "MaxPool", "AveragePool")
"""Operators that read the result of a global pool in blocked layout."""


@serves("GlobalMaxPool", "GlobalAveragePool")
def lower_global_pool(lowering: Lowering, node: Node) -> None:
    """Lower a global pool over one or two spatial dimensions."""
    require_float(lowering, node)
    if 0 in image_shape(lowering.type(node.inputs[0]).shape):
        raise NotServedError("an operand is empty")
    if not lowering.has_device_kernels(global_pool.FAMILY.name) and lowering.is_for_device("reduce"):
        axes = list(range(2, len(lowering.type(node.inputs[0]).shape)))
        reduction = "ReduceMax" if node.op_type == "GlobalMaxPool" else "ReduceMean"
        ask(lowering, ("", reduction), node.with_(op_type=reduction, attrs={"axes": axes}))
        return
    plane_pool(lowering, node, "max" if node.op_type == "GlobalMaxPool" else "average")


@serves("lowering.PlanePool")
def plane_pool(lowering: Lowering, node: Node, kind: str) -> None:
    """Emit the pool of whole planes, ``max`` or ``average``, of a node's first input.

    Its output keeps the planes' dimensions, with one element each, unless the channels fill their blocks.
    """
    source = lowering.blocked(node.inputs[0])
    name = node.outputs[0]
    images, channels = lowering.type(name).shape[:2]
    mode = lowering.impl_mode(node, differs=kind == "average")
    desc = global_pool.describe(kind, lowering.choose(global_pool.FAMILY), mode)
    readers = [reader.op_type for reader in lowering.consumers.get(name, [])]
    if channels % BLOCK or any(reader in BLOCKED_READERS for reader in readers):
        blocked = lowering.new_blocked(name, source.padding_value)
        lowering.emit_images(_without_extent(desc), images, node, source.window, blocked.window)
        return
    # One position of whole blocks lies in memory exactly as a plain row of channels.
    plain = lowering.new_plain(name)
    count = blocks(channels)
    for image in lowering.images(images):
        row = Plain(plain.storage, (count, BLOCK), (BLOCK, 1), image * channels)
        lowering.emit(desc, [source.window(image), row], node)


def _without_extent(desc: OpDesc) -> Callable[[tuple[View, ...]], tuple[OpDesc, tuple[View, ...]]]:
    """Return a maker of calls whose output view ``(16, 1, 1, C1)`` is read as ``(16, C1)``."""

    def make(views: tuple[View, ...]) -> tuple[OpDesc, tuple[View, ...]]:
        source, target = views
        lane, _, _, block = target.dims
        if desc.outputs[0].dims[1].stride not in (FREE, block[1]):
            free = Operand("out", "float32", (Dim(BLOCK, 1), Dim()), "NC1HWC0")
            return replace(desc, outputs=(free,)), (source, View(target.buffer, target.offset, (lane, block)))
        return desc, (source, View(target.buffer, target.offset, (lane, block)))

    return make
