"""Products of a matrix and a vector: a dot product a row."""

from __future__ import annotations

from opbuild.families.family import PARALLEL, THREADS, Family, Variant
from opbuild.families.matmul.family import SERIAL
from opbuild.kernel.machine import Machine
from opbuild.kernel.opdesc import Dim, Operand

OPERANDS = (
    Operand("matrix", "float32", (Dim(stride=1), Dim(), Dim(), Dim())),
    Operand("vector", "float32", (Dim(stride=1), Dim(), Dim())),
)


def choose(multiplications: int, machine: Machine) -> Variant:
    """Return the variant for a product of so many multiplications."""
    return {"parallel": THREADS > 1 and multiplications >= SERIAL}


FAMILY = Family(
    "gemv",
    choose,
    attributes=("epilogue",),
    variant={"parallel": PARALLEL},
    types=("float32",),
    milliseconds=90,
)
