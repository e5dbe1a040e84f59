"""Channels of a blocked value in another order."""

from __future__ import annotations

from opbuild.families.blocked import BLOCKED_DIMS
from opbuild.families.family import Family, moving
from opbuild.kernel.opdesc import Dim, OpDesc, Operand


def describe(dtype: str) -> OpDesc:
    """Return the descriptor; operands x, channel and out."""
    x, out = (Operand(name, dtype, BLOCKED_DIMS, "NC1HWC0") for name in ("x", "out"))
    inputs = (x, Operand("channel", "int32", (Dim(stride=1),)))
    return FAMILY.desc(("ChannelShuffle",), inputs, (out,), {}, {})


FAMILY = Family("shuffle", choose=dict, work=moving(2))  # elements of a vector are gathered
