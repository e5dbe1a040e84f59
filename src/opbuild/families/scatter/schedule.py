"""The schedule of scatters: the tensor is copied as rows of vectors, then updates are written in their order.

Dimensions that every update covers are independent of each other: they are divided among the tasks.
"""

from __future__ import annotations

from typing import Any

import halide as hl

from opbuild.backend.halide import rows
from opbuild.backend.halide.definition import Definition
from opbuild.backend.halide.division import share
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine

LEAST_COLUMNS = 64
"""Elements of a row that one task updates at least: what lies side by side is one core's."""


def schedule(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Schedule a scatter."""
    rows.schedule(definition, desc, machine)
    (out,) = definition.outputs
    stage, index = out.update(0), list(definition.variables.values())
    steps = definition.domains["steps"]
    if desc.attrs["kind"] == "rows":
        column, inner = index[0], hl.Var("inner_column")
        width = int(desc.variant["width"])
        _divide(stage, definition, 0, column, LEAST_COLUMNS)
        if width > 1:
            stage.split(column, column, inner, width, hl.TailStrategy.GuardWithIf).vectorize(inner)
            stage.reorder(inner, column, steps.x, hl.Var("task"))
        else:
            stage.reorder(column, steps.x, hl.Var("task"))
    elif desc.attrs["covers"] and len(index) > 1:
        axis = int(desc.attrs["axis"])
        inside, outside = index[:axis], index[axis + 1 :]
        number = len(index) - 1 if outside else axis - 1
        _divide(stage, definition, number, index[number], 1 if number else LEAST_COLUMNS)
        stage.reorder(*inside, steps.x, *outside, hl.Var("task"))


def _divide(stage: Any, definition: Definition, number: int, loop: Any, least: int) -> None:
    """Divide a dimension of the updates among the tasks; the loop over them is ``task``."""
    extent = definition.outputs[0].output_buffer().dim(number).extent()
    length = hl.max(least, share(extent, definition.tasks))
    stage.split(loop, hl.Var("task"), loop, length, hl.TailStrategy.GuardWithIf).parallel(hl.Var("task"))
