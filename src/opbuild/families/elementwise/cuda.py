"""elementwise on NVIDIA's GPUs."""

from __future__ import annotations

from collections.abc import Collection

from opbuild.families.cuda import MEMORY, has_code, is_plain, on_device
from opbuild.kernel.opdesc import OpDesc
from opbuild.operations.expression import from_json

LAYOUTS: Collection[str] = ()
COST = MEMORY

WIDE, SQUARE = {"columns": 512, "rows": 2}, {"columns": 32, "rows": 32}
"""Tiles of rows whose elements are adjacent, and of others."""


def serve(desc: OpDesc) -> OpDesc | None:
    """Return the device's descriptor; None if there is no code for a type or for an operation."""
    expression = from_json(list(desc.attrs["expression"]))
    if not is_plain(desc) or not has_code(expression, [operand.dtype for operand in desc.inputs]):
        return None
    return on_device(desc, WIDE if desc.variant["width"] > 1 else SQUARE)
