"""Calls that multiply matrices of bytes: uint8 by int8, the right operand in panels of groups along K.

Constant right operands are packed when the network is built, others by copies before each product.
"""

from __future__ import annotations

import numpy as np

from opbuild.families.conv_integer.family import in_halves
from opbuild.families.matmul_integer import family
from opbuild.graph.extents import always_equal, is_one
from opbuild.graph.types import Array, TensorType
from opbuild.kernel.opdesc import Dim, Operand
from opbuild.lowering.context import Lowering
from opbuild.lowering.conv_weights import largest
from opbuild.lowering.implementations import serves
from opbuild.lowering.matrix import Product, as_rows, batches_of, epilogue_inputs, in_canonical_form
from opbuild.lowering.operands import Plain
from opbuild.lowering.strided import constant_step, viewed_as, with_inner_stride
from opbuild.operations.expression import operations
from opbuild.platform.records import replace


@serves("lowering.IntegerProduct")
def emit_integer_product(lowering: Lowering, product: Product) -> None:
    """Emit the calls of a product of uint8 by int8; none if the output has no elements."""
    if 0 in product.out.shape:
        return
    product = in_canonical_form(product)
    if product.constant is not None:
        name = product.constant[0]
        halves = in_halves(largest(np.asarray(lowering.constant(name))), lowering.machine)
        _emit(lowering, replace(as_rows(lowering, product), rhs=_packed(lowering, name, halves)), halves)
        return
    for part in batches_of(product):
        _emit(lowering, replace(part, rhs=_copied(lowering, part)), False)


def _packed(lowering: Lowering, name: str, halves: bool) -> Plain:
    """Return a constant matrix ``(..., K, N)``, others being 1, as ``(N/panel, K/group, panel, group)``."""
    *_, k, n = lowering.type(name).shape
    group, width = family.group(halves, lowering.machine), family.panel(lowering.machine)
    shape = (-(-n // width), -(-k // group), width, group)

    def pack() -> Array:
        full = np.zeros((shape[1] * group, shape[0] * width), np.int8)
        full[:k, :n] = np.asarray(lowering.constant(name)).reshape(k, n)
        return np.ascontiguousarray(full.reshape(shape[1], group, shape[0], width).transpose(2, 0, 3, 1))

    return lowering.packed((name,), f"panels of {width} by groups of {group}", shape, "int8", pack)


def _copied(lowering: Lowering, product: Product) -> Plain:
    """Copy the right operand into panels; elements beyond K and N are never looked at."""
    *batch, k, n = product.rhs.shape
    *outer, row, column = product.rhs.strides
    once = [1 if always_equal(step, 0) else extent for extent, step in zip(batch, outer, strict=True)]
    group, width = lowering.machine.dot, family.panel(lowering.machine)
    shape = (*once, -(-n // width), -(-k // group), width, group)
    target = lowering.temporary(TensorType("int8", shape))
    steps = (width * column, group * row, column, row)
    for panel, panels, columns in _pieces(n, width):
        for first, groups, depth in _pieces(k, group):
            part = (*once, panels, groups, columns, depth)
            start = product.rhs.offset + panel * steps[0] + first * steps[1]
            source = Plain(product.rhs.storage, part, (*outer, *steps), start)
            place = panel * target.strides[-4] + first * target.strides[-3]
            lowering.copy(source, Plain(target.storage, part, target.strides, place), product.node)
    repeated = [0 if is_one(have) else step for have, step in zip(once, target.strides, strict=False)]
    return viewed_as(target, (*batch, *shape[-4:]), (*repeated, *target.strides[-4:]))


def _pieces(extent: int, size: int) -> list[tuple[int, int, int]]:
    """Return an extent as whole pieces and a rest: the first piece, how many there are, the extent of each."""
    whole, rest = divmod(extent, size)
    return [piece for piece in ((0, whole, size), (whole, 1, rest)) if piece[1] and piece[2]]


def _emit(lowering: Lowering, product: Product, halves: bool) -> None:
    """Emit one call."""
    m, n = product.out.shape[-2:]
    lhs = with_inner_stride(product.lhs, 1)
    if constant_step(lhs.strides[-1]) != 1:
        lhs = lowering.dense_copy(lhs, product.node)
    variant = lowering.choose(family.FAMILY, m, n)
    rank = len(product.out.shape)
    group = family.group(halves, lowering.machine)
    own = family.operands(rank, len(product.rhs.shape), group, variant, lowering.machine)
    desc = family.FAMILY.desc(
        ("MatMulInteger", *operations(product.expression)),
        (*own, *epilogue_inputs(product)),
        (Operand("out", product.out.storage.dtype, (Dim(stride=1), *(Dim(),) * (rank - 1))),),
        {"epilogue": product.expression} | ({"halves": True} if halves else {}),
        variant,
        product.impl_mode,
    )
    out = with_inner_stride(product.out, 1)
    lowering.emit(desc, (lhs, product.rhs, *product.operands, out), (product.node,))
