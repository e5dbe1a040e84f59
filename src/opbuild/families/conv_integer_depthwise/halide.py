"""Depthwise convolution of blocked 8-bit numbers.

``x (16, W, H, C1)`` uint8 is a window that starts at the first tap of the first output; ``w (16, kx, ky, C1)`` int16;
``bias (16, C1)`` int32; ``out (16, OW, OH, C1)``.

Products are added up in float32, which no machine does slower than in int32: each of at most ``MOST_TAPS`` of them is
a whole number below 2^16, so every sum is one below 2^24, which float32 holds exactly.

Schedule: that of ``conv_depthwise``.
"""

from __future__ import annotations

import halide as hl

from opbuild.backend.halide.definition import Definition, parameter, variables
from opbuild.backend.halide.epilogue import stored
from opbuild.families.conv_depthwise.halide import schedule
from opbuild.kernel.opdesc import OpDesc

__all__ = ["define", "schedule"]


INT32, FLOAT32 = hl.Int(32), hl.Float(32)


def define(desc: OpDesc) -> Definition:
    """Define it: ``attrs`` has ``kernel``, ``stride`` and ``dilation`` as (x, y), and ``epilogue``."""
    kernel, stride, dilation = desc.attrs["kernel"], desc.attrs["stride"], desc.attrs["dilation"]
    params = {operand.name: parameter(operand) for operand in desc.inputs}
    x, w, bias = params["x"], params["w"], params["bias"]
    lane, ox, oy, block = index = variables("lane ox oy block")
    r = hl.RDom([(0, kernel[0]), (0, kernel[1])], "r")
    sums, acc = hl.Func("sums"), hl.Func("acc")
    tap = x[lane, ox * stride[0] + r[0] * dilation[0], oy * stride[1] + r[1] * dilation[1], block]
    sums[index] = hl.f32(0.0)
    sums[index] += hl.cast(FLOAT32, tap) * hl.cast(FLOAT32, w[lane, r[0], r[1], block])
    acc[index] = hl.cast(INT32, sums[index]) + bias[lane, block]
    definition = stored(desc, params, index, {"acc": acc}, r)
    definition.functions = {"acc": sums}
    return definition
