"""Lowering of GridSample."""

from __future__ import annotations

from math import prod

from opbuild.families.grid_sample import family as grid_samples
from opbuild.families.layouts import TAPS
from opbuild.graph.types import Node
from opbuild.lowering.context import Lowering
from opbuild.lowering.implementations import NotServedError, serves
from opbuild.lowering.strided import dense_as

_MODES = {"bilinear": "linear", "bicubic": "cubic"}
"""Names of modes before operator set 20."""


@serves("GridSample")
def grid_sample(lowering: Lowering, node: Node) -> None:
    """Lower GridSample of images of two or three dimensions."""
    x, grid = (lowering.type(name) for name in node.inputs)
    rank = len(x.shape) - 2
    mode = node.text("mode", "linear")
    mode = _MODES.get(mode, mode)
    padding = node.text("padding_mode", "zeros")
    if x.dtype not in grid_samples.FAMILY.types or grid.dtype != x.dtype:
        raise NotServedError(f"GridSample of {x.dtype} by {grid.dtype}")
    if rank not in (2, 3) or mode not in TAPS or padding not in ("zeros", "border", "reflection"):
        raise NotServedError(f"GridSample in mode {mode}, with padding {padding}, over {rank} dimensions")
    if not x.size or not grid.size:
        raise NotServedError("GridSample of nothing")
    images, channels, places = x.shape[0], x.shape[1], prod(grid.shape[1:-1])
    variant = lowering.choose(grid_samples.FAMILY, places)
    aligned = bool(node.attrs.get("align_corners", 0))
    desc = grid_samples.describe(rank, mode, padding, aligned, x.dtype, variant)
    operands = (
        lowering.dense(node.inputs[0]),
        dense_as(lowering.dense(node.inputs[1]), (images, places, rank)),
        dense_as(lowering.new_plain(node.outputs[0]), (images, channels, places)),
    )
    lowering.emit(desc, operands, node)
