"""Division of loops among tasks, decided at each call: from the number of tasks wanted, and from the extents.

A task is one contiguous range of a loop: the next operator is divided the same way, so that a core finds what it reads
in its own cache. Wanted is an expression of at least 1; with 1, everything is one task.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import halide as hl

LEAST_BALANCE = 0.7
"""Share of time that cores must work for ranges of one loop to be worth their locality."""


def share(extent: Any, tasks: Any) -> Any:
    """Return the length of the ranges, at least 1, where ``tasks`` of them cover ``extent`` steps, an expression."""
    return hl.max(1, (extent + (tasks - 1)) // tasks)


def balance(extent: Any, tasks: Any) -> Any:
    """Return the share of time that cores work when ``tasks`` of them divide ``extent`` steps, an expression."""
    steps = hl.max(1, extent)
    return hl.cast(hl.Float(32), steps) / hl.cast(hl.Float(32), tasks * ((steps + (tasks - 1)) // tasks))


def divide(function: Any, loop: Any, extent: Any, tasks: Any, outermost: Any | None = None) -> None:
    """Split ``loop`` into ``tasks`` ranges of equal length and run them in parallel, as the outermost loop.

    Args:
        function: The function or stage to schedule.
        loop: The loop to divide; its name stays that of the inner loop.
        extent: Its extent, an expression.
        tasks: How many tasks are wanted, an expression.
        outermost: The loop that is outermost now, if that is not ``loop``.
    """
    task = hl.Var("task")
    function.split(loop, task, loop, share(extent, tasks), hl.TailStrategy.GuardWithIf)
    if outermost is not None:
        function.reorder(outermost, task)
    function.parallel(task)


def divide_two(function: Any, loops: Sequence[Any], lengths: tuple[Any, Any], tail: Any | None = None) -> None:
    """Split the first and the last of some loops into ranges, and make each pair of ranges a task.

    Args:
        function: The function to schedule.
        loops: The outermost loops, outermost last.
        lengths: Lengths of the first one's and of the last one's ranges, at least 1, expressions.
        tail: How the first one's last range ends; by default it is shorter than the others.
    """
    guard = hl.TailStrategy.GuardWithIf
    first, last = hl.Var("first_task"), hl.Var("last_task")
    function.split(loops[0], first, loops[0], lengths[0], guard if tail is None else tail)
    function.split(loops[-1], last, loops[-1], lengths[1], guard)
    task = hl.Var("task")
    function.reorder(*loops, first, last).fuse(first, last, task).parallel(task)


def either(first: Any, extents: tuple[Any, Any], tasks: Any) -> tuple[Any, Any]:
    """Return the lengths of ranges where one of two loops is divided: the first one if ``first``, an expression."""
    whole = [hl.max(1, extent) for extent in extents]
    return hl.select(first, share(extents[0], tasks), whole[0]), hl.select(first, whole[1], share(extents[1], tasks))


def divide_plane(function: Any, row: Any, block: Any, tasks: Any) -> None:
    """Divide a function of (lane, x, row, block), whose outermost loops are ``row`` and then ``block``, among tasks.

    A task is a range of rows, or of blocks, whichever keeps cores busier; one row of one block where neither does.

    Args:
        function: The function to schedule.
        row: The loop over rows.
        block: The loop over channel blocks, the outermost.
        tasks: How many tasks are wanted, an expression.
    """
    buffer = function.output_buffer()
    rows, blocks = buffer.dim(2).extent(), buffer.dim(3).extent()
    by_rows, by_blocks = balance(rows, tasks), balance(blocks, tasks)
    single = hl.max(by_rows, by_blocks) < hl.f32(LEAST_BALANCE)
    lengths = either(by_rows >= by_blocks, (rows, blocks), tasks)
    divide_two(function, (row, block), (hl.select(single, 1, lengths[0]), hl.select(single, 1, lengths[1])))
