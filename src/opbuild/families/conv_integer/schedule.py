"""Convolution of blocked 8-bit numbers: the schedule.

A tile of ``width`` positions by ``blocks`` channel blocks is accumulated in registers, as in ``conv``; each vector has
the sums of a block's 16 channels. One instruction multiplies four neighbouring inputs of a position by the weights of
16 outputs where the machine has such an instruction (``vpdpbusd``); its tiles are of one row.

Where it has not, two are multiplied (``vpmaddwd``, on numbers of 16 bits, so that nothing saturates; or, where weights
are so small that nothing can, ``vpmaddubsw`` on bytes and ``vpmaddwd`` on its sums). The inputs of a group of rows are
copied then, in the order in which tiles read them, so tiles are of positions counted along all rows: none is left over
at the end of a row. Over a group pass the weights of ``blocks`` channel blocks, widened once where few positions of a
tile share the work; the sums wait in the first-level cache for what follows.
"""

from __future__ import annotations

from math import prod

import halide as hl

from opbuild.backend.halide.definition import Definition
from opbuild.families.blocked import BLOCK
from opbuild.families.conv.schedule import divide_outer
from opbuild.families.conv_integer.layouts import PAIR
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine

POSITIONS, COPIED = 448, 512 * 1024
"""Outputs whose inputs are copied together, and bytes of the copy, at most about: so many that reading the weights once
more for them counts little, and so few that a core's cache keeps the copy."""


def schedule(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Schedule by ``variant``: ``width`` and ``blocks``, the register tile."""
    if "left" in definition.functions:
        _flat(definition, desc, machine)
    else:
        _rows(definition, desc)


def _rows(definition: Definition, desc: OpDesc) -> None:
    """Take tiles of the positions of a row."""
    width, blocks = desc.variant["width"], desc.variant["blocks"]
    out, acc, r = definition.outputs[0], definition.functions["acc"], definition.domains["r"]
    lane, ox, oy, block = (definition.variables[name] for name in ("lane", "ox", "oy", "block"))
    xo, xi, bo, bi = (hl.Var(name) for name in ("xo", "xi", "bo", "bi"))
    shift = hl.TailStrategy.ShiftInwards
    out.split(ox, xo, xi, width, shift).split(block, bo, bi, blocks, shift).reorder(lane, bi, xi, xo, oy, bo)
    out.vectorize(lane).unroll(bi).unroll(xi)
    divide_outer(definition, desc, (oy, bo))
    acc.compute_at(out, xo).vectorize(lane).unroll(block).unroll(ox).bound_extent(ox, width).bound_extent(block, blocks)
    update = acc.update().reorder(r[0], lane, block, ox, *(r[axis] for axis in range(1, 5)))
    update.atomic().vectorize(r[0]).vectorize(lane).unroll(block).unroll(ox)
    for function in (out, acc):
        function.never_partition_all()


def _flat(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Take tiles of positions counted along all rows."""
    out, blocks = definition.outputs[0], desc.variant["blocks"]
    lane, ox, oy, block = (definition.variables[name] for name in ("lane", "ox", "oy", "block"))
    bo, bi, rows, row = (hl.Var(name) for name in ("bo", "bi", "rows", "row"))
    out.split(block, bo, bi, blocks, hl.TailStrategy.ShiftInwards).reorder(lane, bi, ox, oy, bo)
    out.vectorize(lane).unroll(bi).never_partition_all()
    divide_outer(definition, desc, (oy, bo))
    width, number = out.output_buffer().dim(1).extent(), desc.attrs["adjacent"] * desc.attrs["steps"]
    inputs = definition.inputs[0].dim(5).extent() * (number * PAIR * prod(desc.attrs["kernel"]))
    positions = hl.min(POSITIONS, COPIED // hl.max(1, inputs))
    together = hl.max(1, positions // hl.max(1, width))
    out.split(oy, rows, row, together, hl.TailStrategy.GuardWithIf).reorder(ox, row, bo, rows)
    _operands(definition, desc, (bo, rows), machine)
    _sums(definition, desc, bo)


def _operands(definition: Definition, desc: OpDesc, loops: tuple[hl.Var, hl.Var], machine: Machine) -> None:
    """Copy inputs at the loop over groups of rows, and widen weights at that over tiles of channel blocks."""
    out, left, wide = definition.outputs[0], definition.functions["left"], definition.functions.get("wide")
    number, position, kx, ky, c, tile = left.args()
    left.compute_at(out, loops[1]).bound_extent(number, desc.attrs["adjacent"] * desc.attrs["steps"])
    left.bound_extent(position, desc.variant["width"]).reorder(number, kx, ky, c, position, tile)
    left.vectorize(number).never_partition_all()
    if wide is not None and desc.inputs[1].dtype == "int8" and machine.vectors(BLOCK) > 1:
        pair, lane, *_ = wide.args()
        wide.compute_at(out, loops[0]).bound_extent(pair, PAIR).bound_extent(lane, BLOCK)
        wide.vectorize(pair).vectorize(lane).never_partition_all()


def _sums(definition: Definition, desc: OpDesc, loop: hl.Var) -> None:
    """Add up a tile in registers, and keep the sums at a loop of the output."""
    width, blocks = desc.variant["width"], desc.variant["blocks"]
    sums, acc, r = definition.functions["sums"], definition.functions["acc"], definition.domains["r"]
    lane, flat, block = sums.args()
    _, position, _, tile = acc.args()
    sums.compute_at(definition.outputs[0], loop).bound_extent(block, blocks).align_bounds(flat, width)
    sums.split(flat, tile, position, width).reorder(lane, block, position, tile)
    sums.vectorize(lane).unroll(position).unroll(block).never_partition_all()
    acc.compute_at(sums, tile).bound_extent(position, width).bound_extent(block, blocks)
    acc.vectorize(lane).unroll(block).unroll(position).never_partition_all()
    update = acc.update().reorder(r[0], lane, block, position, *(r[axis] for axis in range(1, 5)))
    update.atomic().vectorize(r[0]).vectorize(lane).unroll(block).unroll(position)
    if "halves" in definition.functions:
        _halves(acc, definition.functions["halves"])


def _halves(acc: hl.Func, halves: hl.Func) -> None:
    """Schedule the sums of 16 bits: those of a position and a block stay in registers."""
    _, position, *_ = acc.args()
    pair, lane, *others = halves.args()
    halves.compute_at(acc, position).bound_extent(pair, PAIR).bound_extent(lane, BLOCK)
    halves.vectorize(pair).vectorize(lane)
    (byte,) = halves.rvars(0)
    # Sums that saturate have an order; these do not saturate.
    halves.update().reorder(byte, pair, lane, *others).atomic(True).vectorize(byte).vectorize(pair).vectorize(lane)
