"""Convolution of blocked values.

``x (16, OW, OH, kx, ky, C1)`` is what each output reads at each tap; it overlaps itself in memory, and stride and
dilation are its strides, so that one kernel serves them all. ``w (16 out, 16 in, kx, ky, C1 in, C1 out)``; ``bias (16,
C1 out)``; ``out (16, OW, OH, C1 out)``.

With ``pairs``, ``w (2 x 16 out, 8 in, kx, ky, C1 in, C1 out)`` is bfloat16, two neighbouring input channels adjacent,
as the instruction for them takes them. The numbers of ``x`` must be bfloat16's too: what lies behind their digits is
cut off. Sums are float32; where the level has the instruction, denormal numbers and sums count as 0.

A tile of ``width`` positions of a row by ``blocks`` channel blocks is accumulated in registers. Vectors are blocks of
16 channels; where registers are shorter, LLVM makes several of each (AVX2 on Zen 5: 103 of 113 GFLOP/s in 2 x 2).

Work is divided into one range of rows or of channel blocks a task, not into many small ones: the next operator divides
the same way, so a core finds its input in its own cache (the 1 x 1 ones of ResNet-50: 229 against 179 GFLOP/s on two
Sapphire Rapids cores). Which of the two is decided at each call, from the extents.

With ``chunked``, input channels are taken one block at a time, whose weights stay in the first-level cache while a
group of rows passes over them; partial sums wait in memory. The width must then divide the row. Without, tails are
shifted inwards, so an extent below a tile is not legal.

With ``joined``, tiles are counted along all rows and pass over their ends, so that few positions are computed twice.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import halide as hl

from opbuild.backend.halide.definition import Definition, constrain_output, named, parameter, variables
from opbuild.backend.halide.division import divide_two, either_or_both, is_as_even
from opbuild.backend.halide.epilogue import accumulate, apply_epilogue, stored
from opbuild.backend.halide.mathematics import BFLOAT16, FLOAT32, narrowed
from opbuild.families.blocked import BLOCK
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine

LOCALITY = 0.93
"""Time that a task takes where what it reads is in its core's cache, relative to where it is not."""


