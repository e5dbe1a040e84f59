"""layer_norm on NVIDIA's GPUs."""

from __future__ import annotations

from opbuild.families.cuda import of_types
from opbuild.kernel.opdesc import OpDesc

TYPES = {"float16", "bfloat16", "float32"}


def serve(desc: OpDesc) -> OpDesc | None:
    """Return the device's descriptor; None for other types."""
    return of_types(desc, TYPES, {"block": 2048})
