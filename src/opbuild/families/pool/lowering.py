"""Pooling of blocked values, one call an image."""

from __future__ import annotations

from typing import Any

from opbuild.families.pool import family as pool
from opbuild.graph.extents import same_shape
from opbuild.graph.types import Node
from opbuild.lowering.context import Lowering
from opbuild.lowering.implementations import ASKED, NotServedError, ask, serves
from opbuild.lowering.windows import Window, each_padding, window_of


@serves("MaxPool", "AveragePool")
def lower_pool(lowering: Lowering, node: Node) -> None:
    """Lower a pool to one of blocked values."""
    kind = "max" if node.op_type == "MaxPool" else "average"
    dtype = lowering.type(node.inputs[0]).dtype
    if not lowering.has_device_kernels(pool.FAMILY.name) and lowering.is_for_device("window"):
        raise NotServedError("the device has kernels of plain values")
    if dtype not in pool.FAMILY.types or (dtype != "float32" and node.op_type != "MaxPool"):
        raise NotServedError(f"{node.op_type} of {dtype}")
    if len(node.outputs) > 1 and node.outputs[1]:
        raise NotServedError("MaxPool with indices")
    window = window_of(lowering, node, tuple(int(k) for k in node.attrs["kernel_shape"]))
    covers = same_shape(window.kernel, window.size) and same_shape(window.out, (1, 1)) and not window.padded
    if covers and window.dilation == (1, 1) and dtype == "float32":
        ask(lowering, (ASKED, "PlanePool"), node, kind)
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
        desc = pool.describe(node.op_type, dtype, _attrs(kind, own, counted), mode)
        lowering.emit_images(desc, source.shape[0], node, source.window, target.window)

    each_padding(lowering, window, emit)


def _attrs(kind: str, window: Window, counted: bool) -> dict[str, Any]:
    """Return the attributes of a pool of a kind; ``counted``: an average counts the padding."""
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
