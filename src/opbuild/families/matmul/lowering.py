"""Products by panels: from operands that lie anywhere to one of the layouts that kernels read.

Constant right operands are packed into panels when the network is built. Others are read where they lie, transposed or
not; where neither columns nor rows are adjacent, or fewer than a vector, they are copied into panels first.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from opbuild.families.dims import VECTOR
from opbuild.families.layouts import PANEL
from opbuild.families.matmul import family as matmul
from opbuild.graph.extents import always_equal, is_at_least, is_one
from opbuild.graph.types import Array, TensorType
from opbuild.kernel.opdesc import HIGH_PRECISION, Dim, Operand
from opbuild.lowering.context import Lowering
from opbuild.lowering.implementations import ASKED, ask, serves
from opbuild.lowering.matrix import Product, as_rows, batches_of, emit_call, epilogue_inputs, turned_once
from opbuild.lowering.operands import Plain
from opbuild.lowering.strided import constant_step, viewed_as, with_inner_stride
from opbuild.platform.arrange import arrange
from opbuild.platform.files.held import new_pages
from opbuild.platform.records import replace
from opbuild.target.devices import PACKED

_ADJACENT = 64
"""Numbers of a row that are moved at once: those of a panel's rows are 8 KiB."""


def panels(lowering: Lowering, name: str, transposed: bool, in_pairs: bool = False) -> Plain:
    """Return a constant matrix packed as ``(N/32, K, 32)``, zero beyond N.

    Args:
        lowering: The state of lowering.
        name: The constant; its last two dimensions are the matrix, others have extent 1, or are rows if transposed.
        transposed: Whether it is stored as ``(N, K)``.
        in_pairs: Whether neighbours along K are to be adjacent: ``(N/32, K/2, 32, 2)``, zero beyond K too.
    """
    *outer, k, n = lowering.type(name).shape
    k, n = (n, k * prod(outer)) if transposed else (k, n)
    count, group = -(-n // PANEL), 2 if in_pairs else 1
    groups = -(-k // group)
    shape = (count, groups, PANEL, *(group,) * in_pairs)

    def pack() -> Array:
        matrix = np.asarray(lowering.constant(name)).reshape((n, k) if transposed else (k, n))
        if transposed and not in_pairs and matrix.dtype == np.float32:
            return _panels_of_rows(matrix, count)
        filled = (count * PANEL, groups * group) if transposed else (groups * group, count * PANEL)
        if matrix.shape != filled:  # filled up in its own order; else its elements are moved once
            filled_up = np.zeros(filled, matrix.dtype)
            filled_up[: matrix.shape[0], : matrix.shape[1]] = matrix
            matrix = filled_up
        full = matrix.T if transposed else matrix
        grouped = full.reshape(groups, group, count, PANEL).transpose(2, 0, 3, 1)
        packed = new_pages(grouped.shape, grouped.dtype)
        packed[...] = grouped
        return packed.reshape(shape)

    recipe = f"panels of {PANEL}{' in pairs' if in_pairs else ''}{', transposed' if transposed else ''}"
    return lowering.packed((name,), recipe, shape, lowering.type(name).dtype, pack)


def _panels_of_rows(rows: Array, count: int) -> Array:
    """Return ``(N, K)`` as ``(N/32, K, 32)``, zero beyond N; it is read once, as it lies."""
    n, k = rows.shape
    packed = new_pages((count, k, PANEL), np.float32)
    places, whole = packed.transpose(0, 2, 1), n // PANEL
    if whole:
        _move(rows[: whole * PANEL].reshape(whole, PANEL, k), places[:whole])
    if whole < count:
        packed[whole:] = 0
        _move(rows[np.newaxis, whole * PANEL :], places[whole:, : n - whole * PANEL])
    return packed


def _move(rows: Array, places: Array) -> None:
    """Write the rows of panels to their places, a few numbers of each at a time: these stay in the first cache."""
    end = rows.shape[-1] - rows.shape[-1] % _ADJACENT
    split = (*rows.shape[:2], end // _ADJACENT, _ADJACENT)
    source, out = (each[..., :end].reshape(split).swapaxes(1, 2) for each in (rows, places))
    arrange(source, out)
    arrange(rows[..., end:], places[..., end:])


def _is_constant(_lowering: Lowering, product: Product) -> bool:
    return product.constant is not None


@serves("lowering.Product", where=_is_constant)
def _constant_right(lowering: Lowering, product: Product) -> None:
    constant = product.constant
    assert constant is not None  # noqa: S101 - as ``_is_constant`` says
    in_pairs = lowering.machine.pairs and lowering.type(constant[0]).dtype == "bfloat16"
    in_pairs = in_pairs and product.impl_mode != HIGH_PRECISION
    weights, right = panels(lowering, *constant, in_pairs), product.rhs
    if not lowering.takes(matmul.FAMILY.name, PACKED):
        weights.storage.unpacked = viewed_as(right, right.shape[-2:], right.strides[-2:]), {"rhs": "rows"}
    rows = turned_once(lowering, as_rows(lowering, product))
    _emit(lowering, replace(rows, rhs=weights), "pairs" if in_pairs else "panels", 1)


@serves("lowering.Product", cost=2.0)
def _emit_batches(lowering: Lowering, product: Product) -> None:
    for part in batches_of(product):
        ask(lowering, (ASKED, "BatchProduct"), turned_once(lowering, part))


def _is_wide(lowering: Lowering, part: Product) -> Any:
    return 1 if lowering.is_for_device(matmul.FAMILY.name) else is_at_least(part.out.shape[-1], VECTOR)


def _has_rows(lowering: Lowering, part: Product) -> Any:
    return _is_wide(lowering, part) if is_one(part.rhs.strides[-1]) else 0


def _has_columns(lowering: Lowering, part: Product) -> Any:
    row, column = part.rhs.strides[-2:]
    if is_one(column) or not is_one(row):
        return 0
    is_deep = 1 if lowering.is_for_device(matmul.FAMILY.name) else is_at_least(part.rhs.shape[-2], VECTOR)
    return _is_wide(lowering, part) * is_deep


@serves("lowering.BatchProduct", where=_has_rows)
def _rows(lowering: Lowering, part: Product) -> None:
    _emit(lowering, part, "rows", prod(part.out.shape[:-2]))


@serves("lowering.BatchProduct", where=_has_columns)
def _columns(lowering: Lowering, part: Product) -> None:
    _emit(lowering, part, "columns", prod(part.out.shape[:-2]))


@serves("lowering.BatchProduct", cost=2.0, where=_is_wide)
def _copied_rows(lowering: Lowering, part: Product) -> None:
    _rows(lowering, replace(part, rhs=_copied(lowering, part, part.out.shape[-1])))


@serves("lowering.BatchProduct", cost=3.0)
def _panel(lowering: Lowering, part: Product) -> None:
    rhs, k = _copied(lowering, part, PANEL), part.rhs.shape[-2]
    panel = viewed_as(rhs, (*rhs.shape[:-2], 1, k, PANEL), (*rhs.strides[:-2], k * PANEL, PANEL, 1))
    _emit(lowering, replace(part, rhs=panel), "panels", prod(part.out.shape[:-2]))


def _copied(lowering: Lowering, product: Product, width: int) -> Plain:
    """Copy the right operand into rows of ``width``, batch by batch; elements beyond N are never looked at."""
    *batch, k, n = product.rhs.shape
    # A batch that shares one matrix is copied once.
    once = [1 if always_equal(step, 0) else extent for extent, step in zip(batch, product.rhs.strides, strict=False)]
    target = lowering.temporary(TensorType(product.rhs.storage.dtype, (*once, k, width)))
    source = viewed_as(product.rhs, (*once, k, n), product.rhs.strides)
    lowering.copy(source, viewed_as(target, source.shape, target.strides), product.node)
    repeated = [0 if is_one(have) else step for have, step in zip(once, target.strides, strict=False)]
    return viewed_as(target, (*batch, k, n), (*repeated, *target.strides[-2:]))


def _emit(lowering: Lowering, product: Product, layout: str, batches: int) -> None:
    """Emit one call of the ``matmul`` family."""
    m, n = product.out.shape[-2:]
    k = product.lhs.shape[-1]
    rank = len(product.out.shape)
    lhs, rhs = with_inner_stride(product.lhs, 1), product.rhs
    dtype = rhs.storage.dtype
    variant = lowering.choose(matmul.FAMILY, layout, batches, m, n, k, dtype)
    own = matmul.operands(layout, rank, len(rhs.shape), constant_step(lhs.strides[-1]), variant, dtype)
    out = Operand("out", own[0].dtype, (Dim(stride=1), *(Dim(),) * (rank - 1)))
    inputs = (*own, *epilogue_inputs(product))
    emit_call(lowering, product, matmul.FAMILY, (lhs, rhs), inputs, out, {"rhs": layout}, variant)
