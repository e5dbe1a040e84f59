"""Convolution of blocked 8-bit numbers: the schedule.

A tile of ``width`` positions of a row by ``blocks`` channel blocks is accumulated in registers, as in ``conv``; each
vector has the sums of a block's 16 channels. One instruction multiplies four neighbouring inputs of a position by the
weights of 16 outputs where the machine has such an instruction (``vpdpbusd``), two where it has not (``vpmaddwd``, on
numbers of 16 bits, so that nothing saturates).
"""

from __future__ import annotations

import halide as hl

from opbuild.backend.halide.definition import Definition
from opbuild.families.conv.schedule import divide_outer
from opbuild.kernel.machine import Machine
from opbuild.kernel.opdesc import OpDesc


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
    for function in (out, acc):
        function.never_partition_all()
