"""The way out of channel blocks.

``x (16, W, H, C1)``, ``out (W, H, C)`` of any strides.

Schedule: a vector runs along a row.
"""

from __future__ import annotations

import halide as hl

from opbuild.backend.halide.definition import Definition, computed, parameter, variables
from opbuild.backend.halide.rows import divide_loops
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine


def define(desc: OpDesc) -> Definition:
    """Define it; there are no attributes."""
    x = parameter(desc.inputs[0])
    ox, oy, channel = variables("ox oy channel")
    return computed(desc, [x], (ox, oy, channel), x[channel % 16, ox, oy, channel // 16])


def schedule(definition: Definition, desc: OpDesc, _machine: Machine) -> None:
    """Schedule by ``variant``: ``width``, the positions of a vector."""
    out, names = definition.outputs[0], definition.variables
    if desc.variant["width"] > 1:
        out.vectorize(names["ox"], desc.variant["width"], hl.TailStrategy.ShiftInwards)
    extents = [out.output_buffer().dim(number).extent() for number in (1, 2)]
    loops = [(names["oy"], extents[0], 1), (names["channel"], extents[1], 1)]
    divide_loops(out, loops, definition.tasks)
