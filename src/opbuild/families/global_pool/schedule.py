"""Global pooling of blocked values: the schedule. A task is a range of channel blocks."""

from __future__ import annotations

from opbuild.backend.halide.definition import Definition
from opbuild.backend.halide.rows import divide_loops
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine


def schedule(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Schedule by ``variant``: ``partials``."""
    out, names, functions = definition.outputs[0], definition.variables, definition.functions
    lane, block, partial = names["lane"], names["block"], names["partial"]
    out.vectorize(lane)
    divide_loops(out, [(block, out.output_buffer().dim(1).extent(), 1)], definition.tasks)
    partials, total = functions["partials"], functions["total"]
    whole = definition.domains["whole"]
    partials.compute_at(out, block).vectorize(lane).bound(partial, 0, desc.variant["partials"]).unroll(partial)
    partials.update(0).reorder(lane, partial, whole[0], whole[1]).vectorize(lane).unroll(partial)
    partials.update(1).vectorize(lane)
    total.compute_at(out, block).vectorize(lane)
    total.update().vectorize(lane).unroll(definition.domains["lanes"][0])
