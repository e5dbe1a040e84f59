"""The gradient of a depthwise convolution's weights: the definition.

``out[j, c]`` is the sum over all images and positions of ``dy[c] * x[c]`` at a tap, where ``j`` counts taps as weights
have them, ``j = ky * KX + kx``. ``dy (16, OW, OH, C1, N)``; ``x (16, OW, OH, kx, ky, C1, N)`` is what each output reads
at each tap: it overlaps itself in memory, and stride and dilation are its strides. ``out (taps, C)`` has whole blocks
of channels, those beyond what is there included.

Sums have one order, whatever the number of tasks: ``held`` says whether those of an image (1) or of a row (2) are added
up by themselves.
"""

from __future__ import annotations

import halide as hl

from opbuild.backend.halide.definition import Definition, constrain_output, parameters, variables
from opbuild.families.blocked import BLOCK
from opbuild.kernel.opdesc import OpDesc


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
