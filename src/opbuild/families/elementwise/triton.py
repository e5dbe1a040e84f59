"""elementwise in Triton: an expression of operands that broadcast together, one element at a time."""

from __future__ import annotations

from opbuild.backend.triton import elements
from opbuild.backend.triton.kernel import TritonKernel
from opbuild.kernel.opdesc import OpDesc
from opbuild.operations.expression import from_json


def define(desc: OpDesc) -> TritonKernel:
    """Return the kernel of ``out = attrs["expression"](inputs)``."""
    return elements.define(desc, from_json(list(desc.attrs["expression"])))
