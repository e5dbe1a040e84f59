"""Matrix products: how they are computed.

A tile of ``rows`` by ``columns`` sums stays in registers while K passes, beside a row of the right operand by which the
rows pass one by one; or, where that does not fit, beside elements of all rows, by which vectors of the right operand
pass. One panel of columns is kept close while all rows pass by it. Variant: ``rows``, ``columns`` (a part of a panel,
or several), ``stage`` (copy the panel first). Where whole panels pass as they lie, those that come next are fetched
meanwhile.

With ``pairs`` of bfloat16 the left operand is converted first, and one instruction adds up two products of a lane.

Limits: ``rows`` <= M always; ``columns`` <= N for ``rhs`` other than ``panels``; a staged ``columns`` operand needs K
>= 16.
"""

from __future__ import annotations

from functools import reduce
from operator import mul
from typing import Any

import halide as hl

from opbuild.backend.halide.definition import Definition, variables
from opbuild.backend.halide.division import share
from opbuild.families.matmul.layouts import LEAST_FETCHED, PACKED, registers, words
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine

UNITS = 16
"""Units of work for each task where tasks cannot have equal numbers of panels: one more or less matters little."""

RANGES = 8
"""Ranges into which a task's share is cut, if there are several tasks: who finishes early takes one of another's."""

LEAST_STAGED = 8
"""Tiles of rows that must pass by a copied panel for another task's copy of it to be worth its time."""

LEAST_CONVERTED = 16
"""Rows of the left operand from which on it pays to wake another thread to convert some of them."""


