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

import halide as hl

from opbuild.backend.halide.definition import Definition, parameter, variables
from opbuild.backend.halide.epilogue import stored
from opbuild.backend.halide.mathematics import BFLOAT16, FLOAT32, narrowed
from opbuild.families.blocked import BLOCK
from opbuild.kernel.opdesc import OpDesc


def define(desc: OpDesc) -> Definition:
    """Define the convolution: ``attrs`` has ``kernel`` as (x, y), ``epilogue``, and perhaps ``pairs``."""
    kernel = desc.attrs["kernel"]
    params = {operand.name: parameter(operand) for operand in desc.inputs}
    x, w, bias = params["x"], params["w"], params["bias"]
    lane, ox, oy, block = variables("lane ox oy block")
    taps = [(0, kernel[0]), (0, kernel[1]), (0, x.dim(5).extent())]
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
