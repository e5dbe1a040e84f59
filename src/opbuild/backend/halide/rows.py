"""Schedules of kernels that compute one element at a time over rows, and how nested loops are divided among tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import halide as hl

from opbuild.backend.halide.definition import Definition
from opbuild.backend.halide.division import share
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine

RANGES = 4
"""Ranges for each task that a call asks for: whose core is slower leaves a part of its share to the others."""

LEAST_ROW = 4096
"""Elements of the shortest range of a row."""

Loop = tuple[Any, Any, int]
"""A loop's variable, its extent (an expression), and the least length of its ranges."""


def divide_loops(function: Any, loops: Sequence[Loop], tasks: Any) -> None:
    """Divide the two innermost of some loops into ranges, ``RANGES`` for each task: one range if there is one task.

    The outer one is divided first; where it has fewer steps than ranges are wanted, so is the inner one. What else is
    scheduled of the function must be scheduled before.

    Args:
        function: The function to schedule.
        loops: The outermost loops, outermost last; their names stay those of the inner loops.
        tasks: How many tasks are wanted, an expression.
    """
    wanted = hl.select(tasks == 1, 1, RANGES * tasks)
    ranges = []
    for number, (loop, extent, least) in reversed(list(enumerate(loops[:2]))):
        ranges.append(hl.Var(f"range{number}"))
        length = share(extent, wanted)
        function.split(
            loop, ranges[-1], loop, hl.max(least, length) if least > 1 else length, hl.TailStrategy.GuardWithIf
        )
        wanted = wanted // hl.clamp(extent, 1, wanted)
    task, *outer = reversed(ranges)
    function.reorder(*(loop for loop, _, _ in loops), task, *outer)
    for number, loop in enumerate(outer):
        function.fuse(task, loop, task := hl.Var(f"task{number}"))
    # Compiling takes 5 to 15% less without copies of loops for their ends, and ranges are long.
    function.parallel(task).never_partition_all()


def alone(function: Any, tasks: Any) -> None:
    """Give a function a way of its own for one task, as it is scheduled so far, without parallel loop.

    A parallel loop of one task costs 10 to 35 ns, as much as whole calls on a few hundred elements. The second copy of
    the code takes 5 to 25 ms to compile: not worth it where the code is large.
    """
    function.specialize(tasks == 1)


def schedule(definition: Definition, desc: OpDesc, _machine: Machine) -> None:
    """Vectorise the innermost loop by ``variant``, ``width``, and divide the two outermost ones among the tasks.

    The last vector of a row overlaps the one before it, which is right because no output is read. There are at least
    ``width`` elements in a row; a width of 1 leaves the loop as it is.
    """
    function, names = definition.outputs[0], list(definition.variables.values())
    width = int(desc.variant["width"])
    extents = [function.output_buffer().dim(index).extent() for index in range(len(names))]
    if width > 1:
        inner = hl.Var("inner")
        function.split(names[0], names[0], inner, width, hl.TailStrategy.ShiftInwards).vectorize(inner)
    row = (names[0], (extents[0] + width - 1) // width, LEAST_ROW // width)
    outer = [(name, extent, 1) for name, extent in zip(names[1:], extents[1:], strict=True)]
    alone(function, definition.tasks)
    divide_loops(function, [row, *outer][-2:], definition.tasks)
