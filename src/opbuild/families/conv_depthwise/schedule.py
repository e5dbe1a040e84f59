"""Depthwise convolution of blocked values: the schedule.

``width`` positions of a row are accumulated in registers; the loops over a small kernel are unrolled.
"""

from __future__ import annotations

from opbuild.backend.halide.definition import Definition
from opbuild.families.conv_grouped.schedule import accumulate
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine

UNROLLED_TAPS = 25
"""Kernels of more taps keep their loop over rows: unrolled code grows, and so does the time to compile it."""


def schedule(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Schedule by ``variant``: ``width``."""
    kernel, r = desc.attrs["kernel"], definition.domains["r"]
    update = accumulate(definition, desc)
    if kernel[0] <= UNROLLED_TAPS:
        update.unroll(r[0])
    if kernel[0] * kernel[1] <= UNROLLED_TAPS:
        update.unroll(r[1])
