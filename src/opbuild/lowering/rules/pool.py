"""Pooling, global pooling and local response normalization: each works on blocked values, one call an image."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opbuild.families.blocked import BLOCK, blocks
from opbuild.families.global_pool import family as global_pool
from opbuild.families.lrn import family as lrn
from opbuild.families.pool import family as pool
from opbuild.graph.extents import same_shape
from opbuild.graph.types import Node
from opbuild.kernel.opdesc import FREE, Dim, OpDesc, Operand
from opbuild.lowering.context import Lowering, NotServedError, rule
from opbuild.lowering.operands import Blocked, OperandRef, Plain
from opbuild.lowering.rules.window import plain_pool
from opbuild.lowering.windows import Window, each_padding, image_shape, window_of
from opbuild.platform.records import replace
from opbuild.program import View

BLOCKED_READERS = ("Conv", "ConvTranspose", "MaxPool", "AveragePool")
"""Operators that read the result of a global pool in blocked layout."""


@rule("MaxPool", "AveragePool")
def lower_pool(lowering: Lowering, node: Node) -> None:
    """Lower a pool: of blocked values where that is possible, else of plain ones."""
    kind = "max" if node.op_type == "MaxPool" else "average"
    try:
        _blocked_pool(lowering, node, kind)
    except NotServedError:
        plain_pool(lowering, node, kind)


def _blocked_pool(lowering: Lowering, node: Node, kind: str) -> None:
    dtype = lowering.type(node.inputs[0]).dtype
    if dtype not in pool.FAMILY.types or (dtype != "float32" and node.op_type != "MaxPool"):
        raise NotServedError(f"{node.op_type} of {dtype}")
    if len(node.outputs) > 1 and node.outputs[1]:
        raise NotServedError("MaxPool with indices")
    window = window_of(lowering, node, tuple(int(k) for k in node.attrs["kernel_shape"]))
    covers = same_shape(window.kernel, window.size) and same_shape(window.out, (1, 1)) and not window.padded
    if covers and window.dilation == (1, 1) and dtype == "float32":
        pool_planes(lowering, node, kind)
        return
    if window.kernel[0] * window.kernel[1] > pool.MOST_TAPS:
        raise NotServedError(f"{node.op_type} over {window.kernel[1]} by {window.kernel[0]} taps")
    counted = bool(node.attrs.get("count_include_pad", 0))
    if kind == "average" and not counted and any(each.misses for each in window.at_paddings()):
        raise NotServedError("AveragePool whose windows may lie in the padding")
    source = lowering.blocked(node.inputs[0])
    target = lowering.new_blocked(node.outputs[0], source.padding_value)
    mode = lowering.impl_mode(node, differs=kind == "average")

    def emit(own: Window) -> None:
        _emit(lowering, node, pool.describe(node.op_type, dtype, _attrs(kind, own, counted), mode), source, target)

    each_padding(lowering, window, emit)


@rule("GlobalMaxPool", "GlobalAveragePool")
def lower_global_pool(lowering: Lowering, node: Node) -> None:
    """Lower a global pool over one or two spatial dimensions."""
    _require_float(lowering, node)
    if 0 in image_shape(lowering.type(node.inputs[0]).shape):
        raise NotServedError("an operand is empty")
    pool_planes(lowering, node, "max" if node.op_type == "GlobalMaxPool" else "average")


@rule("LRN")
def lower_lrn(lowering: Lowering, node: Node) -> None:
    """Lower a local response normalization whose window of channels reaches at most one block to each side."""
    _require_float(lowering, node)
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
    _emit(lowering, node, lrn.describe(attrs, lowering.impl_mode(node)), source, target)


def _attrs(kind: str, window: Window, counted: bool) -> dict[str, Any]:
    """Return what a pool of a kind computes; ``counted``: an average counts the padding."""
    before, after = window.before, (-1, -1)
    if not window.padded:
        edge = "none"
    elif kind == "max" and window.dilation == (1, 1):
        edge = "clamp"
    else:
        edge = "select"
        after = window.after if counted and kind == "average" else after
    return {
        "kind": kind,
        "kernel": window.kernel,
        "stride": window.stride,
        "dilation": window.dilation,
        "before": before,
        "after": after,
        "edge": edge,
    }


def pool_planes(lowering: Lowering, node: Node, kind: str) -> None:
    """Emit the pool of whole planes, ``max`` or ``average``, of a node's first input.

    Its output keeps the planes' dimensions, with one element each, unless the channels fill their blocks.
    """
    source = lowering.blocked(node.inputs[0])
    name = node.outputs[0]
    images, channels = lowering.type(name).shape[:2]
    mode = lowering.impl_mode(node, differs=kind == "average")
    desc = global_pool.describe(kind, lowering.choose(global_pool.choose), mode)
    readers = [reader.op_type for reader in lowering.consumers.get(name, [])]
    if channels % BLOCK or any(reader in BLOCKED_READERS for reader in readers):
        blocked = lowering.new_blocked(name, source.padding_value)
        for image in lowering.images(images):
            lowering.emit(_without_extent(desc), [source.window(image), blocked.window(image)], node)
        return
    # One position of whole blocks lies in memory exactly as a plain row of channels.
    plain = lowering.new_plain(name)
    count = blocks(channels)
    for image in lowering.images(images):
        row = Plain(plain.storage, (count, BLOCK), (BLOCK, 1), image * channels)
        lowering.emit(desc, [source.window(image), row], node)


def _without_extent(desc: OpDesc) -> Callable[[tuple[View, ...]], tuple[OpDesc, tuple[View, ...]]]:
    """Return what makes a call whose output view ``(16, 1, 1, C1)`` is read as ``(16, C1)``."""

    def make(views: tuple[View, ...]) -> tuple[OpDesc, tuple[View, ...]]:
        source, target = views
        lane, _, _, block = target.dims
        if desc.outputs[0].dims[1].stride not in (FREE, block[1]):
            free = Operand("out", "float32", (Dim(BLOCK, 1), Dim()), "NC1HWC0")
            return replace(desc, outputs=(free,)), (source, View(target.buffer, target.offset, (lane, block)))
        return desc, (source, View(target.buffer, target.offset, (lane, block)))

    return make


def _emit(lowering: Lowering, node: Node, desc: OpDesc, source: Blocked, target: Blocked) -> None:
    for image in lowering.images(source.shape[0]):
        operands: list[OperandRef] = [source.window(image), target.window(image)]
        lowering.emit(desc, operands, node)


def _require_float(lowering: Lowering, node: Node) -> None:
    dtype = lowering.type(node.inputs[0]).dtype
    if dtype != "float32":
        raise NotServedError(f"{node.op_type} of {dtype}")
