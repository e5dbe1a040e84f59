"""Matrix products of float32 or float64.

``out[n, m] = epilogue(sum over k of lhs[k, m] * rhs[n, k])``, as many times as there are batches. Attributes:

* ``rhs``: how the right operand lies. ``panels``: ``(32, K, N/32)``, the columns in panels of 32, zero beyond N; one
  matrix for all batches or one each; float32, or float16 or bfloat16, which become float32 where they are read or
  copied. ``pairs``: ``(2, 32, K/2, N/32)``, panels of bfloat16 in which two neighbours along K are adjacent, as the
  instruction for them takes them; zero beyond K and N. ``rows``: ``(N, K, ...)`` with neighbouring columns adjacent.
  ``columns``: ``(N, K, ...)`` with neighbours along K adjacent (a transposed matrix).
* ``epilogue``: an expression over the sum and the operands after ``rhs``, each of the output's rank; a stride of 0
  repeats.

With ``pairs`` the left operand's numbers must be bfloat16's too: what lies behind their digits is cut off. The sums are
float32; where the level has the instruction, denormal numbers and sums count as 0.

In the mode ``high_precision`` the products of ``CHUNK`` neighbours along K are added up by themselves, then the sums:
the error of a long sum falls by half a dozen.

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

from collections.abc import Callable
from functools import reduce
from operator import mul
from typing import Any

import halide as hl

from opbuild.backend.halide.definition import CHECKED, Definition, computed, parameters, variables
from opbuild.backend.halide.division import share
from opbuild.backend.halide.epilogue import fused
from opbuild.backend.halide.mathematics import BFLOAT16, FLOAT16, FLOAT32, narrowed, widened
from opbuild.families.layouts import LEAST_FETCHED, PACKED, PANEL, fetches, registers, words
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine

Domains = dict[str, Any]
"""Reduction domains by the names under which schedules find them."""

CHUNK = 32
"""Products that ``high_precision`` adds up by themselves."""


def define(desc: OpDesc) -> Definition:
    """Return the definition of a batched matrix product."""
    inputs = parameters(desc)
    lhs, rhs, *others = inputs
    n, m = variables("n m")
    batch = variables("b0 b1")[: len(desc.outputs[0].dims) - 2]
    functions: dict[str, Any] = {}

    def right(n: Any, k: Any) -> Any:
        if desc.attrs["rhs"] == "panels":
            panel = desc.inputs[1].dims[0].extent
            loaded = rhs[(n % panel, k, n // panel, *batch[: rhs.dimensions() - 3])]
            # Halide's own conversion of a float16, which takes a fifth of the instructions: sums are not strict either.
            return hl.cast(FLOAT32, loaded) if loaded.type() == FLOAT16 else widened(loaded)
        return rhs[(n, k, *batch)]

    staged = _stage(functions, right, desc.attrs["rhs"], batch) if desc.variant.get("stage") else None
    place = (n, m, *batch)
    is_fetched = fetches(desc) and not desc.variant.get(CHECKED)
    is_needed = _ahead(functions, (lhs, rhs), place, desc.variant["columns"]) if is_fetched else None

    def product(k: Any) -> Any:
        factor = right(n, k) if staged is None else staged[(n, k, *batch)]
        return lhs[(k, m, *batch)] * (factor if is_needed is None else hl.select(is_needed(k), 0, factor))

    if desc.attrs["rhs"] == "pairs":
        domains = _sum_of_pairs(functions, lhs, rhs, place)
    else:
        add_up = _sum_in_chunks if desc.is_precise else _sum
        domains = add_up(functions, product, place, lhs.dim(0).extent(), lhs.type())
    value = fused(desc, others, place, functions["acc"][place])
    return computed(desc, inputs, place, value, functions, domains, dots=desc.attrs["rhs"] == "pairs")


def _sum(
    functions: dict[str, Any], product: Callable[[Any], Any], place: tuple[Any, ...], extent: Any, kind: Any
) -> Domains:
    """Define ``acc``, the sum of products; return its domain ``k``."""
    k = hl.RDom([(0, extent)], "k")
    acc = functions["acc"] = hl.Func("acc")
    acc[place] = hl.cast(kind, 0)
    acc[place] += product(k.x)
    return {"k": k}


def _sum_in_chunks(
    functions: dict[str, Any], product: Callable[[Any], Any], place: tuple[Any, ...], extent: Any, kind: Any
) -> Domains:
    """Define ``acc``, the sum of the sums ``chunk`` and ``rest``; return the domains of all three."""
    number = variables("number")[0]
    k, inner, beyond = (
        hl.RDom([(0, count)], name)
        for name, count in (("k", extent // CHUNK), ("inner", CHUNK), ("beyond", extent % CHUNK))
    )
    acc, chunk, rest = (hl.Func(name) for name in ("acc", "chunk", "rest"))
    functions.update(acc=acc, chunk=chunk, rest=rest)
    chunk[(*place, number)] = hl.cast(kind, 0)
    chunk[(*place, number)] += product(number * CHUNK + inner.x)
    rest[place] = hl.cast(kind, 0)
    rest[place] += product(extent // CHUNK * CHUNK + beyond.x)
    acc[place] = rest[place]
    acc[place] += chunk[(*place, k.x)]
    return {"k": k, "chunk": inner, "rest": beyond}


def _sum_of_pairs(functions: dict[str, Any], lhs: Any, rhs: Any, place: tuple[Any, ...]) -> Domains:
    """Define ``acc``, the sum of products of bfloat16, and ``left``, the left operand as such."""
    n, m, *batch = place
    j = variables("j")[0]
    extent = lhs.dim(0).extent()
    k, rest = hl.RDom([(0, 2), (0, extent // 2)], "k"), hl.RDom([(0, extent % 2)], "rest")
    left, acc = hl.Func("left"), hl.Func("acc")
    functions.update(left=left, acc=acc)
    left[(j, m, *batch)] = narrowed(lhs[(j, m, *batch)], BFLOAT16, rounds=False)

    def right(number: Any, pair: Any) -> Any:
        return hl.cast(FLOAT32, rhs[(number, n % PANEL, pair, n // PANEL)])

    acc[place] = hl.f32(0)
    acc[place] += hl.cast(FLOAT32, left[(k.y * 2 + k.x, m, *batch)]) * right(k.x, k.y)
    acc[place] += lhs[(extent - 1 + rest.x, m, *batch)] * right(rest.x, extent // 2)
    return {"k": k, "rest": rest}


def _ahead(
    functions: dict[str, Any], operands: tuple[Any, Any], place: tuple[Any, ...], columns: int
) -> Callable[[Any], Any]:
    """Define ``ahead``, elements of the panels behind a tile's; return a condition at k that is never true.

    A schedule can fetch only what is read, and what is read has to be used. LLVM knows that no number has more bits set
    than bits, and leaves of all this what is fetched. Few rows fetch what is there.

    Args:
        functions: Gets ``ahead``.
        operands: The left operand, and the right one in panels.
        place: Where in the output.
        columns: Columns of a tile.
    """
    (lhs, rhs), (n, _, *batch) = operands, place
    element, tile = variables("element tile")
    panels, bits = columns // PANEL, rhs.type().bits()
    distance = hl.select(lhs.dim(1).extent() < LEAST_FETCHED, 0, panels)
    panel = hl.min(tile * panels + distance, rhs.dim(2).extent() - panels)
    behind = rhs[(element, 0, panel, *batch[: rhs.dimensions() - 3])]
    ahead = functions["ahead"] = hl.Func("ahead")
    ahead[(element, tile, *batch)] = hl.reinterpret(hl.UInt(bits), behind)

    def is_needed(k: Any) -> Any:
        # The second is the first, but Halide does not know: it keeps the loop over both, by which the schedule fetches.
        first, second = (ahead[(each, n // columns, *batch)] for each in (0, k // hl.Int(32).max()))
        return hl.popcount(first | second) > bits

    return is_needed


def _stage(functions: dict[str, Any], right: Callable[[Any, Any], Any], layout: str, batch: list[Any]) -> Any:
    """Return a copy of the right operand that the schedule keeps a panel at a time, columns adjacent."""
    n, k = variables("n k")
    staged = hl.Func("staged")
    if layout == "columns":
        # Loaded along K, as it lies, and transposed in registers.
        block = hl.Func("block")
        block[(k, n, *batch)] = right(n, k)
        staged[(n, k, *batch)] = block[(k, n, *batch)]
        functions["block"] = block
    else:
        staged[(n, k, *batch)] = right(n, k)
    functions["staged"] = staged
    return staged


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
    rows, columns = desc.variant["rows"], desc.variant["columns"]
    mo, unit = tile_output(definition, (rows, columns), lanes, is_packed=desc.attrs["rhs"] in PACKED)
    acc = definition.functions["acc"]
    acc.compute_at(out, mo)
    if "left" in definition.functions:
        convert_left(definition, lanes, LEAST_CONVERTED)
        tile_groups(definition, rows, columns, lanes)
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
        _schedule_stage(definition.functions, out, unit, columns, lanes)


def tile_output(
    definition: Definition, tile: tuple[int, int], lanes: int, *, is_packed: bool = True
) -> tuple[Any, Any]:
    """Compute the output in tiles, which are divided among tasks; return the loops over tiles of rows and over units.

    Args:
        definition: What is scheduled.
        tile: Rows and columns of a tile.
        lanes: Columns of a vector.
        is_packed: Whether the right operand has whole panels, so that only the store of the last one is guarded: a
            second copy of the loop nest without the guard gains nothing.
    """
    out, n, m = definition.outputs[0], definition.variables["n"], definition.variables["m"]
    no, ni, mo, mi = variables("no ni mo mi")
    tail = hl.TailStrategy.GuardWithIf if is_packed else hl.TailStrategy.ShiftInwards
    out.split(n, no, ni, tile[1], tail).split(m, mo, mi, tile[0], hl.TailStrategy.ShiftInwards)
    unit = _divide_tiles(definition, tile, (ni, mi, mo, no))
    out.vectorize(ni, lanes).unroll(ni).unroll(mi).never_partition_all()
    return mo, unit


def _divide_tiles(definition: Definition, tile: tuple[int, int], loops: tuple[Any, ...]) -> Any:
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


def tile_groups(definition: Definition, rows: int, columns: int, lanes: int) -> None:
    """Keep a tile of sums in registers while groups along K pass, a group of products of a lane at a time."""
    acc, k, rest = definition.functions["acc"], definition.domains["k"], definition.domains["rest"]
    n, m, *_ = acc.args()
    acc.bound_extent(n, columns).bound_extent(m, rows).vectorize(n, lanes).unroll(n).unroll(m)
    ko, ki = variables("ko ki")
    pairs = acc.update(0).reorder(k.x, n, m, k.y).split(n, ko, ki, lanes).reorder(k.x, ki, ko, m, k.y)
    pairs.atomic().vectorize(k.x).vectorize(ki).unroll(ko).unroll(m)
    acc.update(1).reorder(n, m, rest.x).vectorize(n, lanes).unroll(n).unroll(m)
    acc.never_partition_all()


def convert_left(definition: Definition, lanes: int, least: int) -> None:
    """Convert the left operand once, before all tiles: each task some of its rows, ``least`` of them at least."""
    left = definition.functions["left"]
    left.vectorize(left.args()[0], lanes, hl.TailStrategy.GuardWithIf)
    divide_rows(definition, "left", least)


def divide_rows(definition: Definition, name: str, least: int) -> None:
    """Compute what a function has for rows of the output before all tiles: each task some rows, ``least`` at least."""
    function, m, task = definition.functions[name], definition.variables["m"], hl.Var(f"{name}_task")
    length = hl.max(least, share(definition.outputs[0].output_buffer().dim(1).extent(), definition.tasks))
    function.compute_root().split(m, task, m, length, hl.TailStrategy.GuardWithIf).parallel(task).never_partition_all()


def _schedule_stage(functions: dict[str, Any], out: Any, panel: Any, columns: int, lanes: int) -> None:
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
