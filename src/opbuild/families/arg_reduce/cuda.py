"""arg_reduce on NVIDIA's GPUs."""

from __future__ import annotations

from opbuild.families.cuda import of_types
from opbuild.kernel.opdesc import OpDesc

TYPES = {"float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32", "int64"}


def serve(desc: OpDesc) -> OpDesc | None:
    """Return the device's descriptor; None for other types."""
    is_inner = desc.attrs["layout"] == "inner"
    return of_types(desc, TYPES, {"rows": 1, "block": 1024} if is_inner else {"rows": 64, "block": 16})
