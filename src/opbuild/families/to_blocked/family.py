"""The way into channel blocks."""

from __future__ import annotations

from opbuild.families.blocked import BLOCK, BLOCKED_DIMS
from opbuild.families.family import Family
from opbuild.kernel.opdesc import Dim, OpDesc, Operand


def describe(dtype: str, stride: int, whole: bool) -> OpDesc:
    """Return the descriptor; operands x ``(W, H, C)``, with ``stride`` along a row, and out ``(16, W, H, C1)``.

    ``whole``: the channels fill all blocks.
    """
    dims = (Dim(stride=stride), Dim(), Dim(min=0 if whole else 1, multiple=BLOCK if whole else 1))
    x, out = Operand("x", dtype, dims, "NCHW"), Operand("out", dtype, BLOCKED_DIMS, "NC1HWC0")
    return FAMILY.desc(("ToBlocked",), (x,), (out,), {"whole": whole}, {})


FAMILY = Family("to_blocked", choose=dict, attributes=("whole",), any_stride=True)
