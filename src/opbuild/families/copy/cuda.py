"""copy on NVIDIA's GPUs."""

from __future__ import annotations

from collections.abc import Collection

from opbuild.families.cuda import MEMORY, is_plain, on_device
from opbuild.kernel.opdesc import OpDesc

LAYOUTS: Collection[str] = ()
COST = MEMORY

WIDE, SQUARE = {"columns": 512, "rows": 2}, {"columns": 64, "rows": 64}
"""Tiles of rows whose elements are adjacent on both sides, and of others: of transpositions above all."""


def serve(desc: OpDesc) -> OpDesc | None:
    """Return the device's descriptor; None if there is no code for the type."""
    if not is_plain(desc):
        return None
    transposes = desc.variant["kind"] == "transpose"
    return on_device(desc, WIDE if desc.variant["width"] > 1 and not transposes else SQUARE)
