"""Convolution of blocked 8-bit numbers: the schedule.

A tile of ``width`` positions of a row by ``blocks`` channel blocks is accumulated in registers, as in ``conv``; each
vector has the sums of a block's 16 channels. One instruction multiplies four neighbouring inputs of a position by the
weights of 16 outputs where the machine has such an instruction (``vpdpbusd``), two where it has not (``vpmaddwd``, on
numbers of 16 bits, so that nothing saturates; or, where weights are so small that nothing can, ``vpmaddubsw`` on bytes
and ``vpmaddwd`` on its sums).

Inputs that are widened to 16 bits are widened once for a task where each is read by one tap, into a buffer of their
own; else for each tap of a tile, where they are enough to pay for it.
"""

from __future__ import annotations

from typing import Any

import halide as hl

from opbuild.backend.halide.definition import Definition
from opbuild.families.blocked import BLOCK
from opbuild.families.conv.schedule import divide_outer
from opbuild.kernel.machine import Machine
from opbuild.kernel.opdesc import OpDesc

POSITIONS = 224
"""Outputs whose inputs are widened together: so many that reading the weights once more for them counts little."""

STEPS = 4
"""Instructions that read a widened tap from which on it pays to store it."""


def schedule(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Schedule by ``variant``: ``width`` and ``blocks``, the register tile."""
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
    if "left" in definition.functions:
        _widened(definition, desc, (xo, oy, bo))
    if "halves" in definition.functions:
        _halves(definition)
    for function in (out, acc):
        function.never_partition_all()


def _widened(definition: Definition, desc: OpDesc, loops: tuple[Any, Any, Any]) -> None:
    """Schedule the copy of 16 bits; ``loops`` are those of the output outside of a tile, the innermost first."""
    out, left = definition.outputs[0], definition.functions["left"]
    lane, ox, *_ = left.args()
    left.never_partition_all()
    if tuple(desc.attrs["kernel"]) == (1, 1):
        (xo, oy, bo), rows, row = loops, hl.Var("rows"), hl.Var("row")
        together = hl.max(1, POSITIONS // hl.max(1, out.output_buffer().dim(1).extent()))
        out.split(oy, rows, row, together, hl.TailStrategy.GuardWithIf).reorder(xo, row, bo, rows)
        left.compute_at(out, rows).bound_extent(lane, BLOCK).vectorize(lane)
    elif desc.attrs["steps"] >= STEPS:
        left.compute_at(definition.functions["acc"], definition.domains["r"][2])
        left.bound_extent(ox, desc.variant["width"]).vectorize(lane).unroll(ox)


def _halves(definition: Definition) -> None:
    """Schedule the sums of 16 bits: those of a position and a block stay in registers."""
    acc, halves = definition.functions["acc"], definition.functions["halves"]
    pair, lane, *others = halves.args()
    halves.compute_at(acc, definition.variables["ox"]).bound_extent(pair, 2).bound_extent(lane, BLOCK)
    halves.vectorize(pair).vectorize(lane)
    (byte,) = halves.rvars(0)
    # Sums that saturate have an order; these do not saturate.
    halves.update().reorder(byte, pair, lane, *others).atomic(True).vectorize(byte).vectorize(pair).vectorize(lane)
