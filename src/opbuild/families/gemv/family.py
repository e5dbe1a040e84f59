"""Products of a matrix and a vector: a dot product a row."""

from __future__ import annotations

from opbuild.families.family import Family, Variant
from opbuild.families.matmul.family import product_work
from opbuild.kernel.machine import Machine
from opbuild.kernel.opdesc import Dim, Operand

OPERANDS = (
    Operand("matrix", "float32", (Dim(stride=1), Dim(), Dim(), Dim())),
    Operand("vector", "float32", (Dim(stride=1), Dim(), Dim())),
)


def choose(machine: Machine) -> Variant:
    """Return the variant: there is one."""
    return {}


FAMILY = Family(
    "gemv",
    choose,
    attributes=("epilogue",),
    types=("float32",),
    milliseconds=90,
    work=product_work,
)
