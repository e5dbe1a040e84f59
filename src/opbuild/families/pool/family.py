"""Pools of blocked values: maxima and averages of windows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opbuild.families.blocked import BLOCKED_DIMS, IMAGE
from opbuild.families.family import PARALLEL, Family, Variant, by_elements
from opbuild.kernel.opdesc import HIGH_PERFORMANCE, OpDesc, Operand

MOST_TAPS = 169
"""Pools of more taps are left to the host: every tap is a piece of code."""


def describe(op_type: str, attrs: Mapping[str, Any], variant: Variant, impl_mode: str = HIGH_PERFORMANCE) -> OpDesc:
    """Return the descriptor of a ``MaxPool`` or ``AveragePool``; operands x and out."""
    return FAMILY.desc((op_type,), (IMAGE,), (OUT,), attrs, variant, impl_mode)


OUT = Operand("out", "float32", BLOCKED_DIMS, "NC1HWC0")

choose = by_elements

FAMILY = Family(
    "pool",
    choose,
    attributes=("kind", "kernel", "stride", "dilation", "before", "after", "edge"),
    variant={"parallel": PARALLEL},
    types=("float32",),
)
