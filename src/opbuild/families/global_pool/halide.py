"""Global average and max pooling of blocked values.

``x (16, W, H, C1)``, ``out (16, C1)``. A row is reduced into ``variant["partials"]`` accumulators, so that additions
do not wait for each other, and what is left of the row into the first of them. In the mode ``high_precision``
an average is added up in float64.

Schedule: a task is a range of channel blocks.
"""

from __future__ import annotations

from operator import add

import halide as hl

from opbuild.backend.halide.definition import Definition, computed, parameter, variables
from opbuild.backend.halide.mathematics import FLOAT32, FLOAT64, maximum
from opbuild.backend.halide.rows import divide_loops
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine


def define(desc: OpDesc) -> Definition:
    """Define it: ``attrs`` has ``kind`` (max, average)."""
    x = parameter(desc.inputs[0])
    lane, block, partial = variables("lane block partial")
    width, height = x.dim(1).extent(), x.dim(2).extent()
    count = desc.variant["partials"]
    average = desc.attrs["kind"] == "average"
    join = add if average else maximum
    kind = FLOAT64 if desc.is_precise else FLOAT32
    start = hl.cast(kind, 0) if average else hl.f32(float("-inf"))
    whole = hl.RDom([(0, width // count), (0, height)], "whole")
    rest = hl.RDom([(0, width % count), (0, height)], "rest")
    lanes = hl.RDom([(0, count)], "lanes")
    partials, total = hl.Func("partials"), hl.Func("total")
    partials[lane, partial, block] = start
    partials[lane, partial, block] = join(
        partials[lane, partial, block], hl.cast(kind, x[lane, whole[0] * count + partial, whole[1], block])
    )
    partials[lane, 0, block] = join(
        partials[lane, 0, block], hl.cast(kind, x[lane, width // count * count + rest[0], rest[1], block])
    )
    total[lane, block] = start
    total[lane, block] = join(total[lane, block], partials[lane, lanes[0], block])
    size = hl.cast(kind, width * height)
    value = hl.cast(FLOAT32, total[lane, block] / size) if average else total[lane, block]
    functions, domains = {"partials": partials, "total": total}, {"whole": whole, "lanes": lanes}
    return computed(desc, [x], (lane, block), value, functions, domains, loops=[partial])


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
