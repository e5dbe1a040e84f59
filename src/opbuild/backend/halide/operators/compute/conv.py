"""Convolution of blocked values: the definition.

``x (16, W, H, C1)`` is a window that starts at the first tap of the first output; ``w (16 out, 16 in, kx, ky, C1 in,
C1 out)``; ``bias (16, C1 out)``; ``out (16, OW, OH, C1 out)``.
"""

from __future__ import annotations

import halide as hl

from opbuild.backend.halide.definition import Definition, constrain_output, parameter, variables
from opbuild.backend.halide.operators.compute.epilogue import apply_epilogue
from opbuild.kernel.opdesc import OpDesc


def define(desc: OpDesc) -> Definition:
    """Define the convolution: ``attrs`` has ``kernel``, ``stride`` and ``dilation`` as (x, y), and ``epilogue``."""
    kernel, stride, dilation = desc.attrs["kernel"], desc.attrs["stride"], desc.attrs["dilation"]
    params = {operand.name: parameter(operand) for operand in desc.inputs}
    x, w, bias = params["x"], params["w"], params["bias"]
    lane, ox, oy, block = variables("lane ox oy block")
    r = hl.RDom([(0, 16), (0, kernel[0]), (0, kernel[1]), (0, x.dim(3).extent())], "r")
    acc, out = hl.Func("acc"), hl.Func("out")
    acc[lane, ox, oy, block] = bias[lane, block]
    acc[lane, ox, oy, block] += (
        w[lane, r[0], r[1], r[2], r[3], block]
        * x[r[0], ox * stride[0] + r[1] * dilation[0], oy * stride[1] + r[2] * dilation[1], r[3]]
    )
    out[lane, ox, oy, block] = apply_epilogue(desc, params, acc[lane, ox, oy, block], (lane, ox, oy, block))
    constrain_output(out, desc.outputs[0])
    return Definition(
        list(params.values()),
        [out],
        {"lane": lane, "ox": ox, "oy": oy, "block": block},
        {"acc": acc},
        {"r": r},
    )
