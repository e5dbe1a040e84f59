"""Schedules of kernels that compute one element at a time over rows, and how rows are divided among tasks."""

from __future__ import annotations

from typing import Any

import halide as hl

from opbuild.backend.halide.definition import Definition
from opbuild.kernel.machine import Machine
from opbuild.kernel.opdesc import OpDesc

RANGES = 4
"""Ranges of a loop for each task that a call is divided into: who finishes early takes a part of another's share."""

LEAST_ROW = 4096
"""Elements of a single row that are worth a task."""


def range_length(extent: Any, tasks: Any) -> Any:
    """Return the length of the ranges into which a loop is divided, an expression: all of it for one task."""
    ranges = hl.select(tasks == 1, 1, RANGES * tasks)
    return hl.max(1, (extent + ranges - 1) // ranges)


def schedule(definition: Definition, desc: OpDesc, _machine: Machine) -> None:
    """Vectorise the innermost loop by ``variant``, ``width``, and divide the outermost one among the tasks.

    The last vector of a row overlaps the one before it, which is right because no output is read. There are at least
    ``width`` elements in a row; a width of 1 leaves the loop as it is.
    """
    function, names, tasks = definition.outputs[0], list(definition.variables.values()), definition.tasks
    width = int(desc.variant["width"])
    buffer = function.output_buffer()
    if len(names) == 1:
        _divide_row(function, names[0], buffer.dim(0).extent(), width, tasks)
        return
    outer, task = names[-1], hl.Var("task")
    length = range_length(buffer.dim(len(names) - 1).extent(), tasks)
    function.split(outer, task, outer, length, hl.TailStrategy.GuardWithIf).parallel(task)
    if width > 1:
        function.vectorize(names[0], width, hl.TailStrategy.ShiftInwards)


def _divide_row(function: Any, x: Any, extent: Any, width: int, tasks: Any) -> None:
    task, inner = hl.Var("task"), hl.Var("inner")
    length = hl.max(LEAST_ROW // width, range_length((extent + width - 1) // width, tasks))
    if width > 1:
        function.split(x, x, inner, width, hl.TailStrategy.ShiftInwards).vectorize(inner)
    function.split(x, task, x, length, hl.TailStrategy.GuardWithIf).parallel(task)
