"""The way into channel blocks."""

from __future__ import annotations

from collections.abc import Sequence

from opbuild.families.blocked import BLOCK, BLOCKED_DIMS
from opbuild.families.family import Dims, Family, moved_bytes
from opbuild.kernel.machine import Machine
from opbuild.kernel.opdesc import Dim, OpDesc, Operand


def work(desc: OpDesc, shapes: Sequence[Dims], machine: Machine) -> float:
    """Return the nanoseconds on one core: elements of a vector are gathered, which takes twice as long as moving."""
    return 2 * moved_bytes(desc, shapes, machine)


def describe(dtype: str, stride: int, whole: bool) -> OpDesc:
    """Return the descriptor; operands x ``(W, H, C)``, with ``stride`` along a row, and out ``(16, W, H, C1)``.

    ``whole``: the channels fill all blocks.
    """
    dims = (Dim(stride=stride), Dim(), Dim(min=0 if whole else 1, multiple=BLOCK if whole else 1))
    x, out = Operand("x", dtype, dims, "NCHW"), Operand("out", dtype, BLOCKED_DIMS, "NC1HWC0")
    return FAMILY.desc(("ToBlocked",), (x,), (out,), {"whole": whole}, {})


FAMILY = Family("to_blocked", choose=dict, work=work, attributes=("whole",), any_stride=True)
