"""Grouped convolution of blocked values: the schedule.

As for a dense convolution, but a tile has one channel block: neighbouring blocks read different inputs.
"""

from __future__ import annotations

from typing import Any

import halide as hl

from opbuild.backend.halide.definition import Definition
from opbuild.backend.halide.division import divide_plane
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine


def schedule(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Schedule by ``variant``: ``width``."""
    accumulate(definition, desc)


def accumulate(definition: Definition, desc: OpDesc) -> Any:
    """Keep ``width`` positions of a row in registers while the input passes; return the last accumulation."""
    width = desc.variant["width"]
    out, acc, domains = definition.outputs[0], definition.functions["acc"], definition.domains.values()
    lane, ox, oy, block = (definition.variables[name] for name in ("lane", "ox", "oy", "block"))
    xo, xi = hl.Var("xo"), hl.Var("xi")
    out.split(ox, xo, xi, width, hl.TailStrategy.ShiftInwards).reorder(lane, xi, xo, oy, block)
    out.vectorize(lane).unroll(xi)
    divide_plane(out, oy, block, definition.tasks)
    acc.compute_at(out, xo).vectorize(lane).unroll(ox).bound_extent(ox, width)
    for number, domain in enumerate(domains):
        loops = (domain[axis] for axis in range(domain.dimensions()))
        acc.update(number).reorder(lane, ox, *loops).vectorize(lane).unroll(ox)
    return acc.update()
