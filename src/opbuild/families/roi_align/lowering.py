"""Lowering of RoiAlign."""

from __future__ import annotations

import numpy as np

from opbuild.families.roi_align import family as roi_aligns
from opbuild.graph.types import Node
from opbuild.lowering.context import Lowering
from opbuild.lowering.implementations import NotServedError, serves
from opbuild.lowering.strided import broadcast


@serves("RoiAlign")
def roi_align(lowering: Lowering, node: Node) -> None:
    """Lower RoiAlign whose bins have a known number of samples."""
    x, rois, batch = (lowering.type(name) for name in node.inputs)
    mode, samples = node.text("mode", "avg"), int(node.attrs.get("sampling_ratio", 0))
    transformed = node.text("coordinate_transformation_mode", "half_pixel")
    if x.dtype not in roi_aligns.FAMILY.types or rois.dtype != x.dtype or batch.dtype != "int64":
        raise NotServedError(f"RoiAlign of {x.dtype} with regions of {rois.dtype}")
    if samples < 1 or mode not in ("avg", "max"):
        raise NotServedError("RoiAlign with as many samples as a region is large")
    out = lowering.type(node.outputs[0])
    if not x.size or not out.size:
        raise NotServedError("RoiAlign of nothing")
    factor = float(node.attrs.get("spatial_scale", 1.0))
    scale = lowering.packed((), f"number {factor!r}", (1,), x.dtype, lambda: np.array([factor], x.dtype))
    none = lowering.packed((), "zero int32", (), "int32", lambda: np.zeros((), np.int32))
    desc = roi_aligns.describe(mode, transformed == "half_pixel", samples, x.dtype)
    operands = (
        *(lowering.dense(name) for name in node.inputs),
        scale,
        broadcast(none, out.shape[2:]),
        lowering.new_plain(node.outputs[0]),
    )
    lowering.emit(desc, operands, node)
