"""Depthwise convolution of blocked values: the definition.

``x (16, W, H, C1)`` is a window that starts at the first tap of the first output; ``w (16, kx, ky, C1)``; ``bias (16,
C1)``; ``out (16, OW, OH, C1)``.
"""

from __future__ import annotations

import halide as hl

from opbuild.backend.halide.definition import Definition, parameter, variables
from opbuild.backend.halide.epilogue import stored
from opbuild.kernel.opdesc import OpDesc


def define(desc: OpDesc) -> Definition:
    """Define it: ``attrs`` has ``kernel``, ``stride`` and ``dilation`` as (x, y), and ``epilogue``."""
    kernel, stride, dilation = desc.attrs["kernel"], desc.attrs["stride"], desc.attrs["dilation"]
    params = {operand.name: parameter(operand) for operand in desc.inputs}
    x, w, bias = params["x"], params["w"], params["bias"]
    lane, ox, oy, block = variables("lane ox oy block")
    r = hl.RDom([(0, kernel[0]), (0, kernel[1])], "r")
    acc = hl.Func("acc")
    acc[lane, ox, oy, block] = bias[lane, block]
    acc[lane, ox, oy, block] += (
        w[lane, r[0], r[1], block]
        * x[lane, ox * stride[0] + r[0] * dilation[0], oy * stride[1] + r[1] * dilation[1], block]
    )
    return stored(desc, params, [lane, ox, oy, block], {"acc": acc}, r)
