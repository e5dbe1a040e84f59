"""Convolution of blocked values: the definition.

``x (16, OW, OH, kx, ky, C1)`` is what each output reads at each tap; it overlaps itself in memory, and stride and
dilation are its strides, so that one kernel serves them all. ``w (16 out, 16 in, kx, ky, C1 in, C1 out)``; ``bias (16,
C1 out)``; ``out (16, OW, OH, C1 out)``.
"""

from __future__ import annotations

import halide as hl

from opbuild.backend.halide.definition import Definition, parameter, variables
from opbuild.backend.halide.epilogue import stored
from opbuild.kernel.opdesc import OpDesc


def define(desc: OpDesc) -> Definition:
    """Define the convolution: ``attrs`` has ``kernel`` as (x, y), and ``epilogue``."""
    kernel = desc.attrs["kernel"]
    params = {operand.name: parameter(operand) for operand in desc.inputs}
    x, w, bias = params["x"], params["w"], params["bias"]
    lane, ox, oy, block = variables("lane ox oy block")
    r = hl.RDom([(0, 16), (0, kernel[0]), (0, kernel[1]), (0, x.dim(5).extent())], "r")
    acc = hl.Func("acc")
    acc[lane, ox, oy, block] = bias[lane, block]
    acc[lane, ox, oy, block] += w[lane, r[0], r[1], r[2], r[3], block] * x[r[0], ox, oy, r[1], r[2], r[3]]
    return stored(desc, params, [lane, ox, oy, block], {"acc": acc}, r)
