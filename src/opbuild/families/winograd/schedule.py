"""Winograd's convolution: the schedule.

Tiles are taken in chunks of ``chunk_x`` by ``chunk_y`` tiles, a constant, so that scratch has constant strides.
Everything of a chunk is computed by one task, and nothing crosses cores:

* For images with many tiles, a task is a range of rows of chunks.
* For small images with many channels, a task is a range of the output's channel blocks in all chunks: each task
  transforms the input for itself, and each core reads only its part of the weights.

Each of the n * n products is a matrix product of a register tile ``width`` x ``height`` tiles by ``blocks`` channel
blocks.
"""

from __future__ import annotations

from typing import Any

import halide as hl

from opbuild.backend.halide.definition import Definition
from opbuild.backend.halide.division import divide_two, either, share
from opbuild.kernel.machine import Machine
from opbuild.kernel.opdesc import OpDesc

CACHED = 512 * 1024
"""Elements of an output that a core's cache keeps for the next operator (2 MiB). A larger one is divided into more
ranges of rows than there are threads, so that threads that are not equally fast end together (VGG-19: 0.95 of the
time); a smaller one keeps its rows on their core."""

FINER = 8
"""Ranges of rows for each thread then."""

SMALL = 8
"""Tiles across and down, at most, of a small image."""


def schedule(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Schedule by ``variant``, whose parts the family's record describes."""
    chunk = _output(definition, desc)
    _transforms(definition, desc, chunk)
    _products(definition, desc, chunk)
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
    out.reorder(lane, xi, yi, xo, yo, block, chunk, row)
    _divide(definition, desc, (block, chunk, row))
    out.vectorize(lane).unroll(xi).unroll(yi)
    tile, half = definition.functions["tile"], definition.functions["half"]
    tile.compute_at(out, xo).vectorize(lane).unroll(names["i"]).unroll(names["j"])
    tile.bound_extent(names["i"], m).bound_extent(names["j"], m)
    half.compute_at(out, xo).vectorize(lane).unroll(names["b"]).unroll(names["j"])
    half.bound_extent(names["b"], n).bound_extent(names["j"], m)
    return chunk


def _divide(definition: Definition, desc: OpDesc, loops: tuple[Any, Any, Any]) -> None:
    """Make the outermost loop one range a task: of channel blocks, or of rows of chunks."""
    variant, buffer = desc.variant, definition.outputs[0].output_buffer()
    tasks, m = definition.tasks, variant["tile"]
    step = m * variant["chunk_y"]
    count, rows = buffer.dim(3).extent(), (buffer.dim(2).extent() + (step - 1)) // step
    small = hl.max(buffer.dim(1).extent(), buffer.dim(2).extent()) <= m * SMALL
    by_blocks = small & (count >= hl.max(4, 2 * tasks)) & (share(count, tasks) >= variant["blocks"])
    extents = [buffer.dim(axis).extent() for axis in range(4)]
    elements = extents[0] * extents[1] * extents[2] * extents[3]
    blocks_each, rows_each = either(by_blocks, (count, rows), tasks)
    finer = hl.max(1, rows // (tasks * FINER))
    rows_each = hl.select(~by_blocks & (elements > CACHED) & (tasks > 1), finer, rows_each)
    divide_two(definition.outputs[0], loops, (blocks_each, rows_each), hl.TailStrategy.ShiftInwards)


def _transforms(definition: Definition, desc: OpDesc, chunk: Any) -> None:
    """Schedule the input's transform."""
    n, names, out = desc.variant["tile"] + 2, definition.variables, definition.outputs[0]
    lane, block, tx, ty, a, b, i = (names[name] for name in ("lane", "block", "tx", "ty", "a", "b", "i"))
    v, columns = definition.functions["v"], definition.functions["columns"]
    v.compute_at(out, chunk).reorder_storage(lane, tx, ty, b, a, block).reorder(lane, b, a, tx, ty, block)
    v.vectorize(lane).unroll(b).unroll(a).bound(lane, 0, 16).bound(b, 0, n).bound(a, 0, n)
    v.bound_extent(tx, desc.variant["chunk_x"]).bound_extent(ty, desc.variant["chunk_y"])
    columns.compute_at(v, tx).vectorize(lane).unroll(i).unroll(a).bound(a, 0, n).bound_extent(i, n)


def _products(definition: Definition, desc: OpDesc, chunk: Any) -> None:
    """Schedule the matrix products."""
    variant, names, out, r = desc.variant, definition.variables, definition.outputs[0], definition.domains["r"]
    n = variant["tile"] + 2
    lane, block, tx, ty, point = (names[name] for name in ("lane", "block", "tx", "ty", "point"))
    xo, xi, yo, yi, bo, bi = (hl.Var(name) for name in ("pxo", "pxi", "pyo", "pyi", "pbo", "pbi"))
    product, acc = definition.functions["product"], definition.functions["acc"]
    shift = hl.TailStrategy.ShiftInwards
    product.compute_at(out, chunk).reorder_storage(lane, tx, ty, point, block).bound(lane, 0, 16).bound(point, 0, n * n)
    product.bound_extent(tx, variant["chunk_x"]).bound_extent(ty, variant["chunk_y"])
    product.split(tx, xo, xi, variant["width"], shift).split(ty, yo, yi, variant["height"], shift)
    product.split(block, bo, bi, variant["blocks"], shift).reorder(lane, bi, xi, yi, xo, yo, bo, point)
    product.vectorize(lane).unroll(bi).unroll(xi).unroll(yi)
    acc.compute_at(product, xo).vectorize(lane).unroll(block).unroll(tx).unroll(ty)
    acc.bound_extent(tx, variant["width"]).bound_extent(ty, variant["height"]).bound_extent(block, variant["blocks"])
    acc.update().reorder(lane, block, tx, ty, r[0], r[1]).vectorize(lane).unroll(block).unroll(tx).unroll(ty)
