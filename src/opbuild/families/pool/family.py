"""Pools of blocked values: maxima and averages of windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from opbuild.families.blocked import IMAGE
from opbuild.families.family import Dims, Family, elements
from opbuild.kernel.opdesc import HIGH_PERFORMANCE, OpDesc
from opbuild.platform.records import replace
from opbuild.target.machine import Machine

MOST_TAPS = 169
"""Pools of more taps are left to the host: every tap is a piece of code."""


def describe(op_type: str, dtype: str, attrs: Mapping[str, Any], impl_mode: str = HIGH_PERFORMANCE) -> OpDesc:
    """Return the descriptor of a ``MaxPool`` or ``AveragePool``; operands x and out of one element type."""
    x, out = (replace(IMAGE, name=name, dtype=dtype) for name in ("x", "out"))
    return FAMILY.desc((op_type,), (x,), (out,), attrs, {}, impl_mode)


def work(desc: OpDesc, shapes: Sequence[Dims], machine: Machine) -> float:
    """Return the nanoseconds on one core: 0.5 a tap of a vector."""
    width, height = desc.attrs["kernel"]
    return elements(shapes[-1]) * int(width * height) * 0.5 / machine.lanes


FAMILY = Family(
    "pool",
    choose=dict,
    attributes=("kind", "kernel", "stride", "dilation", "before", "after", "edge"),
    types=("float32", "uint8", "int8"),
    work=work,
)
