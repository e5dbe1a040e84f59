"""The exponential of what is at most zero, which softmax takes of each score."""

from __future__ import annotations

from typing import Any

import halide as hl

from opbuild.backend.halide.mathematics import ROUNDER


def exp_below_zero(x: Any) -> Any:
    """Return e to the power of ``x`` for ``x <= 0`` or NaN; results below 1.2e-38 are 0.

    Cheaper than a general exponential: no upper limit to care for. The relative error is below 3e-7.
    """
    # At the lower limit the scale's exponent field is 0, which makes the result exactly 0.
    limited = hl.max(x, hl.f32(-88.0))
    shifted = hl.strict_float(limited * hl.f32(1.44269504088896341) + hl.f32(ROUNDER))
    n = hl.strict_float(shifted - hl.f32(ROUNDER))
    r = limited - n * hl.f32(0.693359375)
    r = r - n * hl.f32(-2.12194440e-4)
    p = hl.f32(1.9875691500e-4)
    for c in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        p = p * r + hl.f32(c)
    p = p * (r * r) + r + hl.f32(1.0)
    # The bits of ROUNDER end in zeros: a shift by 23 leaves only the integer plus the exponent's bias of 127.
    scale = hl.reinterpret(hl.Float(32), (hl.reinterpret(hl.UInt(32), shifted) + hl.u32(127)) << hl.u32(23))
    return hl.select(hl.is_nan(x), x, p * scale)
