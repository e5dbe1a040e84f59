"""arg_reduce on NVIDIA's GPUs."""

from __future__ import annotations

from collections.abc import Collection

from opbuild.families.cuda import MEMORY, on_device
from opbuild.kernel.opdesc import OpDesc

LAYOUTS: Collection[str] = ()
COST = MEMORY

TYPES = {"float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32", "int64"}


def serve(desc: OpDesc) -> OpDesc | None:
    """Return the device's descriptor; None for other types."""
    if desc.inputs[0].dtype not in TYPES:
        return None
    return on_device(desc, {"rows": 1, "block": 1024} if desc.attrs["layout"] == "inner" else {"rows": 64, "block": 16})
