"""Products of float32 and weights of few bits: how they are computed: a tile of sums of a block, then of blocks.

Weights become float32 in registers, once for all rows of a tile. Limits: ``rows`` <= M.
"""

from __future__ import annotations

from typing import Any

import halide as hl

from opbuild.backend.halide.definition import Definition, variables
from opbuild.families.matmul.schedule import divide_tiles
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine


def schedule(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Schedule a product with weights of few bits."""
    out, lanes = definition.outputs[0], machine.lanes
    n, m = definition.variables["n"], definition.variables["m"]
    tile = rows, columns = desc.variant["rows"], desc.variant["panels"] * desc.inputs[1].dims[0].extent
    no, ni, mo, mi = variables("no ni mo mi")
    out.split(n, no, ni, columns, hl.TailStrategy.GuardWithIf).split(m, mo, mi, rows, hl.TailStrategy.ShiftInwards)
    divide_tiles(definition, tile, (ni, mi, mo, no))
    out.vectorize(ni, lanes).unroll(ni).unroll(mi)
    out.never_partition_all()
    functions, domains = definition.functions, definition.domains
    acc = functions["acc"]
    acc.compute_at(out, mo)
    _tile(acc, tile, lanes, [domains["blocks"].x], [domains["ends"].x])
    k, number = domains["k"], domains["blocks"].x
    functions["total"].compute_at(acc, number)
    _tile(functions["total"], tile, lanes, [k.x, k.y])
    functions["total"].update().unroll(k.x)
    functions["last"].compute_at(acc, domains["ends"].x)
    _tile(functions["last"], tile, lanes, [domains["rest"].x])
    for name, at in (("beside", number), ("last_beside", domains["ends"].x)):
        functions[name].compute_at(acc, at).bound_extent(functions[name].args()[0], rows)
        functions[name].unroll(functions[name].args()[0])
    functions["beside"].update().atomic().vectorize(k.y, lanes, hl.TailStrategy.GuardWithIf)


def _tile(function: Any, tile: tuple[int, int], lanes: int, *reduced: list[Any]) -> None:
    """Keep a tile of a function in registers while its summands pass, the loops of each of its updates."""
    n, m, *_ = function.args()
    function.bound_extent(n, tile[1]).bound_extent(m, tile[0]).vectorize(n, lanes).unroll(n).unroll(m)
    for number, loops in enumerate(reduced):
        inner, outer = loops[:-1], loops[-1]
        function.update(number).reorder(*inner, n, m, outer).vectorize(n, lanes).unroll(n).unroll(m)
    function.never_partition_all()
