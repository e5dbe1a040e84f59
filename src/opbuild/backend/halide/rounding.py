"""Results that are rounded to the numbers of a type of 16 bits before they are stored as float32."""

from __future__ import annotations

from typing import Any

import halide as hl

from opbuild.backend.halide.definition import TYPES
from opbuild.backend.halide.mathematics import rounded
from opbuild.kernel.opdesc import OpDesc


def round_result(desc: OpDesc, value: Any, index: tuple[Any, ...]) -> Any:
    """Return a float32 at ``index``, rounded if the attribute ``rounds`` names a type.

    The value becomes a function of its own, which Halide inlines: only the rounding need be strict about NaN.
    """
    if "rounds" not in desc.attrs:
        return value
    function = hl.Func("unrounded")
    function[index] = value
    return rounded(hl.Expr(function[index]), TYPES[desc.attrs["rounds"]])
