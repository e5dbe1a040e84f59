"""elementwise on NVIDIA's GPUs."""

from __future__ import annotations

from opbuild.families.cuda import has_code, is_plain, on_device, wide_tile
from opbuild.kernel.opdesc import OpDesc
from opbuild.operations.expression import from_json

SQUARE = {"columns": 32, "rows": 32}
"""A tile of what lies in another way than in long rows of adjacent elements."""


def serve(desc: OpDesc) -> OpDesc | None:
    """Return the device's descriptor; None if there is no code for a type or for an operation."""
    expression = from_json(list(desc.attrs["expression"]))
    if not is_plain(desc) or not has_code(expression, [operand.dtype for operand in desc.inputs]):
        return None
    return on_device(desc, wide_tile(desc) if desc.variant["width"] > 1 else SQUARE)
