"""The way out of channel blocks."""

from __future__ import annotations

from opbuild.families.blocked import BLOCKED_DIMS
from opbuild.families.family import Family, Variant, VariantPart
from opbuild.kernel.opdesc import Dim, OpDesc, Operand
from opbuild.target.machine import Machine

WIDTHS = (16, 8, 4, 1)
"""Positions of a vector along a row whose elements are adjacent."""


def choose(row: int, adjacent: bool, _machine: Machine) -> Variant:
    """Return the variant for rows of ``row`` elements, which may be adjacent."""
    width = next(width for width in WIDTHS if width == 1 or width <= row) if adjacent else 1
    return {"width": width}


def describe(dtype: str, stride: int, variant: Variant) -> OpDesc:
    """Return the descriptor; operands x ``(16, W, H, C1)`` and out ``(W, H, C)``, with ``stride`` along a row."""
    width = variant["width"]
    dims = (Dim(stride=stride, min=width if width > 1 else 0), Dim(), Dim())
    x, out = Operand("x", dtype, BLOCKED_DIMS, "NC1HWC0"), Operand("out", dtype, dims, "NCHW")
    return FAMILY.desc(("FromBlocked",), (x,), (out,), {}, variant)


FAMILY = Family("from_blocked", choose, variant={"width": VariantPart(least=1)}, any_stride=True)
