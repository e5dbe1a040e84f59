"""Products of matrices, as those that compute them are asked, and their batches.

A product is ``out[..., m, n] = epilogue(sum of lhs[..., m, k] * rhs[..., k, n])``; its operands lie anywhere. Batches
that share the right operand become rows.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from opbuild.families.family import Family, Variant
from opbuild.graph.extents import always_equal, example_value, is_one, same_shape
from opbuild.kernel.opdesc import FREE, HIGH_PERFORMANCE, Dim, Operand
from opbuild.lowering.context import Lowering
from opbuild.lowering.implementations import ASKED, ask
from opbuild.lowering.operands import Plain
from opbuild.lowering.strided import broadcast, merge, padded, viewed_as, with_inner_stride
from opbuild.operations.expression import Expression, canonical, operations
from opbuild.platform.records import dataclass, replace

BATCH_RANK = 2
"""Batch dimensions of kernels whose right operand is no constant."""

LEAST_SUMMED, LEAST_COLUMNS = 1024, 128
"""Products of a sum, and columns, from which on a left operand that lies transposed is copied: a tile reads a line of
each of its rows, which leave the near caches before the next tile reads the rest of them."""


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


def emit_product(lowering: Lowering, product: Product) -> None:
    """Emit the calls of a product; none if the output has no elements."""
    if 0 in product.out.shape:
        return
    ask(lowering, (ASKED, "Product"), in_canonical_form(product))


def in_canonical_form(product: Product) -> Product:
    """Return a product whose epilogue has the form of keys."""
    expression, order = canonical(product.expression)
    return replace(product, expression=expression, operands=tuple(product.operands[index] for index in order))


def as_rows(lowering: Lowering, product: Product) -> Product:
    """Return a product whose batches share the right operand as one of matrices: all but ``rhs`` of rank 2."""
    lhs = rows_of(lowering, product)
    n, m = product.out.shape[-1], prod(product.out.shape[:-1])
    out = viewed_as(product.out, (m, n), (n, 1))
    operands = []
    for operand in product.operands:
        extents, strides = merge(operand.shape[:-1], [operand.strides[:-1]])
        if len(extents) > 1:
            copied = lowering.dense_copy(operand, product.node)
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


def _is_far_apart(product: Product) -> bool:
    """Return whether the left operand's numbers of a sum lie so far apart, and are so many, that it is to be copied."""
    *batch, m, k = map(example_value, product.lhs.shape)
    strides = list(map(example_value, product.lhs.strides))
    is_repeated = any(step == 0 and extent > 1 for extent, step in zip(batch, strides, strict=False))
    is_turned = strides[-1] != 1 and m > 1 and not is_repeated
    return is_turned and k >= LEAST_SUMMED and example_value(product.out.shape[-1]) >= LEAST_COLUMNS


def turned_once(lowering: Lowering, product: Product) -> Product:
    """Return a product whose left operand does not lie far apart: else it is a copy."""
    return replace(product, lhs=_copied_once(lowering, product)) if _is_far_apart(product) else product


def _copied_once(lowering: Lowering, product: Product) -> Plain:
    """Return a dense copy of the left operand, one for all products that read it."""
    lhs, copies = product.lhs, lowering.turned.setdefault(product.lhs.storage, [])
    for source, copy in copies:
        same = same_shape(source.shape, lhs.shape) and same_shape(source.strides, lhs.strides)
        if same and always_equal(source.offset, lhs.offset):
            return copy
    copies.append((lhs, lowering.dense_copy(lhs, product.node)))
    return copies[-1][1]


def emit_call(
    lowering: Lowering,
    product: Product,
    family: Family,
    references: tuple[Plain, Plain],
    inputs: tuple[Operand, ...],
    out: Operand,
    attrs: dict[str, Any],
    variant: Variant,
) -> None:
    """Emit the call of a family that computes a product of two references."""
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
