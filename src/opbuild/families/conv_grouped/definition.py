"""Grouped convolution of blocked values: the definition.

Each lane of a block of 16 output channels belongs to one group, ``group (16, C1 out)``, and ``w (16 out, in, kx, ky, C1
out)`` has its weights for the input channels of that group only. ``channel (C in)`` says at which channel of ``x`` each
input channel lies: channels may lie in another order in memory, e.g. shuffled, at no cost.

Where groups end inside a block, all its groups are accumulated one after the other, ``segments (C1 out)`` of them, each
in its own lanes; so nothing of one group, an infinity say, ever reaches another.
"""

from __future__ import annotations

import halide as hl

from opbuild.backend.halide.definition import Definition, parameter, variables
from opbuild.backend.halide.epilogue import stored
from opbuild.kernel.opdesc import OpDesc


def define(desc: OpDesc) -> Definition:
    """Define it: ``attrs`` has ``kernel``, ``stride`` and ``dilation`` as (x, y), ``masked``, and ``epilogue``."""
    kernel, stride, dilation = desc.attrs["kernel"], desc.attrs["stride"], desc.attrs["dilation"]
    params = {operand.name: parameter(operand) for operand in desc.inputs}
    x, w, bias, channel, group, segments = (params[n] for n in ("x", "w", "bias", "channel", "group", "segments"))
    lane, ox, oy, block = variables("lane ox oy block")
    inputs, masked = w.dim(1).extent(), desc.attrs["masked"]
    loops = [(0, inputs), (0, kernel[0]), (0, kernel[1])]
    r = hl.RDom([*loops, (0, 16)] if masked else loops, "r")
    current = group[0, block]
    if masked:
        r.where(r[3] < segments[block])
        current = current + r[3]
    wanted = hl.unsafe_promise_clamped(current * inputs + r[0], 0, channel.dim(0).extent() - 1)
    place = hl.unsafe_promise_clamped(channel[wanted], 0, x.dim(3).extent() * 16 - 1)
    value = x[place % 16, ox * stride[0] + r[1] * dilation[0], oy * stride[1] + r[2] * dilation[1], place // 16]
    acc = hl.Func("acc")
    acc[lane, ox, oy, block] = bias[lane, block]
    total = acc[lane, ox, oy, block] + w[lane, r[0], r[1], r[2], block] * value
    if masked:
        total = hl.select(group[lane, block] == current, total, acc[lane, ox, oy, block])
    acc[lane, ox, oy, block] = total
    return stored(desc, params, [lane, ox, oy, block], {"acc": acc}, r)
