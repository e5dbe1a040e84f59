"""Convolution of blocked values: the schedule.

A tile of ``width`` positions of a row by ``blocks`` channel blocks is accumulated in registers. Vectors are blocks of
16 channels; where registers are shorter, LLVM makes several of each (AVX2 on Zen 5: 103 of 113 GFLOP/s in 2 x 2).

Work is divided into one range of rows or of channel blocks a task, not into many small ones: the next operator divides
the same way, so a core finds its input in its own cache (the 1 x 1 ones of ResNet-50: 229 against 179 GFLOP/s on two
Sapphire Rapids cores). Which of the two is decided at each call, from the extents.

With ``chunked``, input channels are taken one block at a time, whose weights stay in the first-level cache while a
group of rows passes over them; partial sums wait in memory. The width must then divide the row. Without, tails are
shifted inwards, so an extent below a tile is not legal.

With ``joined``, tiles are counted along all rows and pass over their ends, so that few positions are computed twice.
"""

from __future__ import annotations

from typing import Any

import halide as hl

from opbuild.backend.halide.definition import Definition
from opbuild.backend.halide.division import divide_two
from opbuild.backend.halide.tiles import accumulate
from opbuild.families.blocked import BLOCK
from opbuild.families.conv.definition import task_lengths
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine

ROWS = 8
"""Rows that pass over one chunk of weights: enough to pay for it, and their sums still fit the second-level cache."""


def schedule(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Schedule by ``variant``: ``width``, ``blocks`` (the register tile) and ``chunked``."""
    if desc.variant.get("joined"):
        _joined(definition, desc, machine)
    elif desc.variant["chunked"]:
        _chunked(definition, desc, machine)
    else:
        _whole(definition, desc, machine)


def _whole(definition: Definition, desc: OpDesc, machine: Machine) -> None:
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
        accumulate(acc.update(), (lane, ox, block), (r[0], r[1], r[2], r[3]), desc, machine)
    else:
        acc.update().reorder(r[0], lane, block, ox, r[1], r[2], r[3], r[4])
        acc.update().atomic().vectorize(r[0]).vectorize(lane).unroll(block).unroll(ox)
        # Each task converts what it reads: cores that read each other's would wait.
        left.compute_at(out, hl.Var("task")).bound_extent(left.args()[0], BLOCK).vectorize(left.args()[0])
        left.never_partition_all()
    for function in (out, acc):
        function.never_partition_all()


def _joined(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Accumulate all input channels at once, in registers, in tiles that pass over the ends of rows."""
    out, acc = definition.outputs[0].update(), definition.functions["acc"]
    r, t = definition.domains["r"], definition.domains["t"]
    lane, position, block, left, top = (
        definition.variables[name] for name in ("lane", "position", "block", "left", "top")
    )
    task = hl.RVar("task")
    out.allow_race_conditions()  # tiles that overlap at the end write the same
    out.reorder(lane, *(t[axis] for axis in range(6))).vectorize(lane).unroll(t[0]).unroll(t[1])
    out.fuse(t[4], t[5], task).parallel(task)
    acc.compute_at(definition.outputs[0], t[2]).vectorize(lane).unroll(block).unroll(position)
    acc.bound_extent(position, desc.variant["width"]).bound_extent(block, desc.variant["blocks"])
    acc.bound_extent(left, 1).bound_extent(top, 1)
    accumulate(acc.update(), (lane, position, block), (r[0], r[1], r[2], r[3]), desc, machine)
    for function in (definition.outputs[0], acc):
        function.never_partition_all()


def _chunked(definition: Definition, desc: OpDesc, machine: Machine) -> None:
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
    accumulate(partial.update(), (lane, ox, block), (r[0], r[1], r[2]), desc, machine)
    for stage in (out, acc, acc.update(), partial, partial.update()):  # a last row apart would be the loops again
        stage.never_partition_all()


def divide_outer(definition: Definition, desc: OpDesc, loops: tuple[Any, Any]) -> None:
    """Make the outermost loops, over rows and over tiles of channel blocks, ranges of one of them, a task each."""
    out, x, blocks = definition.outputs[0], definition.inputs[0], desc.variant["blocks"]
    height, sets = (out.output_buffer().dim(axis).extent() for axis in (2, 3))
    lengths = task_lengths(desc, x, (height, (sets + (blocks - 1)) // blocks), sets, definition.tasks)
    divide_two(out, loops, lengths)
