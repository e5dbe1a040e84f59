"""The gradient of a convolution's weights: the definition.

``out[j, o]`` is the sum over all images and positions of ``dy[o] * x[c]`` at a tap, where ``j`` counts taps of input
channels as weights have them, ``j = c * taps + ky * KX + kx``. ``dy (16, OW, OH, C1 out, N)``; ``x (16, OW, OH, kx, ky,
C1 in, N)`` is what each output reads at each tap, as in ``conv``: it overlaps itself in memory, and stride and dilation
are its strides. ``out (C in * taps, C out)`` has whole blocks of channels, those beyond what is there included; with
``few``, as many input channels as a block of ``FEW`` holds. With ``blocked``, it lies as ``conv`` reads weights, ``out
(16 out, 16 in, KX, KY, C1 in, C1 out)``.

Sums have one order, whatever the number of tasks: ``held`` says whether those of an image (1) or of a row (2) are added
up by themselves.
"""

from __future__ import annotations

import halide as hl

from opbuild.backend.halide.definition import Definition, constrain_output, parameters, variables
from opbuild.families.blocked import BLOCK
from opbuild.families.conv_weight_gradient.few import channels
from opbuild.kernel.opdesc import OpDesc


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
        taps, count = across * down, channels(desc.attrs)
        tap, number = j % taps, j // taps
        block[lane, j, outputs] = acc[lane, tap % across, tap // across, number % count, number // count, outputs]
        out[j, o] = block[o % BLOCK, j, o // BLOCK]
        functions["block"] = block
    constrain_output(out, desc.outputs[0])
    names = {each.name(): each for each in (j, o, *places)}
    return Definition([dy, x], [out], names, functions, domains)
