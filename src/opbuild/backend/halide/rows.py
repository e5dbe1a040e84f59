"""Schedules of kernels that compute one element at a time over rows."""

from __future__ import annotations

from typing import Any

import halide as hl

from opbuild.backend.halide.definition import Definition
from opbuild.kernel.machine import Machine
from opbuild.kernel.opdesc import OpDesc

TASKS = 16
"""Tasks of a parallel loop at most: enough for the cores to finish together, few enough to cost nothing."""

LEAST_ROW = 4096
"""Elements of a single row that are worth a task."""


def schedule(definition: Definition, desc: OpDesc, _machine: Machine) -> None:
    """Vectorise the innermost loop, and run the outermost one in parallel, by ``variant``: ``width``, ``parallel``.

    The last vector of a row overlaps the one before it, which is right because no output is read. There are at least
    ``width`` elements in a row; a width of 1 leaves the loop as it is.
    """
    function, names = definition.outputs[0], list(definition.variables.values())
    width, parallel = int(desc.variant["width"]), bool(desc.variant["parallel"])
    buffer = function.output_buffer()
    if parallel and len(names) > 1:
        outer = names[-1]
        task = hl.Var("task")
        extent = buffer.dim(len(names) - 1).extent()
        function.split(outer, task, outer, hl.max(1, (extent + TASKS - 1) // TASKS), hl.TailStrategy.GuardWithIf)
        function.parallel(task)
    elif parallel:
        _parallel_row(function, names[0], buffer.dim(0).extent(), width)
        return
    if width > 1:
        function.vectorize(names[0], width, hl.TailStrategy.ShiftInwards)


def _parallel_row(function: Any, x: Any, extent: Any, width: int) -> None:
    task, inner = hl.Var("task"), hl.Var("inner")
    vectors = (extent + width - 1) // width
    share = hl.max(LEAST_ROW // width, (vectors + TASKS - 1) // TASKS)
    if width > 1:
        function.split(x, x, inner, width, hl.TailStrategy.ShiftInwards).vectorize(inner)
    function.split(x, task, x, share, hl.TailStrategy.GuardWithIf).parallel(task)
