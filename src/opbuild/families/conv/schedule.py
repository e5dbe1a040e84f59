"""Convolution of blocked values: the schedule.

A tile of ``width`` positions of a row by ``blocks`` channel blocks is accumulated in registers. Vectors are blocks of
16 channels; where registers are shorter, LLVM makes several of each (AVX2 on Zen 5: 103 of 113 GFLOP/s in 2 x 2).

Work is divided into one range of rows or of channel blocks a task, not into many small ones: the next operator divides
the same way, so a core finds its input in its own cache (the 1 x 1 ones of ResNet-50: 229 against 179 GFLOP/s on two
Sapphire Rapids cores). Which of the two is decided at each call, from the extents.

With ``chunked``, input channels are taken one block at a time, whose weights stay in the first-level cache while a
group of rows passes over them; partial sums wait in memory. The width must then divide the row. Without, tails are
shifted inwards, so an extent below a tile is not legal.
"""

from __future__ import annotations

from math import prod
from typing import Any

import halide as hl

from opbuild.backend.halide.definition import Definition
from opbuild.backend.halide.division import divide_two, either_or_both, is_as_even
from opbuild.families.blocked import BLOCK
from opbuild.kernel.machine import Machine
from opbuild.kernel.opdesc import OpDesc

LOCALITY = 0.93
"""Time that a task takes where what it reads is in its core's cache, relative to where it is not."""

ROWS = 8
"""Rows that pass over one chunk of weights: enough to pay for it, and their sums still fit the second-level cache."""


def schedule(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Schedule by ``variant``: ``width``, ``blocks`` (the register tile) and ``chunked``."""
    if desc.variant["chunked"]:
        _chunked(definition, desc)
    else:
        _whole(definition, desc)


def _whole(definition: Definition, desc: OpDesc) -> None:
    """Accumulate all input channels at once, in registers."""
    width, blocks = desc.variant["width"], desc.variant["blocks"]
    out, acc, r = definition.outputs[0], definition.functions["acc"], definition.domains["r"]
    lane, ox, oy, block = (definition.variables[name] for name in ("lane", "ox", "oy", "block"))
    xo, xi, bo, bi = (hl.Var(name) for name in ("xo", "xi", "bo", "bi"))
    shift = hl.TailStrategy.ShiftInwards
    out.split(ox, xo, xi, width, shift).split(block, bo, bi, blocks, shift).reorder(lane, bi, xi, xo, oy, bo)
    out.vectorize(lane).unroll(bi).unroll(xi)
    divide_outer(definition, desc, (oy, bo))
    acc.compute_at(out, xo).vectorize(lane).unroll(block).unroll(ox).bound_extent(ox, width).bound_extent(block, blocks)
    left = definition.functions.get("left")
    if left is None:
        acc.update().reorder(lane, block, ox, r[0], r[1], r[2], r[3]).vectorize(lane).unroll(block).unroll(ox)
    else:
        acc.update().reorder(r[0], lane, block, ox, r[1], r[2], r[3], r[4])
        acc.update().atomic().vectorize(r[0]).vectorize(lane).unroll(block).unroll(ox)
        # Each task converts what it reads: cores that read each other's would wait.
        left.compute_at(out, hl.Var("task")).bound_extent(left.args()[0], BLOCK).vectorize(left.args()[0])
        left.never_partition_all()
    for function in (out, acc):
        function.never_partition_all()


def _chunked(definition: Definition, desc: OpDesc) -> None:
    """Accumulate blocks of input channels in registers and add them up in memory."""
    width, blocks = desc.variant["width"], desc.variant["blocks"]
    out, acc, r = definition.outputs[0], definition.functions["acc"], definition.domains["r"]
    lane, ox, oy, block = (definition.variables[name] for name in ("lane", "ox", "oy", "block"))
    bo, bi, rows, row, xo, xi, index = (hl.Var(name) for name in ("bo", "bi", "rows", "row", "xo", "xi", "index"))
    partial = acc.update().rfactor(r[3], index)

    out.split(block, bo, bi, blocks, hl.TailStrategy.ShiftInwards).reorder(lane, bi, ox, oy, bo)
    out.vectorize(lane).unroll(bi)
    divide_outer(definition, desc, (oy, bo))
    out.split(oy, rows, row, ROWS, hl.TailStrategy.GuardWithIf).reorder(lane, bi, ox, row, rows)

    acc.compute_at(out, rows).bound_extent(block, blocks).reorder_storage(lane, block, ox, oy)
    acc.reorder(lane, block, ox, oy).vectorize(lane).unroll(block)
    acc.update().split(ox, xo, xi, width, hl.TailStrategy.RoundUp).reorder(lane, block, xi, xo, oy, r[3])
    acc.update().vectorize(lane).unroll(block).unroll(xi)

    partial.compute_at(acc, xo).vectorize(lane).unroll(block).unroll(ox)
    partial.bound_extent(ox, width).bound_extent(block, blocks)
    partial.update().reorder(lane, block, ox, r[0], r[1], r[2]).vectorize(lane).unroll(block).unroll(ox)
    for stage in (out, acc, acc.update(), partial, partial.update()):  # a last row apart would be the loops again
        stage.never_partition_all()


def divide_outer(definition: Definition, desc: OpDesc, loops: tuple[Any, Any]) -> None:
    """Make the outermost loops, over rows and over tiles of channel blocks, ranges of one of them, a task each.

    Rows where activations are larger than weights, so that a core keeps its rows from layer to layer; blocks where
    weights are larger, so that one core only reads each; unless cores would wait for each other much longer.
    """
    out, x, tasks = definition.outputs[0], definition.inputs[0], definition.tasks
    buffer, blocks = out.output_buffer(), desc.variant["blocks"]
    height, tiles = buffer.dim(2).extent(), (buffer.dim(3).extent() + (blocks - 1)) // blocks
    inputs, outputs = x.dim(5).extent(), buffer.dim(3).extent()
    weights = BLOCK * inputs * outputs * prod(desc.attrs["kernel"])
    activations = (inputs + outputs) * buffer.dim(1).extent() * height
    worth = hl.select(weights > activations, hl.f32(1 / LOCALITY), hl.f32(LOCALITY))
    rows_first = is_as_even(height, tiles, tasks, worth)
    divide_two(out, loops, either_or_both(rows_first, (height, tiles), tasks))
