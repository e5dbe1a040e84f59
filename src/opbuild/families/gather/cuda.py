"""gather on NVIDIA's GPUs."""

from __future__ import annotations

from opbuild.families.cuda import is_plain, on_device
from opbuild.kernel.opdesc import OpDesc

LONG, SHORT = {"rows": 1, "columns": 1024}, {"rows": 64, "columns": 16}
"""Tiles of rows whose elements are adjacent, and of short ones or single elements."""


def serve(desc: OpDesc) -> OpDesc | None:
    """Return the device's descriptor; None for other types."""
    return on_device(desc, LONG if desc.variant["width"] > 1 else SHORT) if is_plain(desc) else None
