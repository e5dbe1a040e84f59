"""Depthwise convolution of blocked values: the schedule.

``width`` positions of a row are accumulated in registers; the loops over a small kernel are unrolled.
"""

from __future__ import annotations

from typing import Any

import halide as hl

from opbuild.backend.halide.definition import Definition
from opbuild.backend.halide.division import divide_plane
from opbuild.kernel.opdesc import OpDesc

UNROLLED_TAPS = 25
"""Kernels of more taps keep their loop over rows: unrolled code grows, and so does the time to compile it."""


def schedule(definition: Definition, desc: OpDesc, target: Any) -> None:
    """Schedule by ``variant``: ``width``, ``divide`` and ``parts``."""
    width = desc.variant["width"]
    kernel = desc.attrs["kernel"]
    out, acc, r = definition.outputs[0], definition.functions["acc"], definition.domains["r"]
    lane, ox, oy, block = (definition.variables[name] for name in ("lane", "ox", "oy", "block"))
    xo, xi = hl.Var("xo"), hl.Var("xi")
    out.split(ox, xo, xi, width, hl.TailStrategy.ShiftInwards).reorder(lane, xi, xo, oy, block)
    out.vectorize(lane).unroll(xi)
    divide_plane(out, oy, block, desc.variant["divide"], desc.variant["parts"])
    acc.compute_at(out, xo).vectorize(lane).unroll(ox).bound_extent(ox, width)
    update = acc.update().reorder(lane, ox, r[0], r[1]).vectorize(lane).unroll(ox)
    if kernel[0] <= UNROLLED_TAPS:
        update.unroll(r[0])
    if kernel[0] * kernel[1] <= UNROLLED_TAPS:
        update.unroll(r[1])
