"""Grouped convolution of blocked values: the definition.

A block of 16 output channels reads a run of input blocks, the same number for every output block: ``first (C1 out)``
says where the run begins, and ``w (16 out, 16 in, kx, ky, run, C1 out)`` has the weights of the run. Where groups end
inside a block, some pairs of an output and an input channel have no weight; their places hold minus zero, and nothing
is accumulated for them, so that an infinity in one group never reaches another. Packing stores no other minus zero.
"""

from __future__ import annotations

import halide as hl

from opbuild.backend.halide.definition import Definition, constrain_output, parameter, variables
from opbuild.backend.halide.operators.compute.epilogue import apply_epilogue
from opbuild.kernel.opdesc import OpDesc


def define(desc: OpDesc) -> Definition:
    """Define it: ``attrs`` has ``kernel``, ``stride`` and ``dilation`` as (x, y), ``masked``, and ``epilogue``."""
    kernel, stride, dilation = desc.attrs["kernel"], desc.attrs["stride"], desc.attrs["dilation"]
    params = {operand.name: parameter(operand) for operand in desc.inputs}
    x, w, bias, first = (params[name] for name in ("x", "w", "bias", "first"))
    lane, ox, oy, block = variables("lane ox oy block")
    r = hl.RDom([(0, 16), (0, kernel[0]), (0, kernel[1]), (0, w.dim(4).extent())], "r")
    weight = w[lane, r[0], r[1], r[2], r[3], block]
    start = hl.unsafe_promise_clamped(first[block], 0, x.dim(3).extent() - w.dim(4).extent())
    value = x[r[0], ox * stride[0] + r[1] * dilation[0], oy * stride[1] + r[2] * dilation[1], start + r[3]]
    acc, out = hl.Func("acc"), hl.Func("out")
    acc[lane, ox, oy, block] = bias[lane, block]
    if desc.attrs["masked"]:
        absent = hl.reinterpret(hl.Int(32), weight) == hl.i32(-(2**31))
        acc[lane, ox, oy, block] = hl.select(
            absent, acc[lane, ox, oy, block], acc[lane, ox, oy, block] + weight * value
        )
    else:
        acc[lane, ox, oy, block] += weight * value
    out[lane, ox, oy, block] = apply_epilogue(desc, params, acc[lane, ox, oy, block], (lane, ox, oy, block))
    constrain_output(out, desc.outputs[0])
    return Definition(
        list(params.values()),
        [out],
        {"lane": lane, "ox": ox, "oy": oy, "block": block},
        {"acc": acc},
        {"r": r},
    )
