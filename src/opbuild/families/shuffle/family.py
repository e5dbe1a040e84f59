"""Channels of a blocked value in another order."""

from __future__ import annotations

from collections.abc import Sequence

from opbuild.families.blocked import BLOCKED_DIMS
from opbuild.families.family import Dims, Family, moved_bytes
from opbuild.kernel.opdesc import Dim, OpDesc, Operand
from opbuild.target.machine import Machine


def work(desc: OpDesc, shapes: Sequence[Dims], machine: Machine) -> float:
    """Return the nanoseconds on one core: elements of a vector are gathered, which takes twice as long as moving."""
    return 2 * moved_bytes(desc, shapes, machine)


def describe(dtype: str) -> OpDesc:
    """Return the descriptor; operands x, channel and out."""
    x, out = (Operand(name, dtype, BLOCKED_DIMS, "NC1HWC0") for name in ("x", "out"))
    inputs = (x, Operand("channel", "int32", (Dim(stride=1),)))
    return FAMILY.desc(("ChannelShuffle",), inputs, (out,), {}, {})


FAMILY = Family("shuffle", choose=dict, work=work)
