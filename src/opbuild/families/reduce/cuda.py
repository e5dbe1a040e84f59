"""reduce on NVIDIA's GPUs."""

from __future__ import annotations

from collections.abc import Collection

from opbuild.families.cuda import MEMORY, TYPES, on_device
from opbuild.kernel.opdesc import OpDesc

LAYOUTS: Collection[str] = ()
COST = MEMORY


def serve(desc: OpDesc) -> OpDesc | None:
    """Return the device's descriptor; None for other types."""
    if desc.inputs[0].dtype not in TYPES:
        return None
    return on_device(desc, {"rows": 1, "block": 2048} if desc.attrs["layout"] == "inner" else {"rows": 64, "block": 16})
