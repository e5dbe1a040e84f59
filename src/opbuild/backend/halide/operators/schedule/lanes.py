"""Reductions along the innermost dimension in vector lanes, computed where they are used; and rows cut into tasks."""

from __future__ import annotations

from typing import Any

import halide as hl

from opbuild.backend.halide.definition import variables
from opbuild.backend.halide.operators.compute.lanes import LANES, VECTOR, LaneReduction

TASKS = 16
"""A parallel loop over rows becomes about as many tasks: the cost of a task is small against its work."""


def schedule_lanes(reduction: LaneReduction, consumer: Any, at: Any, tree: bool = True) -> None:
    """Compute a reduction inside the loop ``at`` of ``consumer``.

    Args:
        reduction: What is computed.
        consumer: The function that uses it.
        at: A variable of its loops.
        tree: Whether Halide knows that the combination is associative, so that lanes can be combined as a tree.
    """
    partial, folded, total = reduction.partial, reduction.folded, reduction.total
    lane = partial.args()[0]
    partial.compute_at(consumer, at).bound_extent(lane, LANES).vectorize(lane, VECTOR).unroll(lane)
    outer = [reduction.chunks[axis] for axis in range(reduction.chunks.dimensions())]
    partial.update().reorder(lane, *outer).vectorize(lane, VECTOR).unroll(lane)
    folded.compute_at(consumer, at).bound_extent(lane, VECTOR).vectorize(lane, VECTOR)
    # Elements of one vector go to different lanes: element modulo the vector's width, and vectors begin at multiples
    # of it.
    tail = folded.update().allow_race_conditions()
    tail.vectorize(reduction.tail[0], VECTOR, hl.TailStrategy.GuardWithIf)
    total.compute_at(consumer, at)
    if tree:
        total.update().atomic().vectorize(reduction.across.x, VECTOR)


def parallel_rows(function: Any, rows: list[Any], extents: list[Any], parallel: bool) -> Any:
    """Fuse the loops over rows into one, perhaps parallel, and return its innermost variable.

    Args:
        function: The function whose loops they are.
        rows: Its variables, innermost first, outermost of its loops.
        extents: Their extents.
        parallel: Whether to cut the rows into tasks.
    """
    fused = rows[0]
    for index, row in enumerate(rows[1:]):
        into = hl.Var(f"rows{index}")
        function.fuse(fused, row, into)
        fused = into
    if not parallel:
        return fused
    task, row = variables("task row")
    count = extents[0]
    for extent in extents[1:]:
        count = count * extent
    function.split(fused, task, row, hl.max(1, (count + TASKS - 1) // TASKS), hl.TailStrategy.GuardWithIf)
    function.parallel(task)
    return row
