"""Winograd's convolution, F(m x m, 3 x 3) with m = 2 or 4, of blocked values.

``x (16, W + 2, H + 2, C1)`` is a window of the valid extents plus the kernel's two; ``u (16 out, C in, C1 out, n *
n)`` with n = m + 2 are the transformed weights; ``bias (16, C1 out)``; ``out (16, OW, OH, C1 out)`` has extents
rounded up to whole chunks of tiles: what lies beyond the valid extents gets zero, which is what the halo holds
anyway. Reads beyond the valid extents meet the halo of the input. Matrices are those of Lavin and Gray, "Fast
Algorithms for Convolutional Neural Networks".

Tiles are taken in chunks of ``chunk_x`` by ``chunk_y`` tiles, constants, so that scratch has constant strides.
Nothing crosses cores: a task computes for itself all that it needs. It has a range of rows of chunks, of rows of tiles
in each chunk, and of channel blocks:

* In images with many tiles, tasks share the rows of chunks.
* In small images, which are one chunk, tasks share the channel blocks: each transforms the input for itself, and each
  core reads only its part of the weights. Where blocks are fewer than tasks, rows of tiles are shared as well.

Each of the n * n products is a matrix product of a register tile of ``width`` tiles by ``blocks`` channel blocks. Its
tiles are counted along all rows of the chunk, so that few are computed twice at its end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import halide as hl

from opbuild.backend.halide.definition import (
    CHECKED,
    Definition,
    computed,
    parameter,
    variables,
)
from opbuild.backend.halide.division import balance, share
from opbuild.backend.halide.epilogue import accumulate, apply_epilogue
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine

INPUT = {
    2: ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1)),
    4: (
        (4, 0, -5, 0, 1, 0),
        (0, -4, -4, 1, 1, 0),
        (0, 4, -4, -1, 1, 0),
        (0, -2, -1, 2, 1, 0),
        (0, 2, -1, -2, 1, 0),
        (0, 4, 0, -5, 0, 1),
    ),
}
"""The input's transform, B transposed, by m."""

OUTPUT = {
    2: ((1, 1, 1, 0), (0, 1, -1, -1)),
    4: ((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1)),
}
"""The output's transform, A transposed, by m."""


Accumulate = Callable[[Any, Any, Callable[[Any, Any], Any]], Any]
"""Defines a sum: of its function, its place (lane, block, t, point, cx, cy) and what reads the transformed input at a
lane and a block. Returns the domain."""


def define(desc: OpDesc) -> Definition:
    """Define it: ``attrs`` has ``epilogue``, ``variant`` has ``tile`` (m).

    With ``variant["checked"]``, zeros stand for what lies beyond the extents of ``x``: the halo is not part of them.
    """
    params = {operand.name: parameter(operand) for operand in desc.inputs}
    x, u = params["x"], params["u"]

    def accumulate(acc: Any, place: Any, read: Callable[[Any, Any], Any]) -> Any:
        lane, block, _, point, *_ = place
        r = hl.RDom([(0, 16), (0, x.dim(3).extent())], "r")
        acc[place] = hl.f32(0)
        acc[place] += read(r[0], r[1]) * u[lane, r[1] * 16 + r[0], block, point]
        return r

    return transformed(desc, params, hl.Float(32), accumulate, lambda total: total)


