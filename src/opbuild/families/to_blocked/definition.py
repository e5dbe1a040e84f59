"""The way into channel blocks: the definition.

``x (W, H, C)`` of any strides, ``out (16, W, H, C1)``; lanes beyond the channels get zero.
"""

from __future__ import annotations

import halide as hl

from opbuild.backend.halide.definition import TYPES, Definition, constrain_output, parameter, variables
from opbuild.kernel.opdesc import OpDesc


def define(desc: OpDesc) -> Definition:
    """Define it: ``attrs`` has ``whole``, true where the channels fill all blocks."""
    x = parameter(desc.inputs[0])
    lane, ox, oy, block = variables("lane ox oy block")
    out = hl.Func("out")
    channel = block * 16 + lane
    if desc.attrs["whole"]:
        out[lane, ox, oy, block] = x[ox, oy, channel]
    else:
        channels = x.dim(2).extent()
        zero = hl.cast(TYPES[desc.inputs[0].dtype], 0)
        out[lane, ox, oy, block] = hl.select(channel < channels, x[ox, oy, hl.min(channel, channels - 1)], zero)
    constrain_output(out, desc.outputs[0])
    return Definition([x], [out], {"lane": lane, "ox": ox, "oy": oy, "block": block})
