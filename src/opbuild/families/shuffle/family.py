"""Channels of a blocked value in another order."""

from __future__ import annotations

from opbuild.families.blocked import BLOCKED_DIMS
from opbuild.families.family import SERIAL, THREADS, Family, Part, Variant
from opbuild.kernel.machine import Machine
from opbuild.kernel.opdesc import Dim, OpDesc, Operand


def choose(elements: int, machine: Machine) -> Variant:
    """Return the variant for so many elements."""
    return {"divide": "blocks", "parts": THREADS if THREADS > 1 and elements >= SERIAL else 1}


def describe(dtype: str, variant: Variant) -> OpDesc:
    """Return the descriptor; operands x, channel and out."""
    x, out = (Operand(name, dtype, BLOCKED_DIMS, "NC1HWC0") for name in ("x", "out"))
    inputs = (x, Operand("channel", "int32", (Dim(stride=1),)))
    return FAMILY.desc(("ChannelShuffle",), inputs, (out,), {}, variant)


FAMILY = Family("shuffle", choose, variant={"divide": Part(), "parts": Part()})