def define(desc: OpDesc) -> Definition:
    """Define the convolution: ``attrs`` has ``kernel`` as (x, y), ``epilogue``, and perhaps ``pairs``."""
    kernel = desc.attrs["kernel"]
    params = {operand.name: parameter(operand) for operand in desc.inputs}
    x, w, bias = params["x"], params["w"], params["bias"]
    lane, ox, oy, block = variables("lane ox oy block")
    taps = [(0, kernel[0]), (0, kernel[1]), (0, x.dim(5).extent())]
    if desc.variant.get("joined"):
        return _joined(desc, params, taps)
    acc = hl.Func("acc")
    acc[lane, ox, oy, block] = bias[lane, block]
    if desc.attrs.get("pairs"):
        r = hl.RDom([(0, 2), (0, BLOCK // 2), *taps], "r")
        left, kx, ky = hl.Func("left"), hl.Var("kx"), hl.Var("ky")
        left[lane, ox, oy, kx, ky, block] = narrowed(x[lane, ox, oy, kx, ky, block], BFLOAT16, rounds=False)
        read = hl.cast(FLOAT32, left[r[1] * 2 + r[0], ox, oy, r[2], r[3], r[4]])
        acc[lane, ox, oy, block] += read * hl.cast(FLOAT32, w[lane * 2 + r[0], r[1], r[2], r[3], r[4], block])
        return replace(stored(desc, params, [lane, ox, oy, block], {"acc": acc, "left": left}, r), dots=True)
    r = hl.RDom([(0, BLOCK), *taps], "r")
    acc[lane, ox, oy, block] += w[lane, r[0], r[1], r[2], r[3], block] * x[r[0], ox, oy, r[1], r[2], r[3]]
    return stored(desc, params, [lane, ox, oy, block], {"acc": acc}, r)


def _joined(desc: OpDesc, params: dict[str, Any], taps: list[tuple[Any, Any]]) -> Definition:
    """Define the convolution with positions counted along all rows, so that few are computed twice at their ends.

    A tile begins at (``left``, ``top``) and passes over the end of one row at most. The domain ``t`` has a tile's
    blocks and positions, a task's tiles of positions and of blocks, and the tasks of both.
    """
    x, w, bias = params["x"], params["w"], params["bias"]
    width, blocks = desc.variant["width"], desc.variant["blocks"]
    lane, ox, oy, block, position, left, top = variables("lane ox oy block position left top")
    row, count, sets = x.dim(1).extent(), x.dim(1).extent() * x.dim(2).extent(), bias.dim(1).extent()
    tasks = hl.Param(hl.Int(32), "tasks")

    def place(number: Any, left: Any, top: Any) -> tuple[Any, Any]:
        beyond = left + number >= row
        return left + number - hl.select(beyond, row, 0), top + hl.select(beyond, 1, 0)

    r = hl.RDom([(0, BLOCK), *taps], "r")
    acc, value, out = hl.Func("acc"), hl.Func("value"), hl.Func("out")
    own, placed = (lane, position, block, left, top), place(position, left, top)
    acc[own] = bias[lane, block]
    acc[own] += w[lane, r[0], r[1], r[2], r[3], block] * x[(r[0], *placed, r[1], r[2], r[3])]
    value[own] = apply_epilogue(desc, params, acc[own], (lane, *placed, block), own)

    extents = ((count + (width - 1)) // width, (sets + (blocks - 1)) // blocks)
    lengths = task_lengths(desc, x, extents, sets, tasks)
    ways = ((extent + length - 1) // length for extent, length in zip(extents, lengths, strict=True))
    t = hl.RDom([(0, extent) for extent in (blocks, width, *lengths, *ways)], "t")
    tile, tiles = (t[axis + 2] * length + t[axis] for axis, length in zip((2, 3), lengths, strict=True))
    t.where(tile < extents[0])
    t.where(tiles < extents[1])
    first, block_of = hl.min(tile * width, count - width), hl.min(tiles * blocks, sets - blocks) + t[0]
    begin = (first - first // row * row, first // row)  # of a remainder Halide would know no more than its range
    out[lane, ox, oy, block] = hl.undef(hl.Float(32))
    out[(lane, *place(t[1], *begin), block_of)] = value[(lane, t[1], block_of, *begin)]
    constrain_output(out, desc.outputs[0])
    return Definition(list(params.values()), [out], named(own), {"acc": acc}, {"r": r, "t": t}, tasks)


def task_lengths(desc: OpDesc, x: Any, extents: tuple[Any, Any], outputs: Any, tasks: Any) -> tuple[Any, Any]:
    """Return the lengths of a task's ranges of positions and of tiles of channel blocks; one of them is all there are.

    Positions where activations are larger than weights, so that a core keeps its own from layer to layer; blocks where
    weights are larger, so that one core only reads each; unless cores would wait for each other much longer.

    Args:
        desc: The convolution.
        x: Its input.
        extents: Rows, or tiles along all of them, and tiles of channel blocks; expressions.
        outputs: Channel blocks of the output, an expression.
        tasks: How many tasks are wanted, an expression.
    """
    inputs = x.dim(5).extent()
    weights = BLOCK * inputs * outputs * prod(desc.attrs["kernel"])
    activations = (inputs + outputs) * x.dim(1).extent() * x.dim(2).extent()
    worth = hl.select(weights > activations, hl.f32(1 / LOCALITY), hl.f32(LOCALITY))
    return either_or_both(is_as_even(*extents, tasks, worth), extents, tasks)


ROWS = 8
"""Rows that pass over one chunk of weights: enough to pay for it, and their sums still fit the second-level cache."""


def schedule(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Schedule by ``variant``: ``width``, ``blocks`` (the register tile) and ``chunked``."""
    if desc.variant.get("joined"):
        _schedule_joined(definition, desc, machine)
    elif desc.variant["chunked"]:
        _schedule_chunked(definition, desc, machine)
    else:
        _schedule_whole(definition, desc, machine)


def _schedule_whole(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Accumulate all input channels at once, in registers."""
    lane, ox, block = tile_rows(definition, desc)
    left, r = definition.functions.get("left"), definition.domains["r"]
    if left is None:
        update = definition.functions["acc"].update()
        accumulate(update, (lane, ox, block), (r[0], r[1], r[2], r[3]), desc, machine)
    else:
        accumulate_groups(definition, (lane, ox, block))
        # Each task converts what it reads: cores that read each other's would wait.
        left.compute_at(definition.outputs[0], hl.Var("task")).bound_extent(left.args()[0], BLOCK)
        left.vectorize(left.args()[0]).never_partition_all()


def tile_rows(definition: Definition, desc: OpDesc) -> tuple[Any, Any, Any]:
    """Take tiles of the positions of a row, with their sums in registers; return the loops of a tile's sums."""
    width, blocks = desc.variant["width"], desc.variant["blocks"]
    out, acc = definition.outputs[0], definition.functions["acc"]
    lane, ox, oy, block = (definition.variables[name] for name in ("lane", "ox", "oy", "block"))
    xo, xi, bo, bi = (hl.Var(name) for name in ("xo", "xi", "bo", "bi"))
    shift = hl.TailStrategy.ShiftInwards
    out.split(ox, xo, xi, width, shift).split(block, bo, bi, blocks, shift).reorder(lane, bi, xi, xo, oy, bo)
    out.vectorize(lane).unroll(bi).unroll(xi)
    divide_outer(definition, desc, (oy, bo))
    acc.compute_at(out, xo).vectorize(lane).unroll(block).unroll(ox).bound_extent(ox, width).bound_extent(block, blocks)
    for function in (out, acc):
        function.never_partition_all()
    return lane, ox, block


def accumulate_groups(definition: Definition, loops: tuple[Any, Any, Any]) -> None:
    """Add up neighbouring products of a sum by one instruction, while the inputs of a tile pass."""
    (lane, ox, block), r = loops, definition.domains["r"]
    update = definition.functions["acc"].update().reorder(r[0], lane, block, ox, *(r[axis] for axis in range(1, 5)))
    update.atomic().vectorize(r[0]).vectorize(lane).unroll(block).unroll(ox)


def _schedule_joined(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Accumulate all input channels at once, in registers, in tiles that pass over the ends of rows."""
    out, acc = definition.outputs[0].update(), definition.functions["acc"]
    r, t = definition.domains["r"], definition.domains["t"]
    lane, position, block, left, top = (
        definition.variables[name] for name in ("lane", "position", "block", "left", "top")
    )
    task = hl.RVar("task")
    out.allow_race_conditions()  # tiles that overlap at the end write the same
    out.reorder(lane, *(t[axis] for axis in range(6))).vectorize(lane).unroll(t[0]).unroll(t[1])
    out.fuse(t[4], t[5], task).parallel(task)
    acc.compute_at(definition.outputs[0], t[2]).vectorize(lane).unroll(block).unroll(position)
    acc.bound_extent(position, desc.variant["width"]).bound_extent(block, desc.variant["blocks"])
    acc.bound_extent(left, 1).bound_extent(top, 1)
    accumulate(acc.update(), (lane, position, block), (r[0], r[1], r[2], r[3]), desc, machine)
    for function in (definition.outputs[0], acc):
        function.never_partition_all()


def _schedule_chunked(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Accumulate blocks of input channels in registers and add them up in memory."""
    width, blocks = desc.variant["width"], desc.variant["blocks"]
    out, acc, r = definition.outputs[0], definition.functions["acc"], definition.domains["r"]
    lane, ox, oy, block = (definition.variables[name] for name in ("lane", "ox", "oy", "block"))
    bo, bi, rows, row, xo, xi, index = (hl.Var(name) for name in ("bo", "bi", "rows", "row", "xo", "xi", "index"))
    partial = acc.update().rfactor(r[3], index)

    out.split(block, bo, bi, blocks, hl.TailStrategy.ShiftInwards).reorder(lane, bi, ox, oy, bo)
    out.vectorize(lane).unroll(bi)
    divide_outer(definition, desc, (oy, bo))
    out.split(oy, rows, row, ROWS, hl.TailStrategy.GuardWithIf).reorder(lane, bi, ox, row, rows)

    acc.compute_at(out, rows).bound_extent(block, blocks).reorder_storage(lane, block, ox, oy)
    acc.reorder(lane, block, ox, oy).vectorize(lane).unroll(block)
    acc.update().split(ox, xo, xi, width, hl.TailStrategy.RoundUp).reorder(lane, block, xi, xo, oy, r[3])
    acc.update().vectorize(lane).unroll(block).unroll(xi)

    partial.compute_at(acc, xo).vectorize(lane).unroll(block).unroll(ox)
    partial.bound_extent(ox, width).bound_extent(block, blocks)
    accumulate(partial.update(), (lane, ox, block), (r[0], r[1], r[2]), desc, machine)
    for stage in (out, acc, acc.update(), partial, partial.update()):  # a last row apart would be the loops again
        stage.never_partition_all()


def divide_outer(definition: Definition, desc: OpDesc, loops: tuple[Any, Any]) -> None:
    """Make the outermost loops, over rows and over tiles of channel blocks, ranges of one of them, a task each."""
    out, x, blocks = definition.outputs[0], definition.inputs[0], desc.variant["blocks"]
    height, sets = (out.output_buffer().dim(axis).extent() for axis in (2, 3))
    lengths = task_lengths(desc, x, (height, (sets + (blocks - 1)) // blocks), sets, definition.tasks)
    divide_two(out, loops, lengths)
