"""copy on NVIDIA's GPUs."""

from __future__ import annotations

from opbuild.families.cuda import is_plain, on_device, wide_tile
from opbuild.kernel.opdesc import OpDesc

SQUARE = {"columns": 64, "rows": 64}
"""A tile of what lies in another way than in long rows on both sides: of transpositions above all."""


def serve(desc: OpDesc) -> OpDesc | None:
    """Return the device's descriptor; None if there is no code for the type."""
    if not is_plain(desc):
        return None
    transposes = desc.variant["kind"] == "transpose"
    return on_device(desc, wide_tile(desc) if desc.variant["width"] > 1 and not transposes else SQUARE)
