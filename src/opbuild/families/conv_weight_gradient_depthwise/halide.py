"""The gradient of a depthwise convolution's weights.

``out[j, c]`` is the sum over all images and positions of ``dy[c] * x[c]`` at a tap, where ``j`` counts taps as weights
have them, ``j = ky * KX + kx``. ``dy (16, OW, OH, C1, N)``; ``x (16, OW, OH, kx, ky, C1, N)`` is what each output reads
at each tap: it overlaps itself in memory, and stride and dilation are its strides. ``out (taps, C)`` has whole blocks
of channels, those beyond what is there included.

Sums have one order, whatever the number of tasks: ``held`` says whether those of an image (1) or of a row (2) are added
up by themselves.

Sums of a tile of taps of one channel block stay in registers while positions pass; with all taps in one tile, what came
back is read once. Work is divided by channel blocks, never by positions.
"""

from __future__ import annotations

import halide as hl

from opbuild.backend.halide.definition import Definition, constrain_output, parameters, variables
from opbuild.backend.halide.division import divide
from opbuild.families.blocked import BLOCK
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine


def define(desc: OpDesc) -> Definition:
    """Define it: ``attrs`` has ``kernel`` as (x, y)."""
    dy, x = parameters(desc)
    across, held = desc.attrs["kernel"][0], desc.variant["held"]
    j, c, lane, kx, ky, block, image, row = variables("j c lane kx ky block image row")
    places, extents = [lane, kx, ky, block], [dy.dim(axis).extent() for axis in (1, 2, 4)]
    inner = hl.RDom([(0, extent) for extent in extents[: 3 - held]], "inner")
    apart = [row, image][2 - held :]
    rx, ry, n = (*(inner[axis] for axis in range(3 - held)), *apart)
    tile, acc, out = (hl.Func(name) for name in ("tile", "acc", "out"))
    tile[(*places, *apart)] = hl.f32(0)
    tile[(*places, *apart)] += dy[lane, rx, ry, block, n] * x[lane, rx, ry, kx, ky, block, n]
    domains = {"inner": inner}
    if held:
        outer = domains["outer"] = hl.RDom([(0, extent) for extent in extents[3 - held :]], "outer")
        acc[places] = hl.f32(0)
        acc[places] += tile[(*places, *(outer[axis] for axis in range(held)))]
    else:
        acc[places] = tile[places]
    out[j, c] = acc[c % BLOCK, j % across, j // across, c // BLOCK]
    constrain_output(out, desc.outputs[0])
    names = {each.name(): each for each in (j, c, *places)}
    return Definition([dy, x], [out], names, {"tile": tile, "acc": acc}, domains)


def schedule(definition: Definition, desc: OpDesc, _machine: Machine) -> None:
    """Schedule by ``variant``: ``across`` and ``down`` (the register tile), and ``held``."""
    out, functions, names = definition.outputs[0], definition.functions, definition.variables
    acc, tile = functions["acc"], functions["tile"]
    kernel, across, down = desc.attrs["kernel"], desc.variant["across"], desc.variant["down"]
    exact = hl.TailStrategy.RoundUp
    of_block, x_tile, y_tile = variables("of_block x_tile y_tile")
    j, c = names["j"], names["c"]
    out.split(c, of_block, c, BLOCK, exact).reorder(j, c, of_block)
    divide(out, of_block, out.output_buffer().dim(1).extent() // BLOCK, definition.tasks)

    lane, kx, ky, block = (names[name] for name in ("lane", "kx", "ky", "block"))
    acc.compute_at(out, of_block).bound_extent(lane, BLOCK).bound_extent(block, 1)
    acc.bound_extent(kx, kernel[0]).bound_extent(ky, kernel[1])
    stages = [acc, acc.update()] if desc.variant["held"] else [acc]
    for number, stage in enumerate(stages):
        outer = definition.domains["outer"] if number else []
        stage.split(kx, x_tile, kx, across, exact).split(ky, y_tile, ky, down, exact)
        stage.reorder(lane, kx, ky, x_tile, y_tile, block, *[outer[axis] for axis in range(len(outer))])
        stage.vectorize(lane).unroll(kx).unroll(ky)

    tile.compute_at(acc, x_tile).bound_extent(lane, BLOCK).bound_extent(block, 1)
    tile.bound_extent(kx, across).bound_extent(ky, down).vectorize(lane).unroll(kx).unroll(ky)
    inner = definition.domains["inner"]
    tile.update().reorder(lane, kx, ky, *[inner[axis] for axis in range(len(inner))])
    tile.update().vectorize(lane).unroll(kx).unroll(ky)
    for each in (out, acc, tile):
        each.never_partition_all()
