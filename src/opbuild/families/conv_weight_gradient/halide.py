"""The gradient of a convolution's weights.

``out[j, o]`` is the sum over all images and positions of ``dy[o] * x[c]`` at a tap, where ``j`` counts taps of input
channels as weights have them, ``j = c * taps + ky * KX + kx``. ``dy (16, OW, OH, C1 out, N)``; ``x (16, OW, OH, kx, ky,
C1 in, N)`` is what each output reads at each tap, as in ``conv``: it overlaps itself in memory, and stride and dilation
are its strides. ``out (C in * taps, C out)`` has whole blocks of channels, those beyond what is there included; with
``few``, as many input channels as a block of ``FEW_INPUTS`` holds. With ``blocked``, it lies as ``conv`` reads weights,
``out (16 out, 16 in, KX, KY, C1 in, C1 out)``.

Sums have one order, whatever the number of tasks: ``held`` says whether those of an image (1) or of a row (2) are added
up by themselves.

A tile of ``inputs`` channels of one tap by ``outputs`` blocks of output channels is accumulated in registers while
positions pass: vectors are blocks of output channels, inputs are single numbers. All taps of a block of input channels
are computed together and then turned, so that they are stored as weights lie, in whole vectors.

Work is divided by blocks of channels, never by positions. With ``held``, partial sums wait in memory while all taps
pass over an image or a row, which so stays in a near cache.
"""

from __future__ import annotations

from typing import Any

import halide as hl

from opbuild.backend.halide.definition import Definition, constrain_output, parameters, variables
from opbuild.backend.halide.division import divide
from opbuild.families.blocked import BLOCK
from opbuild.families.layouts import FEW_INPUTS, inputs_at_once
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine


