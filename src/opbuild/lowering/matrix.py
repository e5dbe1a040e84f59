"""Calls that multiply matrices: from operands that lie anywhere to one of the layouts that kernels read.

A product is ``out[..., m, n] = epilogue(sum of lhs[..., m, k] * rhs[..., k, n])``. Constant right operands are packed
into panels when the network is built. Others are read where they lie, transposed or not; where neither columns nor rows
are adjacent, or fewer than a vector, they are copied into panels first. Batches that share the right operand become
rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import prod
from typing import Any

import numpy as np

from opbuild.families.dims import VECTOR
from opbuild.families.family import Family, Variant
from opbuild.families.gemv import family as gemv
from opbuild.families.matmul import family as matmul
from opbuild.families.matmul.layouts import PANEL
from opbuild.files.pages import new_pages
from opbuild.graph.extents import always_equal, example_value, is_at_least, is_one, same_shape
from opbuild.graph.types import Array, TensorType
from opbuild.kernel.opdesc import FREE, HIGH_PERFORMANCE, HIGH_PRECISION, Dim, Operand
from opbuild.lowering.context import Lowering
from opbuild.lowering.operands import Plain
from opbuild.lowering.strided import broadcast, constant_step, merge, padded, viewed_as, with_inner_stride
from opbuild.operations.expression import Expression, canonical, operations
from opbuild.platform.arrange import arrange
from opbuild.platform.records import dataclass, replace

MOST_SUMMED = 32
"""Products of a sum from which on a constant column is better multiplied by itself than as one of a panel."""

BATCH_RANK = 2
"""Batch dimensions of kernels whose right operand is no constant."""

LEAST_SUMMED, LEAST_COLUMNS = 1024, 128
"""Products of a sum, and columns, from which on a left operand that lies transposed is copied: a tile reads a line of
each of its rows, which leave the near caches before the next tile reads the rest of them."""

_ADJACENT = 64
"""Numbers of a row that are moved at once: those of a panel's rows are 8 KiB."""


@dataclass(frozen=True)
class Product:
    """A product to emit.

    Attributes:
        lhs: ``(..., M, K)``.
        rhs: ``(..., K, N)``.
        out: ``(..., M, N)``, dense.
        expression: The epilogue over the sum and ``operands``.
        operands: Values of the output's shape; strides of 0 repeat.
        node: The node's name, for reports.
        constant: The right operand's name and how to make it as ``(K, N)``, if it is a constant.
        impl_mode: The implementation mode.
    """

    lhs: Plain
    rhs: Plain
    out: Plain
    expression: Expression
    operands: tuple[Plain, ...]
    node: str
    constant: tuple[str, bool] | None = None
    impl_mode: str = HIGH_PERFORMANCE


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


def emit_product(lowering: Lowering, product: Product) -> None:
    """Emit the calls of a product; none if the output has no elements."""
    if 0 in product.out.shape:
        return
    expression, order = canonical(product.expression)
    product = replace(product, expression=expression, operands=tuple(product.operands[index] for index in order))
    k, n = product.rhs.shape[-2], product.out.shape[-1]
    adjacent = is_one(k) or is_one(product.rhs.strides[-2])
    is_packed = product.constant is not None and 1 < k < MOST_SUMMED  # twelve rows at once, not one after the other
    if is_one(n) and adjacent and not is_packed:
        _vector_right(lowering, product)
    elif product.constant is not None:
        _constant_right(lowering, product, product.constant)
    else:
        _any_right(lowering, product)


def _constant_right(lowering: Lowering, product: Product, constant: tuple[str, bool]) -> None:
    in_pairs = lowering.machine.pairs and lowering.type(constant[0]).dtype == "bfloat16"
    in_pairs = in_pairs and product.impl_mode != HIGH_PRECISION
    weights = panels(lowering, *constant, in_pairs)
    rows = _turned_once(lowering, as_rows(lowering, product))
    _emit(lowering, replace(rows, rhs=weights), "pairs" if in_pairs else "panels", 1)


def as_rows(lowering: Lowering, product: Product) -> Product:
    """Return a product whose batches share the right operand as one of matrices: all but ``rhs`` of rank 2."""
    lhs = rows_of(lowering, product)
    n, m = product.out.shape[-1], prod(product.out.shape[:-1])
    out = viewed_as(product.out, (m, n), (n, 1))
    operands = []
    for operand in product.operands:
        extents, strides = merge(operand.shape[:-1], [operand.strides[:-1]])
        if len(extents) > 1:
            copied = dense_copy(lowering, operand, product.node)
            operands.append(viewed_as(copied, (m, n), (n, 1)))
        else:
            step = strides[0][0] if extents else 0
            operands.append(viewed_as(operand, (m, n), (step, operand.strides[-1])))
    return replace(product, lhs=lhs, out=out, operands=tuple(operands))


