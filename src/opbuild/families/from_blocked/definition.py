"""The way out of channel blocks: the definition.

``x (16, W, H, C1)``, ``out (W, H, C)`` of any strides.
"""

from __future__ import annotations

import halide as hl

from opbuild.backend.halide.definition import Definition, constrain_output, parameter, variables
from opbuild.kernel.opdesc import OpDesc


def define(desc: OpDesc) -> Definition:
    """Define it; there are no attributes."""
    x = parameter(desc.inputs[0])
    ox, oy, channel = variables("ox oy channel")
    out = hl.Func("out")
    out[ox, oy, channel] = x[channel % 16, ox, oy, channel // 16]
    constrain_output(out, desc.outputs[0])
    return Definition([x], [out], {"ox": ox, "oy": oy, "channel": channel})
