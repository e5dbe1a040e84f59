"""Matrix products: how they are computed.

A tile of ``rows`` by ``columns`` sums stays in registers while K passes. One panel of columns is kept close while all
rows pass by it. Variant: ``rows``, ``columns`` (a multiple of 16), ``stage`` (copy the panel first), ``parallel``
(``none``, ``columns``, ``rows`` or ``batch``).

Limits: ``rows`` <= M always; ``columns`` <= N for ``rhs`` other than ``panels``; a staged ``columns`` operand needs K
>= 16.
"""

from __future__ import annotations

from typing import Any

import halide as hl

from opbuild.backend.halide.definition import Definition, variables
from opbuild.kernel.machine import Machine
from opbuild.kernel.opdesc import OpDesc

LANES = 16
TASKS = 64
"""A parallel loop becomes at most about as many tasks: their cost stays small against their work."""


def schedule(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Schedule a matrix product."""
    out = definition.outputs[0]
    n, m = definition.variables["n"], definition.variables["m"]
    batch = [definition.variables[name] for name in ("b0", "b1") if name in definition.variables]
    rows, columns = desc.variant["rows"], desc.variant["columns"]
    no, ni, mo, mi = variables("no ni mo mi")
    packed = desc.attrs["rhs"] == "panels"
    tail = hl.TailStrategy.GuardWithIf if packed else hl.TailStrategy.ShiftInwards
    out.split(n, no, ni, columns, tail).split(m, mo, mi, rows, hl.TailStrategy.ShiftInwards)
    out.reorder(ni, mi, mo, no, *batch).vectorize(ni, LANES).unroll(ni).unroll(mi)
    by_rows = desc.variant["parallel"] == "rows"
    tile = no if by_rows else mo
    if by_rows:
        out.reorder(ni, mi, no, mo, *batch)
    within = _parallel(definition, desc, {"columns": no, "rows": mo}, batch)
    # Only the store of the last panel is guarded; a second copy of the loop nest without the guard gains nothing.
    out.never_partition_all()

    acc = definition.functions["acc"]
    acc.compute_at(out, tile)
    _tile_sum(acc, definition.domains["k"].x, rows, columns)
    if "chunk" in definition.functions:
        definition.functions["chunk"].compute_at(acc, definition.domains["k"].x)
        definition.functions["rest"].compute_at(out, tile)
        for name in ("chunk", "rest"):
            _tile_sum(definition.functions[name], definition.domains[name].x, rows, columns)
    if "staged" in definition.functions:
        _stage(definition.functions, out, within if desc.variant["parallel"] == "columns" else no, columns)


def _tile_sum(function: Any, k: Any, rows: int, columns: int) -> None:
    """Keep a tile of sums in registers while K passes."""
    n, m, *_ = function.args()
    function.bound_extent(n, columns).bound_extent(m, rows).vectorize(n, LANES).unroll(n).unroll(m)
    function.update().reorder(n, m, k).vectorize(n, LANES).unroll(n).unroll(m)
    function.never_partition_all()


def _parallel(definition: Definition, desc: OpDesc, loops: dict[str, Any], batch: list[Any]) -> Any:
    """Cut one loop into tasks: over tiles of columns, tiles of rows or batches; return the loop within a task."""
    over = desc.variant["parallel"]
    if over == "none":
        return None
    out = definition.outputs[0]
    extents = [out.output_buffer().dim(index).extent() for index in range(len(desc.outputs[0].dims))]
    if over == "batch":
        loop = variables("fused")[0]
        out.fuse(batch[0], batch[1], loop)
        count = extents[2] * extents[3]
    else:
        loop = loops[over]
        step = desc.variant[over]
        count = (extents[0 if over == "columns" else 1] + step - 1) // step
    task, within = variables("task within")
    out.split(loop, task, within, hl.max(1, (count + TASKS - 1) // TASKS), hl.TailStrategy.GuardWithIf)
    out.parallel(task)
    return within


def _stage(functions: dict[str, Any], out: Any, panel: Any, columns: int) -> None:
    """Copy a panel in the loop ``panel`` of ``out``."""
    staged, block = functions["staged"], functions.get("block")
    n, k, *_ = staged.args()
    staged.compute_at(out, panel).bound_extent(n, columns)
    if block is None:
        staged.vectorize(n, LANES).unroll(n)
        return
    no, ni, ko, ki = variables("sno sni sko ski")
    staged.split(n, no, ni, LANES).split(k, ko, ki, LANES, hl.TailStrategy.ShiftInwards)
    staged.reorder(ni, ki, no, ko).vectorize(ni).unroll(ki)
    bk, bn, *_ = block.args()
    block.compute_at(staged, no).bound_extent(bk, LANES).bound_extent(bn, LANES).vectorize(bk).unroll(bn)
    staged.never_partition_all()