def transformed(
    desc: OpDesc, params: dict[str, Any], kind: Any, accumulate: Accumulate, scaled: Callable[[Any], Any]
) -> Definition:
    """Define a convolution by its products of transformed inputs and weights.

    Args:
        desc: The descriptor.
        params: Parameters of its inputs by name.
        kind: The type of transformed inputs.
        accumulate: What defines the products' sums.
        scaled: What the transformed sums are divided by, as a function of them.
    """
    m, across, down = (desc.variant[name] for name in ("tile", "chunk_x", "chunk_y"))
    n = m + 2
    x, bias = params["x"], params["bias"]
    source = hl.BoundaryConditions.constant_exterior(x, hl.cast(x.type(), 0)) if desc.variant.get(CHECKED) else x
    lane, block, t, cx, cy, a, b, i, j, point, ox, oy = variables("lane block t cx cy a b i j point ox oy")
    functions = {name: hl.Func(name) for name in ("columns", "v", "acc", "product", "half", "tile")}
    columns, v, acc, product, half, tile = functions.values()
    taps = range(n)
    left, top = (cx * across + t % across) * m, (cy * down + t // across) * m
    read = [hl.cast(kind, source[lane, left + i, top + k, block]) for k in taps]
    columns[lane, block, t, i, a, cx, cy] = hl.mux(a, [combine(row, read) for row in INPUT[m]])
    v[lane, block, t, b, a, cx, cy] = hl.mux(
        b, [combine(row, [columns[lane, block, t, k, a, cx, cy] for k in taps]) for row in INPUT[m]]
    )
    place = (lane, block, t, point, cx, cy)
    r = accumulate(acc, place, lambda channel, of: v[channel, of, t, point % n, point // n, cx, cy])
    product[place] = acc[place]
    half[lane, block, t, b, j, cx, cy] = hl.mux(
        j, [combine(row, [product[lane, block, t, b + n * k, cx, cy] for k in taps]) for row in OUTPUT[m]]
    )
    tile[lane, block, t, i, j, cx, cy] = hl.mux(
        i, [combine(row, [half[lane, block, t, k, j, cx, cy] for k in taps]) for row in OUTPUT[m]]
    )
    chunk = (ox // (m * across), oy // (m * down))
    # Halide finds the one tile that a position needs from differences, not from remainders.
    number = (oy // m - chunk[1] * down) * across + (ox // m - chunk[0] * across)
    # It is one of the chunk's; without schedule (ccec_O0) Halide would compute, and read, what lies far outside.
    number = hl.unsafe_promise_clamped(number, 0, across * down - 1)
    total = scaled(tile[lane, block, number, ox % m, oy % m, chunk[0], chunk[1]]) + bias[lane, block]
    result = apply_epilogue(desc, params, total, (lane, ox, oy, block))
    valid = (ox < x.dim(1).extent() - 2) & (oy < x.dim(2).extent() - 2)
    value = hl.select(valid, result, hl.cast(result.type(), 0))
    loops = (t, cx, cy, a, b, i, j, point)
    return computed(desc, [*params.values()], (lane, ox, oy, block), value, functions, {"r": r}, loops=loops)


def combine(coefficients: Sequence[int], values: Sequence[Any]) -> Any:
    """Return the sum of ``values`` weighted with small integers, without multiplying by 0 or 1."""
    total = None
    for coefficient, value in zip(coefficients, values, strict=True):
        if coefficient == 0:
            continue
        term = value if abs(coefficient) == 1 else value * hl.f32(float(abs(coefficient)))
        if total is None:
            total = term if coefficient > 0 else -term
        else:
            total = total + term if coefficient > 0 else total - term
    return total


CACHED = 512 * 1024
"""Elements of an output that a core's cache keeps for the next operator (2 MiB). A larger one is divided into more
ranges of rows than there are threads, so that threads that are not equally fast end together (VGG-19: 0.95 of the
time); a smaller one keeps its rows on their core."""

WORTH, TWICE = 0.94, 1.05
"""Share of time that cores must work where channel blocks are divided, relative to rows, for which each reads all
weights: of chunks of several rows, and of one, where inputs, which each core then transforms, are more of the work."""

FINER = 8
"""Ranges of rows for each thread then."""


def schedule(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Schedule by ``variant``, whose parts the family's record describes."""
    chunk = _output(definition, desc)
    _transforms(definition, desc, chunk)
    _products(definition, desc, chunk, machine)
    for function in (*definition.outputs, *definition.functions.values()):
        function.never_partition_all()


def _output(definition: Definition, desc: OpDesc) -> Any:
    """Schedule the output and its transform; return the loop over chunks."""
    variant, out, names = desc.variant, definition.outputs[0], definition.variables
    m, n = variant["tile"], variant["tile"] + 2
    lane, block, ox, oy = names["lane"], names["block"], names["ox"], names["oy"]
    xo, xi, yo, yi, chunk, row = (hl.Var(name) for name in ("xo", "xi", "yo", "yi", "chunk", "row"))
    whole = hl.TailStrategy.RoundUp
    out.split(ox, xo, xi, m, whole).split(oy, yo, yi, m, whole)
    out.split(xo, chunk, xo, variant["chunk_x"], whole).split(yo, row, yo, variant["chunk_y"], whole)
    _divide(definition, desc, (lane, xi, yi, xo), (yo, block, chunk, row))
    out.vectorize(lane).unroll(xi).unroll(yi)
    tile, half = definition.functions["tile"], definition.functions["half"]
    tile.compute_at(out, xo).vectorize(lane).unroll(names["i"]).unroll(names["j"])
    tile.bound_extent(names["i"], m).bound_extent(names["j"], m)
    half.compute_at(out, xo).vectorize(lane).unroll(names["b"]).unroll(names["j"])
    half.bound_extent(names["b"], n).bound_extent(names["j"], m)
    return chunk


def _divide(definition: Definition, desc: OpDesc, inner: tuple[Any, ...], loops: tuple[Any, ...]) -> None:
    """Divide the output among tasks: ranges of rows of chunks, of rows of tiles in a chunk, and of channel blocks."""
    out, (yo, block, chunk, row) = definition.outputs[0], loops
    buffer = out.output_buffer()
    each = division(desc.variant, [buffer.dim(axis).extent() for axis in range(4)], definition.tasks)
    part, blocks, rows, task = (hl.Var(name) for name in ("part", "blocks", "rows", "task"))
    shift = hl.TailStrategy.ShiftInwards
    out.split(yo, part, yo, each.part, shift)
    out.split(block, blocks, block, each.blocks, shift)
    out.split(row, rows, row, each.rows, hl.TailStrategy.GuardWithIf)
    out.reorder(*inner, yo, block, chunk, row, blocks, part, rows)
    out.fuse(part, rows, task).fuse(blocks, task, task).parallel(task)


@dataclass(frozen=True)
class Task:
    """The extents of a task: rows of chunks, rows of tiles of each chunk, and channel blocks; expressions."""

    rows: Any
    part: Any
    blocks: Any


def division(variant: Mapping[str, Any], extents: Sequence[Any], tasks: Any) -> Task:
    """Return the division of a call among tasks.

    Where chunks have several rows, channel blocks are divided as far as they and the tasks have a common divisor, or
    among all tasks where that is about as even as rows are, and rows among the tasks that are left: each core reads
    only its part of the weights. Else rows come first. The formula is short because it is part of every index: one that
    weighed three divisions against each other, and was more even for 11 or 13 tasks, took 0.35 s more to compile.

    Args:
        variant: The kernel's variant.
        extents: Of the output: lane, x, y, block; expressions, as what is returned.
        tasks: How many tasks are wanted, an expression.
    """
    down, least = variant["chunk_y"], -(-variant["width"] // variant["chunk_x"])
    rows, count = share(extents[2], variant["tile"] * down), hl.max(1, extents[3])
    sets = share(count, variant["blocks"])
    ranges = hl.max(1, tasks // (rows * max(1, down // least)))
    even = balance(sets, tasks) >= hl.f32(WORTH if down > 1 else TWICE) * balance(rows * down, tasks)
    ranges = hl.max(ranges, hl.select(even, tasks, _common(sets, tasks) if down > 1 else 1))
    ways = tasks // ranges
    each = share(rows, ways)
    large = (extents[0] * extents[1] * extents[2] * extents[3] > CACHED) & (tasks > 1)
    each = hl.select(large & (ranges == 1), hl.max(1, rows // (tasks * FINER)), each)
    part = hl.max(share(down, hl.clamp(ways // rows, 1, down)), least) if down > 1 else hl.Expr(1)
    return Task(each, part, hl.min(share(sets, ranges) * variant["blocks"], count))


def _common(sets: Any, tasks: Any) -> Any:
    """Return a common divisor of two numbers, at least 1; the greatest of those that count."""
    result: Any = hl.select((sets % 2 == 0) & (tasks % 2 == 0), 2, 1)
    result = hl.select((sets % 4 == 0) & (tasks % 4 == 0), 4, result)
    result = hl.select(tasks % sets == 0, sets, result)
    return hl.select(sets % tasks == 0, tasks, result)


def _transforms(definition: Definition, desc: OpDesc, chunk: Any) -> None:
    """Schedule the input's transform."""
    n, names, out = desc.variant["tile"] + 2, definition.variables, definition.outputs[0]
    lane, block, t, a, b, i = (names[name] for name in ("lane", "block", "t", "a", "b", "i"))
    v, columns = definition.functions["v"], definition.functions["columns"]
    v.compute_at(out, chunk).reorder_storage(lane, t, b, a, block).reorder(lane, b, a, t, block)
    v.vectorize(lane).unroll(b).unroll(a).bound(lane, 0, 16).bound(b, 0, n).bound(a, 0, n)
    v.bound_storage(t, desc.variant["chunk_x"] * desc.variant["chunk_y"])
    v.bound_extent(names["cx"], 1).bound_extent(names["cy"], 1)
    columns.compute_at(v, t).vectorize(lane).unroll(i).unroll(a).bound(a, 0, n).bound_extent(i, n)


def _products(definition: Definition, desc: OpDesc, chunk: Any, machine: Machine) -> None:
    """Schedule the matrix products."""
    variant, names, out, r = desc.variant, definition.variables, definition.outputs[0], definition.domains["r"]
    n = variant["tile"] + 2
    lane, block, t, point = (names[name] for name in ("lane", "block", "t", "point"))
    to, ti, bo, bi = (hl.Var(name) for name in ("pto", "pti", "pbo", "pbi"))
    product, acc = definition.functions["product"], definition.functions["acc"]
    shift = hl.TailStrategy.ShiftInwards
    product.compute_at(out, chunk).reorder_storage(lane, t, point, block).bound(lane, 0, 16).bound(point, 0, n * n)
    product.bound_storage(t, variant["chunk_x"] * variant["chunk_y"])
    product.bound_extent(names["cx"], 1).bound_extent(names["cy"], 1)
    product.split(t, to, ti, variant["width"], shift)
    product.split(block, bo, bi, variant["blocks"], shift).reorder(lane, bi, ti, to, bo, point)
    product.vectorize(lane).unroll(bi).unroll(ti)
    acc.compute_at(product, to).vectorize(lane).unroll(block).unroll(t)
    acc.bound_extent(t, variant["width"]).bound_extent(block, variant["blocks"])
    accumulate(acc.update(), (lane, t, block), (r[0], r[1]), desc, machine)
