"""Products of a matrix and a vector: a dot product a row."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from opbuild.families.family import FLOATS, Dims, Family, moved_bytes, only_variant, products_of_rows
from opbuild.families.matmul.family import epilogue_work
from opbuild.kernel.opdesc import Dim, OpDesc, Operand
from opbuild.target.machine import Machine

ROW = 3
"""Nanoseconds that a row takes besides its elements."""


def operands(dtype: str) -> tuple[Operand, Operand]:
    """Return the operands matrix and vector of an element type."""
    matrix = Operand("matrix", dtype, (Dim(stride=1), Dim(), Dim(), Dim()))
    return matrix, Operand("vector", dtype, (Dim(stride=1), Dim(), Dim()))


def work(desc: OpDesc, shapes: Sequence[Dims], machine: Machine) -> float:
    """Return the nanoseconds that a product takes on one core: to read the matrix, and for each of its rows."""
    rows = prod(extent for extent, _ in shapes[-1])
    return moved_bytes(desc, shapes, machine) + rows * ROW + epilogue_work(desc, shapes, machine)


FAMILY = Family(
    "gemv",
    only_variant,
    attributes=("epilogue",),
    types=FLOATS,
    milliseconds=90,
    work=work,
    products=products_of_rows,
)
