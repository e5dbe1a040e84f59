"""Products of a matrix and a vector: how they are computed: one row after the other. No limits."""

from __future__ import annotations

from opbuild.backend.halide.definition import Definition
from opbuild.backend.halide.lanes import parallel_rows, schedule_lanes
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine


def schedule(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Schedule a matrix-vector product."""
    out = definition.outputs[0]
    rows = [definition.variables[name] for name in ("r", "b0", "b1")]
    extents = [out.output_buffer().dim(index).extent() for index in range(3)]
    row = parallel_rows(out, rows, extents, definition.tasks)
    schedule_lanes(definition.functions["dot"], out, row)
