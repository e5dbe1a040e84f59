"""Pools of blocked values: maxima and averages of windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from opbuild.families.blocked import BLOCKED_DIMS, IMAGE
from opbuild.families.family import Dims, Family, elements
from opbuild.kernel.machine import Machine
from opbuild.kernel.opdesc import HIGH_PERFORMANCE, OpDesc, Operand

MOST_TAPS = 169
"""Pools of more taps are left to the host: every tap is a piece of code."""


def describe(op_type: str, attrs: Mapping[str, Any], impl_mode: str = HIGH_PERFORMANCE) -> OpDesc:
    """Return the descriptor of a ``MaxPool`` or ``AveragePool``; operands x and out."""
    return FAMILY.desc((op_type,), (IMAGE,), (OUT,), attrs, {}, impl_mode)


def work(desc: OpDesc, shapes: Sequence[Dims], machine: Machine) -> float:
    """Return the nanoseconds on one core: 0.5 a tap of a vector."""
    width, height = desc.attrs["kernel"]
    return elements(shapes[-1]) * int(width * height) * 0.5 / machine.lanes


OUT = Operand("out", "float32", BLOCKED_DIMS, "NC1HWC0")

FAMILY = Family(
    "pool",
    choose=dict,
    attributes=("kind", "kernel", "stride", "dilation", "before", "after", "edge"),
    types=("float32",),
    work=work,
)
