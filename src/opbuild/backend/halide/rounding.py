"""Results that are rounded to the numbers of a type of 16 bits before they are stored as float32."""

from __future__ import annotations

from typing import Any

import halide as hl

from opbuild.backend.halide.definition import TYPES
from opbuild.backend.halide.mathematics import FLOAT16, FLOAT32, rounded
from opbuild.kernel.opdesc import OpDesc


def round_result(desc: OpDesc, value: Any, index: tuple[Any, ...]) -> Any:
    """Return a float32 at ``index``, rounded if the attribute ``rounds`` names a type.

    The value becomes a function of its own, which Halide inlines: only the rounding need be strict about NaN. It is to
    be stored: F16C's conversions keep NaN and infinity, but the compiler may drop a question for them that follows.
    """
    if "rounds" not in desc.attrs:
        return value
    function = hl.Func("unrounded")
    function[index] = value
    number, kind = hl.Expr(function[index]), TYPES[desc.attrs["rounds"]]
    result = rounded(number, kind)
    if kind != FLOAT16:
        return result
    with_f16c = hl.target_has_feature(hl.TargetFeature.F16C)
    return hl.strict_float(hl.select(with_f16c, hl.cast(FLOAT32, hl.cast(FLOAT16, number)), result))
