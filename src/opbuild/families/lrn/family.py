"""Local response normalization of blocked values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from opbuild.families.blocked import BLOCK, IMAGE
from opbuild.families.family import Dims, Family, elements
from opbuild.kernel.opdesc import OpDesc
from opbuild.platform.records import replace
from opbuild.target.machine import Machine

MOST_CHANNELS = 2 * BLOCK + 1
"""A window reaches at most one block to each side."""


def describe(attrs: Mapping[str, Any], impl_mode: str) -> OpDesc:
    """Return the descriptor; operands x and out."""
    return FAMILY.desc(("LRN",), (IMAGE,), (replace(IMAGE, name="out"),), attrs, {}, impl_mode)


def work(desc: OpDesc, shapes: Sequence[Dims], machine: Machine) -> float:
    """Return the nanoseconds on one core: 28 a vector for windows of 5 channels."""
    return elements(shapes[-1]) * (18 + 2 * int(desc.attrs["size"])) / machine.lanes


FAMILY = Family(
    "lrn",
    choose=dict,
    attributes=("size", "alpha", "beta", "bias"),
    types=("float32",),
    work=work,
    milliseconds=65,
)
