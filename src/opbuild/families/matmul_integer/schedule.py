"""Products of matrices of bytes: how they are computed: as ``matmul`` computes those of float32.

A tile of ``rows`` by so many ``panels`` of sums stays in registers while K passes, a group of products of a lane at a
time: four by one instruction (VPDPBUSD) where the level has it, else two, widened to 16 bits (VPMADDWD).

Limits: ``rows`` <= M.
"""

from __future__ import annotations

from typing import Any

import halide as hl

from opbuild.backend.halide.definition import Definition, variables
from opbuild.families.matmul.schedule import divide_tiles
from opbuild.kernel.machine import Machine
from opbuild.kernel.opdesc import OpDesc


def schedule(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Schedule a matrix product of bytes."""
    out, lanes = definition.outputs[0], machine.lanes
    n, m = definition.variables["n"], definition.variables["m"]
    rows, columns = desc.variant["rows"], desc.variant["panels"] * desc.inputs[1].dims[1].extent
    no, ni, mo, mi = variables("no ni mo mi")
    out.split(n, no, ni, columns, hl.TailStrategy.GuardWithIf).split(m, mo, mi, rows, hl.TailStrategy.ShiftInwards)
    divide_tiles(definition, (rows, columns), (ni, mi, mo, no))
    out.vectorize(ni, lanes).unroll(ni).unroll(mi)
    out.never_partition_all()
    _sum(definition, mo, (rows, columns), lanes)


def _sum(definition: Definition, at: Any, tile: tuple[int, int], lanes: int) -> None:
    """Keep a tile of sums in registers while K passes."""
    out, acc = definition.outputs[0], definition.functions["acc"]
    n, m, *_ = acc.args()
    acc.compute_at(out, at).bound_extent(n, tile[1]).bound_extent(m, tile[0])
    acc.vectorize(n, lanes).unroll(n).unroll(m)
    k, rest = definition.domains["k"], definition.domains["rest"]
    ko, ki = variables("ko ki")
    group = acc.update(0).reorder(k.x, n, m, k.y).split(n, ko, ki, lanes).reorder(k.x, ki, ko, m, k.y)
    group.atomic().vectorize(k.x).vectorize(ki).unroll(ko).unroll(m)
    acc.update(1).reorder(n, m, rest.x).vectorize(n, lanes).unroll(n).unroll(m)
    acc.never_partition_all()
