"""Convolution of blocked values: the definition.

``x (16, OW, OH, kx, ky, C1)`` is what each output reads at each tap; it overlaps itself in memory, and stride and
dilation are its strides, so that one kernel serves them all. ``w (16 out, 16 in, kx, ky, C1 in, C1 out)``; ``bias (16,
C1 out)``; ``out (16, OW, OH, C1 out)``.

With ``pairs``, ``w (2 x 16 out, 8 in, kx, ky, C1 in, C1 out)`` is bfloat16, two neighbouring input channels adjacent,
as the instruction for them takes them. The numbers of ``x`` must be bfloat16's too: what lies behind their digits is
cut off. Sums are float32; where the level has the instruction, denormal numbers and sums count as 0.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import halide as hl

from opbuild.backend.halide.definition import Definition, constrain_output, named, parameter, variables
from opbuild.backend.halide.division import either_or_both, is_as_even
from opbuild.backend.halide.epilogue import apply_epilogue, stored
from opbuild.backend.halide.mathematics import BFLOAT16, FLOAT32, narrowed
from opbuild.families.blocked import BLOCK
from opbuild.kernel.opdesc import OpDesc

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