def schedule(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Schedule a matrix product."""
    out, lanes = definition.outputs[0], machine.lanes // words(desc.inputs[0].dtype)
    n, m = definition.variables["n"], definition.variables["m"]
    rows, columns = desc.variant["rows"], desc.variant["columns"]
    no, ni, mo, mi = variables("no ni mo mi")
    packed = desc.attrs["rhs"] in PACKED
    tail = hl.TailStrategy.GuardWithIf if packed else hl.TailStrategy.ShiftInwards
    out.split(n, no, ni, columns, tail).split(m, mo, mi, rows, hl.TailStrategy.ShiftInwards)
    unit = divide_tiles(definition, (rows, columns), (ni, mi, mo, no))
    out.vectorize(ni, lanes).unroll(ni).unroll(mi)
    # Only the store of the last panel is guarded; a second copy of the loop nest without the guard gains nothing.
    out.never_partition_all()

    acc = definition.functions["acc"]
    acc.compute_at(out, mo)
    if "left" in definition.functions:
        _left(definition, lanes)
        _tile_pairs(definition, rows, columns, lanes)
    else:
        _tile_sum(acc, definition.domains["k"].x, (rows, columns), lanes, machine)
    if "chunk" in definition.functions:
        definition.functions["chunk"].compute_at(acc, definition.domains["k"].x)
        definition.functions["rest"].compute_at(out, mo)
        for name in ("chunk", "rest"):
            _tile_sum(definition.functions[name], definition.domains[name].x, (rows, columns), lanes, machine)
    if "ahead" in definition.functions:
        _fetch_ahead(definition, (rows, columns))
    if "staged" in definition.functions:
        _stage(definition.functions, out, unit, columns, lanes)


def divide_tiles(definition: Definition, tile: tuple[int, int], loops: tuple[Any, ...]) -> Any:
    """Divide the tiles among tasks; return the loop within a task over units.

    A unit is a range of rows by one tile of columns. Tasks have equal numbers of units, or one more.

    Args:
        definition: What is scheduled.
        tile: Rows and columns of a tile.
        loops: The loops within a tile, those over tiles of rows and over tiles of columns last.
    """
    out, tasks = definition.outputs[0], definition.tasks
    *_, mo, no = loops
    batch = [definition.variables[name] for name in ("b0", "b1") if name in definition.variables]
    columns, rows, *batches = (out.output_buffer().dim(axis).extent() for axis in range(2 + len(batch)))
    steps, tiles = _steps(rows, tile[0]), _steps(columns, tile[1])
    panels = reduce(mul, batches, tiles)
    # Cores that have equal numbers of panels need not read each other's.
    parts = hl.select(panels % tasks == 0, 1, _steps(UNITS * tasks, panels))
    least = LEAST_STAGED if "staged" in definition.functions else 1
    length = hl.max(share(steps, parts), hl.min(steps, least))
    # A core reads all of the smaller operand, and a part of the larger one.
    together = hl.select(rows > columns, hl.max(1, tiles), 1)
    part, apart, whole, piece, task, unit = variables("part apart whole piece task unit")
    guard = hl.TailStrategy.GuardWithIf
    out.split(mo, part, mo, length, guard).split(no, apart, no, together, guard).reorder(*loops, part, apart, *batch)
    flat = no
    for number, outer in enumerate((part, apart, *batch)):
        into = hl.Var(f"flat{number}")
        out.fuse(flat, outer, into)
        flat = into
    of_task = share(panels * _steps(steps, length), tasks)
    out.split(flat, whole, flat, of_task, guard)
    out.split(flat, piece, unit, hl.select(tasks == 1, of_task, share(of_task, RANGES)), guard)
    out.fuse(piece, whole, task).parallel(task)
    return unit


def _steps(extent: Any, length: Any) -> Any:
    return (extent + (length - 1)) // length


def _tile_sum(function: Any, k: Any, tile: tuple[int, int], lanes: int, machine: Machine) -> None:
    """Keep a tile of sums in registers while K passes."""
    rows, columns = tile
    n, m, *_ = function.args()
    function.bound_extent(n, columns).bound_extent(m, rows).vectorize(n, lanes).unroll(n).unroll(m)
    if registers(rows, columns // lanes) <= machine.registers:
        function.update().reorder(n, m, k).vectorize(n, lanes).unroll(n).unroll(m)
    else:
        vector = hl.Var("vector")
        function.update().split(n, vector, n, lanes).reorder(n, m, vector, k).vectorize(n).unroll(m).unroll(vector)
    function.never_partition_all()


def _fetch_ahead(definition: Definition, tile: tuple[int, int]) -> None:
    """Fetch the panels behind those of a tile of columns while all rows pass by these: an element in each step of K.

    The place is spelled with the names of Halide's loops: nothing else says which tile of rows it is.
    """
    (out,), (lhs, rhs, *_), k = definition.outputs, definition.inputs, definition.domains["k"].x
    acc, ahead = definition.functions["acc"], definition.functions["ahead"]
    element, number, *_ = ahead.args()
    ahead.compute_at(acc, k).bound_storage(element, 1).bound_extent(number, 1).never_partition_all()
    loops = (hl.Expr(hl.Var(name)) for name in (f"{out.name()}.s0.m.mo.mo", f"{acc.name()}.s1.{k.name()}"))
    place = fetched_element((*loops,), tile, (lhs.dim(1).extent(), lhs.dim(0).extent()))
    loop = hl.VarOrRVar(element)
    ahead.prefetch(rhs, loop, loop, place, hl.PrefetchBoundStrategy.NonFaulting)


def fetched_element(loops: tuple[Any, Any], tile: tuple[int, int], extents: tuple[Any, Any]) -> Any:
    """Return the element of the next panels that is fetched; the tiles of rows divide all of them evenly.

    Args:
        loops: The number of a tile of rows, and the step of K.
        tile: Rows and columns of a tile.
        extents: Rows of the output, and K.
    """
    (number, step), (rows, columns), (height, depth) = loops, tile, extents
    each = hl.select(height < LEAST_FETCHED, 0, _steps(columns, _steps(height, rows)))
    return hl.min(number * each, columns - each) * depth + step * each


def _tile_pairs(definition: Definition, rows: int, columns: int, lanes: int) -> None:
    """Keep a tile of sums in registers while pairs along K pass, a pair of products of a lane at a time."""
    acc, k, rest = definition.functions["acc"], definition.domains["k"], definition.domains["rest"]
    n, m, *_ = acc.args()
    acc.bound_extent(n, columns).bound_extent(m, rows).vectorize(n, lanes).unroll(n).unroll(m)
    ko, ki = variables("ko ki")
    pairs = acc.update(0).reorder(k.x, n, m, k.y).split(n, ko, ki, lanes).reorder(k.x, ki, ko, m, k.y)
    pairs.atomic().vectorize(k.x).vectorize(ki).unroll(ko).unroll(m)
    acc.update(1).reorder(n, m, rest.x).vectorize(n, lanes).unroll(n).unroll(m)
    acc.never_partition_all()


def _left(definition: Definition, lanes: int) -> None:
    """Convert the left operand once, before all tiles: each task some of its rows."""
    left, tasks = definition.functions["left"], definition.tasks
    rows = definition.outputs[0].output_buffer().dim(1).extent()
    j, m, *_ = left.args()
    task = hl.Var("left_task")
    left.compute_root().vectorize(j, lanes, hl.TailStrategy.GuardWithIf)
    left.split(m, task, m, hl.max(LEAST_CONVERTED, share(rows, tasks)), hl.TailStrategy.GuardWithIf).parallel(task)
    left.never_partition_all()


def _stage(functions: dict[str, Any], out: Any, panel: Any, columns: int, lanes: int) -> None:
    """Copy a panel in the loop ``panel`` of ``out``."""
    staged, block = functions["staged"], functions.get("block")
    n, k, *_ = staged.args()
    staged.compute_at(out, panel).bound_extent(n, columns)
    if block is None:
        staged.vectorize(n, lanes).unroll(n)
        return
    no, ni, ko, ki = variables("sno sni sko ski")
    staged.split(n, no, ni, lanes).split(k, ko, ki, lanes, hl.TailStrategy.ShiftInwards)
    staged.reorder(ni, ki, no, ko).vectorize(ni).unroll(ki)
    bk, bn, *_ = block.args()
    block.compute_at(staged, no).bound_extent(bk, lanes).bound_extent(bn, lanes).vectorize(bk).unroll(bn)
    staged.never_partition_all()
