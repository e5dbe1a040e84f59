"""Division of a loop among tasks: one contiguous range a task."""

from __future__ import annotations

from typing import Any

import halide as hl


def divide(function: Any, loop: Any, extent: Any, parts: int, outermost: Any | None = None) -> None:
    """Split ``loop`` into ``parts`` ranges of equal length and run them in parallel, as the outermost loop.

    Args:
        function: The function or stage to schedule.
        loop: The loop to divide; its name stays that of the inner loop.
        extent: Its extent, an expression.
        parts: Number of ranges; 1 leaves the loop as it is.
        outermost: The loop that is outermost now, if that is not ``loop``.
    """
    if parts == 1:
        return
    part = hl.Var("part")
    length = hl.max(1, (extent + (parts - 1)) // parts)
    function.split(loop, part, loop, length, hl.TailStrategy.GuardWithIf)
    if outermost is not None:
        function.reorder(outermost, part)
    function.parallel(part)


def divide_either(
    function: Any,
    loops: tuple[Any, ...],
    extents: tuple[Any, Any],
    first: Any,
    parts: int,
    tail: Any | None = None,
    last_length: Any | None = None,
) -> None:
    """Divide one of two loops among ``parts`` tasks, a range each; which one is decided at each call.

    Args:
        function: The function to schedule.
        loops: The outermost loops, outermost last; the first or the last of them is divided.
        extents: The extents of these two, expressions.
        first: Whether the first one is divided, an expression over the buffers' extents.
        parts: Number of ranges; 1 leaves the loops as they are.
        tail: How the first one's last range ends; by default it is shorter than the others.
        last_length: Length of the last one's ranges, an expression; by default there are ``parts`` of them.
    """
    if parts == 1:
        return
    guard = hl.TailStrategy.GuardWithIf
    tasks = hl.Var("first_part"), hl.Var("last_part")
    shares = [(extent + (parts - 1)) // parts for extent in extents]
    if last_length is not None:
        shares[1] = last_length
    lengths = [hl.select(first, shares[0], extents[0]), hl.select(first, extents[1], shares[1])]
    ends = (guard if tail is None else tail, guard)
    for loop, task, length, end in zip((loops[0], loops[-1]), tasks, lengths, ends, strict=True):
        function.split(loop, task, loop, hl.max(1, length), end)
    part = hl.Var("part")
    function.reorder(*loops, *tasks).fuse(*tasks, part).parallel(part)


def balance(extent: Any, parts: int) -> Any:
    """Return the share of time that cores work when ``parts`` of them divide ``extent`` steps, an expression."""
    steps = hl.max(1, extent)
    return hl.cast(hl.Float(32), steps) / hl.cast(hl.Float(32), parts * ((steps + (parts - 1)) // parts))


def divide_plane(function: Any, row: Any, block: Any, what: str, parts: int) -> None:
    """Divide a function of (lane, x, row, block), whose outermost loops are ``row`` and then ``block``, among tasks.

    Args:
        function: The function to schedule.
        row: The loop over rows.
        block: The loop over channel blocks, the outermost.
        what: ``rows`` or ``blocks``: a range each; ``both``: a task is one row of one block.
        parts: Number of ranges; 1 leaves the loops as they are.
    """
    buffer = function.output_buffer()
    if parts == 1:
        return
    if what == "both":
        task = hl.Var("task")
        function.fuse(row, block, task).parallel(task)
    elif what == "rows":
        divide(function, row, buffer.dim(2).extent(), parts, outermost=block)
    else:
        divide(function, block, buffer.dim(3).extent(), parts)
