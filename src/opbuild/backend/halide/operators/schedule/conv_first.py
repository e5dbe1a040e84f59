"""Convolution of a plain value with few channels: the schedule.

A task is ``rows`` rows of the output; it copies the rows that it reads, padding included, and then accumulates tiles of
``width`` positions by ``blocks`` channel blocks in registers.
"""

from __future__ import annotations

from typing import Any

import halide as hl

from opbuild.backend.halide.definition import Definition
from opbuild.kernel.opdesc import OpDesc


def schedule(definition: Definition, desc: OpDesc, target: Any) -> None:
    """Schedule by ``variant``: ``width``, ``blocks``, ``rows`` and ``parallel``."""
    width, blocks, rows = desc.variant["width"], desc.variant["blocks"], desc.variant["rows"]
    out, acc, staged = definition.outputs[0], definition.functions["acc"], definition.functions["staged"]
    lane, ox, oy, block = (definition.variables[name] for name in ("lane", "ox", "oy", "block"))
    xo, xi, bo, bi, yo, yi = (hl.Var(name) for name in ("xo", "xi", "bo", "bi", "yo", "yi"))
    shift = hl.TailStrategy.ShiftInwards
    out.split(ox, xo, xi, width, shift).split(block, bo, bi, blocks, shift)
    out.split(oy, yo, yi, rows, hl.TailStrategy.GuardWithIf)
    out.reorder(lane, bi, xi, xo, bo, yi, yo).vectorize(lane).unroll(bi).unroll(xi).never_partition_all()
    if desc.variant["parallel"]:
        out.parallel(yo)
    staged.compute_at(out, yo).vectorize(definition.variables["column"], 16).never_partition_all()
    r = definition.domains["r"]
    acc.compute_at(out, xo).vectorize(lane).unroll(block).unroll(ox).bound_extent(ox, width).bound_extent(block, blocks)
    acc.update().reorder(lane, block, ox, *(r[axis] for axis in range(3))).vectorize(lane).unroll(block).unroll(ox)
