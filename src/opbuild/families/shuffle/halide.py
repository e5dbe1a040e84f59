"""Channels of a blocked value in another order.

``x (16, W, H, C1)``, ``channel (16 * C1)``, the channel of ``x`` that each one of ``out (16, W, H, C1)`` is.
"""

from __future__ import annotations

import halide as hl

from opbuild.backend.halide.definition import Definition, computed, parameters, variables
from opbuild.backend.halide.division import schedule_plane as schedule
from opbuild.kernel.opdesc import OpDesc

__all__ = ["define", "schedule"]


def define(desc: OpDesc) -> Definition:
    """Define it; there are no attributes."""
    x, channel = parameters(desc)
    lane, ox, oy, block = variables("lane ox oy block")
    wanted = hl.unsafe_promise_clamped(block * 16 + lane, 0, channel.dim(0).extent() - 1)
    place = hl.unsafe_promise_clamped(channel[wanted], 0, x.dim(3).extent() * 16 - 1)
    return computed(desc, [x, channel], (lane, ox, oy, block), x[place % 16, ox, oy, place // 16])
