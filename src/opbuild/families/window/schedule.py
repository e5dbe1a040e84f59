"""Pools of plain values: ``lanes`` outputs of a row at a time, planes and slices divided among the tasks.

Variant: ``lanes``. Limits: ``lanes`` <= OW.
"""

from __future__ import annotations

import halide as hl

from opbuild.backend.halide.definition import Definition
from opbuild.backend.halide.lanes import parallel_rows
from opbuild.backend.halide.rows import alone
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine


def schedule(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Schedule a pool."""
    out, found, lanes = definition.outputs[0], definition.functions["found"], desc.variant["lanes"]
    i, j, k, plane = definition.variables.values()
    io, ii = hl.Var("io"), hl.Var("ii")
    out.split(i, io, ii, lanes, hl.TailStrategy.ShiftInwards).reorder(ii, io, j, k, plane).vectorize(ii)
    buffer = out.output_buffer()
    alone(out, definition.tasks)
    parallel_rows(out, [k, plane], [buffer.dim(2).extent(), buffer.dim(3).extent()], definition.tasks)
    taps = [definition.domains["taps"][number] for number in range(3)]
    found.compute_at(out, io).bound_extent(i, lanes).vectorize(i)
    found.update().reorder(i, *taps).vectorize(i)
