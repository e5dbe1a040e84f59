"""Weights of convolutions into blocks: the schedule.

A block of outputs by a block of inputs is read row by row, as it lies, and transposed in registers, ``EDGE`` by
``EDGE`` elements at a time, into memory that stays in the first-level cache; from there it is stored in whole vectors,
transformed or not.
"""

from __future__ import annotations

from typing import Any

import halide as hl

from opbuild.backend.halide.definition import Definition, variables
from opbuild.backend.halide.division import divide
from opbuild.families.blocked import BLOCK
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine

EDGE = 8
"""Edge of what is transposed in registers: as in ``copy``, faster than 16 even where registers hold 16 elements."""


def schedule(definition: Definition, desc: OpDesc, _machine: Machine) -> None:
    """Schedule it; there are no variants."""
    out, functions, names = definition.outputs[0], definition.functions, definition.variables
    lane, other, block, outer = (names[name] for name in ("lane", "other", "block", "outer"))
    flat, buffer, is_turned = hl.Var("flat"), out.output_buffer(), desc.attrs["turned"]
    from_rows, is_transformed, blocks = "rows" in functions, "points" in functions, functions["blocks"]
    if is_transformed:
        _transform(out, functions, names)
        extents = buffer.dim(1).extent() // BLOCK, buffer.dim(2).extent()
        functions["points"].compute_at(out, flat)
        if from_rows or is_turned:
            blocks.compute_at(out, flat)
    else:
        extents = buffer.dim(buffer.dimensions() - 2).extent(), buffer.dim(buffer.dimensions() - 1).extent()
    if is_turned:
        _transpose(blocks, (lane, other), functions["turned"], (BLOCK, BLOCK), blocks.args()[2:])
    elif from_rows:
        blocks.vectorize(lane)
    # Input channels are the inner loop, so that rows are read on where the last block ended.
    out.fuse(*((outer, block) if is_turned else (block, outer)), flat)
    divide(out, flat, extents[0] * extents[1], definition.tasks)
    if from_rows:
        columns, rows = functions["columns"], functions["rows"]
        columns.compute_at(out, flat)
        o, j = columns.args()
        _transpose(columns, (o, j), rows, (BLOCK, BLOCK * desc.attrs["taps"]), ())
        columns.never_partition_all()
        rows.never_partition_all()
    out.never_partition_all()
    blocks.never_partition_all()


def _transform(out: Any, functions: dict[str, Any], names: dict[str, Any]) -> None:
    """Compute all points of an input channel at once, into near memory; a block of them is stored point by point."""
    lane, other, block, outer, channel, point = (
        names[name] for name in ("lane", "other", "block", "outer", "channel", "point")
    )
    out.split(channel, block, other, BLOCK, hl.TailStrategy.RoundUp).reorder(lane, other, point, block, outer)
    out.vectorize(lane)
    points, half = functions["points"], functions["half"]
    points.vectorize(lane).unroll(point)
    lane, a, kx, *_ = half.args()
    half.compute_at(points, other).vectorize(lane).unroll(a).unroll(kx)


def _transpose(
    function: Any, axes: tuple[Any, Any], source: Any, extents: tuple[int, int], outer: tuple[Any, ...]
) -> None:
    """Store a function along its first axis from squares of ``source``, which are loaded along the second one."""
    xo, xi, yo, yi = variables("xo xi yo yi")
    exact, (x, y), (wide, high) = hl.TailStrategy.RoundUp, axes, extents
    function.bound_extent(x, wide).bound_extent(y, high)
    function.split(x, xo, xi, EDGE, exact).split(y, yo, yi, EDGE, exact).reorder(xi, yi, xo, yo, *outer)
    function.vectorize(xi).unroll(yi)
    source.compute_at(function, xo).bound_extent(x, EDGE).bound_extent(y, EDGE)
    source.reorder(y, x, *outer).reorder_storage(y, x, *outer).vectorize(y).unroll(x)
