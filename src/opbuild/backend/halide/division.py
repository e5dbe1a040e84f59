"""Division of loops among tasks, decided at each call: from the number of tasks wanted, and from the extents.

A task is one contiguous range of a loop: the next operator is divided the same way, so that a core finds what it reads
in its own cache. Wanted is an expression of at least 1; with 1, everything is one task.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import halide as hl

from opbuild.backend.halide.definition import Definition
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine

TENTHS = 7
"""Tenths of the time that cores must work for ranges of one loop to be worth their locality."""

FINER = 4
"""Tasks for each one wanted, at least where there are as many, if ranges of one loop do not keep cores busy."""


def share(extent: Any, tasks: Any) -> Any:
    """Return the length of the ranges, at least 1, where ``tasks`` of them cover ``extent`` steps, an expression."""
    return hl.max(1, (extent + (tasks - 1)) // tasks)


def balance(extent: Any, tasks: Any) -> Any:
    """Return the share of time that cores work when ``tasks`` of them divide ``extent`` steps, an expression."""
    steps = hl.max(1, extent)
    return hl.cast(hl.Float(32), steps) / hl.cast(hl.Float(32), tasks * ((steps + (tasks - 1)) // tasks))


def is_as_even(first: Any, second: Any, tasks: Any, worth: Any = 1) -> Any:
    """Return whether ranges of the first loop keep cores at least ``worth`` times as busy as those of the second.

    It is ``balance`` of both without its divisions, which are part of every index and so compiled many times.

    Args:
        first: Steps of the first loop, an expression.
        second: Steps of the second one.
        tasks: How many tasks are wanted, an expression.
        worth: The factor, an expression or a number.
    """
    one, other = (hl.cast(hl.Float(32), extent) for extent in (first, second))
    lengths = [hl.cast(hl.Float(32), share(extent, tasks)) for extent in (first, second)]
    return other * lengths[0] * worth <= one * lengths[1]


def divide(function: Any, loop: Any, extent: Any, tasks: Any) -> None:
    """Split ``loop``, the outermost, into ``tasks`` ranges of equal length and run them in parallel.

    Args:
        function: The function or stage to schedule.
        loop: The loop to divide; its name stays that of the inner loop.
        extent: Its extent, an expression.
        tasks: How many tasks are wanted, an expression.
    """
    task = hl.Var("task")
    function.split(loop, task, loop, share(extent, tasks), hl.TailStrategy.GuardWithIf)
    function.parallel(task)


def divide_two(function: Any, loops: Sequence[Any], lengths: tuple[Any, Any]) -> None:
    """Split the first and the last of some loops into ranges, and make each pair of ranges a task.

    Args:
        function: The function to schedule.
        loops: The outermost loops, outermost last.
        lengths: Lengths of the first one's and of the last one's ranges, at least 1, expressions.
    """
    guard = hl.TailStrategy.GuardWithIf
    first, last = hl.Var("first_task"), hl.Var("last_task")
    function.split(loops[0], first, loops[0], lengths[0], guard)
    function.split(loops[-1], last, loops[-1], lengths[1], guard)
    task = hl.Var("task")
    function.reorder(*loops, first, last).fuse(first, last, task).parallel(task)


def either(first: Any, extents: tuple[Any, Any], tasks: Any) -> tuple[Any, Any]:
    """Return the lengths of ranges where one of two loops is divided: the first one if ``first``, an expression."""
    whole = [hl.max(1, extent) for extent in extents]
    return hl.select(first, share(extents[0], tasks), whole[0]), hl.select(first, whole[1], share(extents[1], tasks))


def either_or_both(first: Any, extents: tuple[Any, Any], tasks: Any) -> tuple[Any, Any]:
    """Return the lengths of ranges where one of two loops is divided, or both if neither keeps all cores busy.

    Then the second loop is divided into single steps and the first so that there are ``FINER`` tasks for each one
    wanted, as far as there are so many steps: threads take the next ones as they come, each from its own end, and so
    keep to steps of the second loop.

    Args:
        first: Whether the first is the one that is divided, an expression.
        extents: The extents of both, expressions.
        tasks: How many tasks are wanted, an expression.
    """
    uneven = [extent * 10 < tasks * share(extent, tasks) * TENTHS for extent in extents]
    neither = uneven[0] & uneven[1]
    one, other = either(first, extents, tasks)
    return hl.select(neither, hl.max(1, extents[0] * extents[1] // (tasks * FINER)), one), hl.select(neither, 1, other)


def schedule_plane(definition: Definition, _desc: OpDesc, _machine: Machine) -> None:
    """Schedule a kernel of blocked values as convolutions are; a vector is the 16 lanes of one position."""
    out, names = definition.outputs[0], definition.variables
    out.vectorize(names["lane"])
    divide_plane(out, names["oy"], names["block"], definition.tasks)


def divide_plane(function: Any, row: Any, block: Any, tasks: Any) -> None:
    """Divide a function of (lane, x, row, block), whose outermost loops are ``row`` and then ``block``, among tasks.

    A task is a range of rows, or of blocks, whichever keeps cores busier; rows of one block where neither does.

    Args:
        function: The function to schedule.
        row: The loop over rows.
        block: The loop over channel blocks, the outermost.
        tasks: How many tasks are wanted, an expression.
    """
    extents = tuple(function.output_buffer().dim(axis).extent() for axis in (2, 3))
    by_rows = is_as_even(extents[0], extents[1], tasks)
    divide_two(function, (row, block), either_or_both(by_rows, extents, tasks))
