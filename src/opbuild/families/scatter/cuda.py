"""scatter on NVIDIA's GPUs."""

from __future__ import annotations

from opbuild.families.cuda import is_plain, on_device
from opbuild.kernel.opdesc import OpDesc


def serve(desc: OpDesc) -> OpDesc | None:
    """Return the device's descriptor; None for other types, and where sums would have 16 bits."""
    if not is_plain(desc) or (desc.attrs["reduction"] != "none" and desc.outputs[0].dtype in ("float16", "bfloat16")):
        return None
    return on_device(desc, {"rows": 1, "columns": 128} if desc.attrs["kind"] == "rows" else {"rows": 4, "columns": 32})
