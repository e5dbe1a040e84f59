"""Products with one column or one row: a dot product for each row or column of the matrix."""

from __future__ import annotations

from typing import Any

from opbuild.families.gemv import family as gemv
from opbuild.graph.extents import is_at_least, is_one, is_open
from opbuild.kernel.opdesc import Dim, Operand
from opbuild.lowering.context import Lowering
from opbuild.lowering.implementations import serves
from opbuild.lowering.matrix import Product, batches_of, emit_call, epilogue_inputs
from opbuild.lowering.operands import Plain
from opbuild.lowering.strided import viewed_as, with_inner_stride
from opbuild.platform.records import replace

MOST_SUMMED = 32
"""Products of a sum from which on a constant column is better multiplied by itself than as one of a panel."""


def _is_one_column(_lowering: Lowering, product: Product) -> bool:
    """Return whether a product has one column, whose elements are adjacent."""
    k, n = product.rhs.shape[-2], product.out.shape[-1]
    adjacent = is_one(k) or is_one(product.rhs.strides[-2])
    is_packed = product.constant is not None and 1 < k < MOST_SUMMED  # twelve rows at once, not one after the other
    return is_one(n) and adjacent and not is_packed


def _is_one_row(lowering: Lowering, part: Product) -> Any:
    """Return 1 where a product has one row, and a right operand whose columns' elements are adjacent."""
    is_turned = is_one(part.rhs.shape[-2]) or is_one(part.rhs.strides[-2])
    if is_open(part.out.shape[-2:-1]) and lowering.is_for_device("matmul"):
        return 0  # one kernel for any number of rows
    return 1 - is_at_least(part.out.shape[-2], 2) if is_turned else 0


@serves("lowering.Product", cost=0.5, where=_is_one_column)
def _vector_right(lowering: Lowering, product: Product) -> None:
    """Emit products with a single column: a dot product a row."""
    for part in batches_of(product):
        lhs = _adjacent(lowering, part)
        vector = viewed_as(part.rhs, part.rhs.shape[:-1], part.rhs.strides[:-1])
        out, *operands = (viewed_as(v, v.shape[:-1], v.strides[:-1]) for v in (part.out, *part.operands))
        _dot(lowering, replace(part, out=out, operands=tuple(operands)), lhs, vector)


@serves("lowering.BatchProduct", cost=0.5, where=_is_one_row)
def _vector_left(lowering: Lowering, part: Product) -> None:
    """Emit products with a single row and a transposed right operand: a dot product a column."""
    lhs = _adjacent(lowering, part)
    *batch, k, n = part.rhs.shape
    *outer, row, column = part.rhs.strides
    matrix = viewed_as(part.rhs, (*batch, n, k), (*outer, column, row))
    vector = viewed_as(lhs, (*batch, k), (*lhs.strides[:-2], lhs.strides[-1]))
    out, *operands = (
        viewed_as(v, (*v.shape[:-2], n), (*v.strides[:-2], v.strides[-1])) for v in (part.out, *part.operands)
    )
    _dot(lowering, replace(part, out=out, operands=tuple(operands)), matrix, vector)


def _dot(lowering: Lowering, product: Product, matrix: Plain, vector: Plain) -> None:
    """Emit one call of the ``gemv`` family: ``matrix`` is ``(b, b, rows, K)``, ``vector`` ``(b, b, K)``."""
    variant = lowering.choose(gemv.FAMILY)
    dtype = matrix.storage.dtype
    inputs = (*gemv.operands(dtype), *epilogue_inputs(product, inner=False))
    out = Operand("out", dtype, (Dim(), Dim(), Dim()))
    references = (with_inner_stride(matrix, 1), with_inner_stride(vector, 1))
    emit_call(lowering, product, gemv.FAMILY, references, inputs, out, {}, variant)


def _adjacent(lowering: Lowering, product: Product) -> Plain:
    """Return the left operand, copied if the elements of its rows are not adjacent."""
    lhs = product.lhs
    return lhs if is_one(lhs.shape[-1]) or is_one(lhs.strides[-1]) else lowering.dense_copy(lhs, product.node)
