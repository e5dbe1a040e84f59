"""window on NVIDIA's GPUs."""

from __future__ import annotations

from collections.abc import Sequence

from opbuild.families.cuda import TYPES, of_types
from opbuild.families.family import Variant
from opbuild.families.fitting import Place
from opbuild.graph.extents import example_value
from opbuild.kernel.opdesc import OpDesc
from opbuild.platform.records import replace

WIDEST, MOST = 128, 512
"""Outputs of a row that a program computes at most, and outputs of all its rows."""


def serve(desc: OpDesc) -> OpDesc | None:
    """Return the device's descriptor; None for other types."""
    return of_types(desc, TYPES, _tile(WIDEST, MOST))


def fit(desc: OpDesc, places: Sequence[Place]) -> OpDesc:
    """Return the descriptor whose tile has little beyond the edges of a call's outputs."""
    columns, rows = (example_value(extent) for extent, _ in places[-1].dims[:2])
    return replace(desc, variant=_tile(columns, rows))


def _tile(columns: int, rows: int) -> Variant:
    """Return the variant for outputs of so many columns and rows: powers of 2, four outputs a thread."""
    width = min(WIDEST, _power(columns))
    height = min(MOST // width, _power(rows))
    return {"columns": width, "rows": height, "warps": min(4, max(1, width * height // 128))}


def _power(number: int) -> int:
    """Return the least power of 2 that is not less."""
    return 1 << max(0, number - 1).bit_length()
