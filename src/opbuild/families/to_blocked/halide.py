"""The way into channel blocks.

``x (W, H, C)`` of any strides, ``out (16, W, H, C1)``; lanes beyond the channels get zero.

Schedule: a vector is the 16 lanes of one position.
"""

from __future__ import annotations

from typing import Any

import halide as hl

from opbuild.backend.halide.definition import TYPES, Definition, computed, parameter, variables
from opbuild.backend.halide.division import schedule_plane as schedule
from opbuild.families.layouts import FEW_BYTES
from opbuild.kernel.opdesc import OpDesc

__all__ = ["define", "schedule"]


def define(desc: OpDesc) -> Definition:
    """Define it: ``whole`` is true where the channels fill all blocks, ``few`` of bytes of up to ``FEW_BYTES``."""
    x = parameter(desc.inputs[0])
    lane, ox, oy, block = variables("lane ox oy block")
    channel = block * 16 + lane
    if desc.attrs.get("few"):
        value = _few(x, lane, ox, oy)
    elif desc.attrs["whole"]:
        value = x[ox, oy, channel]
    else:
        channels = x.dim(2).extent()
        zero = hl.cast(TYPES[desc.inputs[0].dtype], 0)
        value = hl.select(channel < channels, x[ox, oy, hl.min(channel, channels - 1)], zero)
    return computed(desc, [x], (lane, ox, oy, block), value)


def _few(x: Any, lane: Any, ox: Any, oy: Any) -> Any:
    """Return each channel where it belongs: a vector of one number a channel, not a gathering of 16 numbers."""
    channels = x.dim(2).extent()
    value = hl.cast(x.type(), 0)
    for channel in reversed(range(FEW_BYTES)):
        there = x[ox, oy, hl.min(channel, channels - 1)]
        value = hl.select((lane == channel) & (channel < channels), there, value)
    return value
