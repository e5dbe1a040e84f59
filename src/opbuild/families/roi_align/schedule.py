"""The schedule of RoiAlign: the places of a region once for all its channels, regions and channels among the tasks."""

from __future__ import annotations

from opbuild.backend.halide.definition import Definition
from opbuild.backend.halide.lanes import parallel_rows
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine


def schedule(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Schedule a RoiAlign."""
    (out,) = definition.outputs
    i, _, c, r = definition.variables.values()
    buffer = out.output_buffer()
    parallel_rows(out, [c, r], [buffer.dim(2).extent(), buffer.dim(3).extent()], definition.tasks)
    for name in "xy":
        definition.functions[name].compute_at(out, r)
    found = definition.functions["found"]
    found.compute_at(out, i)
