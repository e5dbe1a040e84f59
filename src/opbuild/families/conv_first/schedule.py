"""Convolution of a plain value with few channels: the schedule.

Each task is one range of the output's rows. It takes ``rows`` of them at a time: it copies the rows that they read,
padding included, and then accumulates tiles of ``width`` positions by ``blocks`` channel blocks in registers. Copying
the inside of a row without a look at its edges is a loop of its own (3 x 3, 24 channels, 112 x 112: 161 us on two cores
against 262).
"""

from __future__ import annotations

import halide as hl

from opbuild.backend.halide.definition import Definition
from opbuild.backend.halide.division import divide
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine

UNROLLED_TAPS = 3
"""Taps of a row that are unrolled: more code is not worth the time to compile it."""


def schedule(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Schedule by ``variant``: ``width``, ``blocks`` and ``rows``."""
    width, blocks, rows = desc.variant["width"], desc.variant["blocks"], desc.variant["rows"]
    out, acc, staged = definition.outputs[0], definition.functions["acc"], definition.functions["staged"]
    lane, ox, oy, block = (definition.variables[name] for name in ("lane", "ox", "oy", "block"))
    xo, xi, bo, bi, yo, yi = (hl.Var(name) for name in ("xo", "xi", "bo", "bi", "yo", "yi"))
    shift = hl.TailStrategy.ShiftInwards
    out.split(ox, xo, xi, width, shift).split(block, bo, bi, blocks, shift)
    out.reorder(lane, bi, xi, xo, bo, oy).vectorize(lane).unroll(bi).unroll(xi).never_partition_all()
    divide(out, oy, out.output_buffer().dim(2).extent(), definition.tasks)
    out.split(oy, yo, yi, rows, hl.TailStrategy.GuardWithIf)
    staged.compute_at(out, yo).vectorize(definition.variables["column"], 16)
    r = definition.domains["r"]
    acc.compute_at(out, xo).vectorize(lane).unroll(block).unroll(ox).bound_extent(ox, width).bound_extent(block, blocks)
    update = acc.update().reorder(lane, block, ox, *(r[axis] for axis in range(3)))
    update.vectorize(lane).unroll(block).unroll(ox)
    if desc.attrs["kernel"][0] <= UNROLLED_TAPS:
        update.unroll(r[0])
