"""Normalisation of rows: how it is computed: a row at a time, three passes over it. No limits."""

from __future__ import annotations

import halide as hl

from opbuild.backend.halide.definition import Definition
from opbuild.backend.halide.lanes import VECTOR, parallel_rows, schedule_lanes
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine


def schedule(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Schedule a normalisation of rows."""
    out = definition.outputs[0]
    functions = definition.functions
    extents = [out.output_buffer().dim(index).extent() for index in (2, 3)]
    rows = [definition.variables["y"], definition.variables["z"]]
    out.vectorize(definition.variables["i"], VECTOR, hl.TailStrategy.GuardWithIf)
    row = parallel_rows(out, rows, extents, definition.tasks)
    for name in ("sum", "squares"):
        if name in functions:
            schedule_lanes(functions[name], out, row)
    for name in ("mean", "factor"):
        if name in functions:
            functions[name].compute_at(out, row)
