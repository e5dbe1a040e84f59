"""Convolution of blocked values: the schedule.

A tile of ``width`` positions of a row by ``blocks`` channel blocks is accumulated in registers. Both loops of the
tile have constant bounds and tails are shifted inwards, so an extent below a tile is not legal. What a task is
decides the traffic:

* ``rows``: one row of all blocks. The input is read once; the weights should fit the second-level cache.
* ``blocks``: all rows of one tile of blocks. The weights are read once, each by one core only.
"""

from __future__ import annotations

from typing import Any

import halide as hl

from opbuild.backend.halide.definition import Definition
from opbuild.kernel.opdesc import OpDesc

UNROLLED_CHANNELS = 4
"""Input channels in the body of the innermost loop: with one, a small tile spends a tenth of its time on the loop."""


def schedule(definition: Definition, desc: OpDesc, target: Any) -> None:
    """Schedule by ``variant``: ``width``, ``blocks`` (the register tile), ``task`` and ``parallel``."""
    width, blocks = desc.variant["width"], desc.variant["blocks"]
    out, acc, r = definition.outputs[0], definition.functions["acc"], definition.domains["r"]
    lane, ox, oy, block = (definition.variables[name] for name in ("lane", "ox", "oy", "block"))
    xo, xi, bo, bi = (hl.Var(name) for name in ("xo", "xi", "bo", "bi"))
    shift = hl.TailStrategy.ShiftInwards
    outer = (bo, oy) if desc.variant["task"] == "rows" else (oy, bo)
    out.split(ox, xo, xi, width, shift).split(block, bo, bi, blocks, shift).reorder(lane, bi, xi, xo, *outer)
    out.vectorize(lane).unroll(bi).unroll(xi)
    if desc.variant["parallel"]:
        out.parallel(outer[-1])
    acc.compute_at(out, xo).vectorize(lane).unroll(block).unroll(ox).bound_extent(ox, width).bound_extent(block, blocks)
    channel, step = hl.RVar("channel"), hl.RVar("step")
    update = acc.update().split(r[0], channel, step, UNROLLED_CHANNELS)
    update.reorder(lane, block, ox, step, channel, r[1], r[2], r[3]).vectorize(lane).unroll(block).unroll(ox).unroll(
        step
    )