def rows_of(lowering: Lowering, product: Product) -> Plain:
    """Return the left operand with its batches as rows: ``(M, K)``."""
    lhs = product.lhs
    k = lhs.shape[-1]
    extents, strides = merge(lhs.shape[:-1], [lhs.strides[:-1]])
    if len(extents) > 1:
        return viewed_as(_copied_once(lowering, product), (prod(extents), k), (k, 1))
    rows = (extents[0], strides[0][0]) if extents else (1, 0)
    return viewed_as(lhs, (rows[0], k), (rows[1], lhs.strides[-1]))


def _any_right(lowering: Lowering, product: Product) -> None:
    for part in batches_of(product):
        turned = _turned_once(lowering, part)
        lowering.either((flag, partial(emit, lowering, turned)) for flag, emit in _ways(part))


def _ways(product: Product) -> Iterator[tuple[int, Callable[[Lowering, Product], None]]]:
    """Yield how a product may be computed, the best first, and flags that say at which sizes it may."""
    m, n = product.out.shape[-2:]
    k, _ = product.rhs.shape[-2:]
    row, column = product.rhs.strides[-2:]
    is_wide = is_at_least(n, VECTOR)
    if is_one(k) or is_one(row):
        yield 1 - is_at_least(m, 2), _vector_left
    if is_one(column):
        yield is_wide, _rows
    elif is_one(row):
        yield is_wide * is_at_least(k, VECTOR), _columns
    yield is_wide, _copied_rows
    yield 1, _panel


def _rows(lowering: Lowering, part: Product) -> None:
    _emit(lowering, part, "rows", prod(part.out.shape[:-2]))


def _columns(lowering: Lowering, part: Product) -> None:
    _emit(lowering, part, "columns", prod(part.out.shape[:-2]))


def _copied_rows(lowering: Lowering, part: Product) -> None:
    _rows(lowering, replace(part, rhs=_copied(lowering, part, part.out.shape[-1])))


def _panel(lowering: Lowering, part: Product) -> None:
    rhs, k = _copied(lowering, part, PANEL), part.rhs.shape[-2]
    panel = viewed_as(rhs, (*rhs.shape[:-2], 1, k, PANEL), (*rhs.strides[:-2], k * PANEL, PANEL, 1))
    _emit(lowering, replace(part, rhs=panel), "panels", prod(part.out.shape[:-2]))


def batches_of(product: Product) -> list[Product]:
    """Return a product as products with ``BATCH_RANK`` merged batch dimensions: one, or more where that is too few."""
    batch = product.out.shape[:-2]
    everything = [broadcast(v, (*batch, *v.shape[-2:])) for v in (product.lhs, product.rhs)]
    everything += [product.out, *product.operands]
    extents, strides = merge(batch, [value.strides[:-2] for value in everything])
    parts = []
    for index in np.ndindex(*extents[: max(0, len(extents) - BATCH_RANK)]):
        views = []
        for value, steps in zip(everything, strides, strict=True):
            offset = sum(i * step for i, step in zip(index, steps, strict=False))
            outer = padded(extents[len(index) :], steps[len(index) :], BATCH_RANK)
            shape, own = (*outer[0], *value.shape[-2:]), (*outer[1], *value.strides[-2:])
            views.append(Plain(value.storage, shape, own, value.offset + offset))
        lhs, rhs, out, *operands = views
        parts.append(replace(product, lhs=lhs, rhs=rhs, out=out, operands=tuple(operands)))
    return [_shared_right(part) for part in parts]


def _shared_right(product: Product) -> Product:
    """Return the product with its innermost batch as rows, where all of that batch share the right operand."""
    everything = (product.lhs, product.out, *product.operands)
    extent, m = product.out.shape[1:3]
    if is_one(extent) or not always_equal(product.rhs.strides[1], 0):
        return product
    if not is_one(m) and not all(always_equal(value.strides[1], value.strides[2] * m) for value in everything):
        return product
    views = []
    for value in everything:
        shape = (1, value.shape[0], m * extent, value.shape[3])
        row = value.strides[1] if is_one(m) else value.strides[2]
        views.append(viewed_as(value, shape, (0, value.strides[0], row, value.strides[3])))
    right, steps = product.rhs.shape, product.rhs.strides
    rhs = viewed_as(product.rhs, (1, right[0], *right[2:]), (0, steps[0], *steps[2:]))
    return replace(product, lhs=views[0], rhs=rhs, out=views[1], operands=tuple(views[2:]))