def define(desc: OpDesc) -> Definition:
    """Define it: ``attrs`` has ``kernel`` as (x, y), and perhaps ``few``."""
    dy, x = parameters(desc)
    across, down = desc.attrs["kernel"]
    held = desc.variant["held"]
    j, o, lane, kx, ky, channel, inputs, outputs, image, row = variables(
        "j o lane kx ky channel inputs outputs image row"
    )
    places = [lane, kx, ky, channel, inputs, outputs]
    extents = [dy.dim(axis).extent() for axis in (1, 2, 4)]
    inner = hl.RDom([(0, extent) for extent in extents[: 3 - held]], "inner")
    positions = [*[inner[axis] for axis in range(3 - held)], *([row, image][2 - held :])]
    tile, acc, block, out = (hl.Func(name) for name in ("tile", "acc", "block", "out"))
    apart = [*places, *positions[3 - held :]]
    rx, ry, n = positions
    tile[apart] = hl.f32(0)
    tile[apart] += dy[lane, rx, ry, outputs, n] * x[channel, rx, ry, kx, ky, inputs, n]
    domains = {"inner": inner}
    if held:
        outer = domains["outer"] = hl.RDom([(0, extent) for extent in extents[3 - held :]], "outer")
        acc[places] = hl.f32(0)
        acc[places] += tile[(*places, *[outer[axis] for axis in range(held)])]
    else:
        acc[places] = tile[places]
    functions = {"tile": tile, "acc": acc}
    if desc.attrs.get("blocked"):
        out[lane, channel, kx, ky, inputs, outputs] = acc[places]
    else:
        taps, count = across * down, inputs_at_once(desc.attrs)
        tap, number = j % taps, j // taps
        block[lane, j, outputs] = acc[lane, tap % across, tap // across, number % count, number // count, outputs]
        out[j, o] = block[o % BLOCK, j, o // BLOCK]
        functions["block"] = block
    constrain_output(out, desc.outputs[0])
    names = {each.name(): each for each in (j, o, *places)}
    return Definition([dy, x], [out], names, functions, domains)


EDGE = 8
"""Elements of a row that are stored at once where sums are turned: with 16, the gradient of 512 -> 2048 channels from
64 positions takes 1.18 of the time."""


def schedule(definition: Definition, desc: OpDesc, _machine: Machine) -> None:
    """Schedule by ``variant``: ``outputs`` and ``inputs`` (the register tile), and ``held``."""
    out, functions = definition.outputs[0], definition.functions
    acc, tile = functions["acc"], functions["tile"]
    wide, count = desc.variant["outputs"], inputs_at_once(desc.attrs)
    exact, flat = hl.TailStrategy.RoundUp, hl.Var("flat")
    if "block" in functions:
        _turned(definition, desc, flat)
    else:
        _in_blocks(definition, desc, flat)

    lane, kx, ky, channel, inputs, outputs = acc.args()
    co, ci = variables("co ci")
    order = (lane, ci, outputs, kx, ky, co, inputs)
    acc.compute_at(out, flat).bound_extent(lane, BLOCK).bound_extent(channel, count)
    acc.bound_extent(outputs, wide).bound_extent(inputs, 1)
    acc.bound_extent(kx, desc.attrs["kernel"][0]).bound_extent(ky, desc.attrs["kernel"][1])
    stages = [acc, acc.update()] if desc.variant["held"] else [acc]
    for number, stage in enumerate(stages):
        outer = definition.domains["outer"] if number else []
        stage.split(channel, co, ci, desc.variant["inputs"], exact)
        stage.reorder(*order, *[outer[axis] for axis in range(len(outer))])
        stage.vectorize(lane).unroll(ci).unroll(outputs)

    tile.compute_at(acc, kx)
    lane, _, _, channel, _, outputs, *_ = tile.args()
    tile.bound_extent(lane, BLOCK).bound_extent(channel, desc.variant["inputs"]).bound_extent(outputs, wide)
    tile.vectorize(lane).unroll(channel).unroll(outputs)
    inner = definition.domains["inner"]
    tile.update().reorder(lane, channel, outputs, *[inner[axis] for axis in range(len(inner))])
    tile.update().vectorize(lane).unroll(channel).unroll(outputs)
    for each in (out, acc, tile):
        each.never_partition_all()


def _turned(definition: Definition, desc: OpDesc, flat: Any) -> None:
    """Store the sums of a block of input channels as rows of the weights."""
    out, block, names = definition.outputs[0], definition.functions["block"], definition.variables
    wide, run = desc.variant["outputs"], inputs_at_once(desc.attrs) * desc.attrs["kernel"][0] * desc.attrs["kernel"][1]
    width, exact = EDGE if run % EDGE == 0 else FEW_INPUTS, hl.TailStrategy.RoundUp
    of_block, of_tile, jb, jv = variables("of_block of_tile jb jv")
    j, o = names["j"], names["o"]
    out.split(o, of_block, o, BLOCK, exact).split(of_block, of_tile, of_block, wide, exact)
    out.split(j, jb, j, run, exact).split(j, jv, j, width, exact)
    out.reorder(j, o, jv, of_block, jb, of_tile).vectorize(j).unroll(o).fuse(jb, of_tile, flat)
    extent = (out.output_buffer().dim(0).extent() // run) * (out.output_buffer().dim(1).extent() // (BLOCK * wide))
    divide(out, flat, extent, definition.tasks)
    lane, position, *_ = block.args()
    block.compute_at(out, jv).vectorize(lane).unroll(position).bound_extent(lane, BLOCK).bound_extent(position, width)
    block.never_partition_all()


def _in_blocks(definition: Definition, desc: OpDesc, flat: Any) -> None:
    """Store the sums of a block of input channels in whole vectors."""
    out, wide, of_tile = definition.outputs[0], desc.variant["outputs"], hl.Var("of_tile")
    lane, channel, kx, ky, inputs, outputs = out.args()
    out.split(outputs, of_tile, outputs, wide, hl.TailStrategy.RoundUp)
    out.reorder(lane, channel, kx, ky, outputs, inputs, of_tile).vectorize(lane).fuse(inputs, of_tile, flat)
    buffer = out.output_buffer()
    divide(out, flat, buffer.dim(4).extent() * (buffer.dim(5).extent() // wide), definition.tasks)
