"""Pools of blocked values: maxima and averages of windows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opbuild.families.blocked import BLOCKED_DIMS, IMAGE
from opbuild.families.family import PARALLEL, Family, Variant
from opbuild.kernel.opdesc import HIGH_PERFORMANCE, OpDesc, Operand

SERIAL = 32768
"""Elements below which waking a second thread costs more than it saves."""

MOST_TAPS = 169
"""Pools of more taps are left to the host: every tap is a piece of code."""


def choose(elements: int, threads: int) -> Variant:
    """Return the variant for an input of so many elements."""
    return {"parallel": threads > 1 and elements >= SERIAL}


def describe(op_type: str, attrs: Mapping[str, Any], variant: Variant, impl_mode: str = HIGH_PERFORMANCE) -> OpDesc:
    """Return the descriptor of a ``MaxPool`` or ``AveragePool``; operands x and out."""
    return FAMILY.desc((op_type,), (IMAGE,), (OUT,), attrs, variant, impl_mode)


OUT = Operand("out", "float32", BLOCKED_DIMS, "NC1HWC0")

FAMILY = Family(
    "pool",
    choose,
    attributes=("kind", "kernel", "stride", "dilation", "before", "after", "edge"),
    variant={"parallel": PARALLEL},
    types=("float32",),
)