def _copied(lowering: Lowering, product: Product, width: int) -> Plain:
    """Copy the right operand into rows of ``width``, batch by batch; what is beyond N is never looked at."""
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
    variant = lowering.choose(matmul.choose, layout, batches, m, n, k, dtype)
    own = matmul.operands(layout, rank, len(rhs.shape), constant_step(lhs.strides[-1]), variant, dtype)
    out = Operand("out", own[0].dtype, (Dim(stride=1), *(Dim(),) * (rank - 1)))
    inputs = (*own, *epilogue_inputs(product))
    _call(lowering, product, matmul.FAMILY, (lhs, rhs), inputs, out, {"rhs": layout}, variant)


def _is_far_apart(product: Product) -> bool:
    """Return whether the left operand's numbers of a sum lie so far apart, and are so many, that it is to be copied."""
    *batch, m, k = map(example_value, product.lhs.shape)
    strides = list(map(example_value, product.lhs.strides))
    is_repeated = any(step == 0 and extent > 1 for extent, step in zip(batch, strides, strict=False))
    is_turned = strides[-1] != 1 and m > 1 and not is_repeated
    return is_turned and k >= LEAST_SUMMED and example_value(product.out.shape[-1]) >= LEAST_COLUMNS


def _turned_once(lowering: Lowering, product: Product) -> Product:
    """Return a product whose left operand does not lie far apart: else it is a copy."""
    return replace(product, lhs=_copied_once(lowering, product)) if _is_far_apart(product) else product


def _copied_once(lowering: Lowering, product: Product) -> Plain:
    """Return a dense copy of the left operand, one for all products that read it."""
    lhs, copies = product.lhs, lowering.turned.setdefault(product.lhs.storage, [])
    for source, copy in copies:
        same = same_shape(source.shape, lhs.shape) and same_shape(source.strides, lhs.strides)
        if same and always_equal(source.offset, lhs.offset):
            return copy
    copies.append((lhs, dense_copy(lowering, lhs, product.node)))
    return copies[-1][1]


def _vector_right(lowering: Lowering, product: Product) -> None:
    """Emit products with a single column: a dot product a row."""
    for part in batches_of(product):
        lhs = _adjacent(lowering, part)
        vector = viewed_as(part.rhs, part.rhs.shape[:-1], part.rhs.strides[:-1])
        out, *operands = (viewed_as(v, v.shape[:-1], v.strides[:-1]) for v in (part.out, *part.operands))
        _dot(lowering, replace(part, out=out, operands=tuple(operands)), lhs, vector)


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
    variant = lowering.choose(gemv.choose)
    dtype = matrix.storage.dtype
    inputs = (*gemv.operands(dtype), *epilogue_inputs(product, inner=False))
    out = Operand("out", dtype, (Dim(), Dim(), Dim()))
    references = (with_inner_stride(matrix, 1), with_inner_stride(vector, 1))
    _call(lowering, product, gemv.FAMILY, references, inputs, out, {}, variant)


def _call(
    lowering: Lowering,
    product: Product,
    family: Family,
    references: tuple[Plain, Plain],
    inputs: tuple[Operand, ...],
    out: Operand,
    attrs: dict[str, Any],
    variant: Variant,
) -> None:
    desc = family.desc(
        ("MatMul", *operations(product.expression)),
        inputs,
        (out,),
        {**attrs, "epilogue": product.expression},
        variant,
        product.impl_mode,
    )
    result = product.out if out.dims[0].stride == FREE else with_inner_stride(product.out, out.dims[0].stride)
    lowering.emit(desc, (*references, *product.operands, result), (product.node,))


def epilogue_inputs(product: Product, inner: bool = True) -> tuple[Operand, ...]:
    """Return the descriptor's operands of the epilogue; ``inner``: vectors are loaded along the innermost dimension."""
    steps = [int(not always_equal(o.strides[-1], 0)) if inner else FREE for o in product.operands]
    return tuple(
        Operand(f"e{index}", o.storage.dtype, (Dim(stride=step), *(Dim(),) * (len(o.shape) - 1)))
        for index, (o, step) in enumerate(zip(product.operands, steps, strict=True))
    )


def _adjacent(lowering: Lowering, product: Product) -> Plain:
    """Return the left operand, copied if the elements of its rows are not adjacent."""
    lhs = product.lhs
    return lhs if is_one(lhs.shape[-1]) or is_one(lhs.strides[-1]) else dense_copy(lowering, lhs, product.node)


def dense_copy(lowering: Lowering, value: Plain, node: str) -> Plain:
    """Return a dense copy of a value, repetitions included."""
    target = lowering.temporary(TensorType(value.storage.dtype, value.shape))
    lowering.copy(value, target, node)
    return target
