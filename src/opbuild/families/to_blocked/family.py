"""The way into channel blocks."""

from __future__ import annotations

from opbuild.families.blocked import BLOCK, BLOCKED_DIMS
from opbuild.families.family import Family, moving
from opbuild.families.layouts import FEW_BYTES
from opbuild.kernel.opdesc import FREE, Dim, OpDesc, Operand

BYTES = ("uint8", "int8")


def describe(dtype: str, stride: int, channels: int) -> OpDesc:
    """Return the descriptor; operands x ``(W, H, C)``, with ``stride`` along a row, and out ``(16, W, H, C1)``.

    Kernels differ by whether the ``channels`` fill all blocks, and for bytes by whether there are few of them.
    """
    whole, few = channels % BLOCK == 0, 0 < channels <= FEW_BYTES and dtype in BYTES
    most = FEW_BYTES if few else FREE
    dims = (Dim(stride=stride), Dim(), Dim(min=0 if whole else 1, max=most, multiple=BLOCK if whole else 1))
    x, out = Operand("x", dtype, dims, "NCHW"), Operand("out", dtype, BLOCKED_DIMS, "NC1HWC0")
    attrs = {"whole": whole, "few": True} if few else {"whole": whole}
    return FAMILY.desc(("ToBlocked",), (x,), (out,), attrs, {})


FAMILY = Family(
    "to_blocked",
    choose=dict,
    work=moving(2),  # elements of a vector are gathered
    attributes=("whole", "few"),
    any_stride=True,
)
