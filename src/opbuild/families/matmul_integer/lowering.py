"""Calls that multiply matrices of bytes: uint8 by int8, the right operand in panels of groups along K.

Constant right operands are packed when the network is built, others by copies before each product.
"""

from __future__ import annotations

import numpy as np

from opbuild.families.layouts import PAIR
from opbuild.families.matmul_integer import family
from opbuild.graph.extents import always_equal, is_one
from opbuild.graph.types import Array, TensorType
from opbuild.kernel.opdesc import Dim, Operand
from opbuild.lowering.context import Lowering
from opbuild.lowering.implementations import serves
from opbuild.lowering.matrix import Product, as_rows, batches_of, epilogue_inputs, in_canonical_form
from opbuild.lowering.operands import Plain
from opbuild.lowering.strided import constant_step, viewed_as, with_inner_stride
from opbuild.operations.expression import operations
from opbuild.platform.arrange import interleaved
from opbuild.platform.records import replace

MOST_SUM = (2**15 - 1) // 255
"""Distance from 0 of the sum of two neighbours along K up to which their products by any two bytes fit 16 bits."""


@serves("lowering.IntegerProduct")
def emit_integer_product(lowering: Lowering, product: Product) -> None:
    """Emit the calls of a product of uint8 by int8; none if the output has no elements."""
    if 0 in product.out.shape:
        return
    product = in_canonical_form(product)
    if product.constant is not None:
        name = product.constant[0]
        beyond = _excess(lowering, name) if family.has_halves(lowering.machine) else None
        halves = beyond is not None
        packed = _packed(lowering, name, halves)
        _emit(lowering, replace(as_rows(lowering, product), rhs=packed), halves, beyond or ())
        return
    for part in batches_of(product):
        _emit(lowering, replace(part, rhs=_copied(lowering, part)), False, ())


def _excess(lowering: Lowering, name: str) -> tuple[Plain, ...] | None:
    """Return the operands that hold what a constant matrix has beyond sums of 16 bits; None if it is too much of it."""
    *_, k, n = lowering.type(name).shape
    width = family.panel(lowering.machine)
    pairs, columns, values = _beyond(np.asarray(lowering.constant(name)).reshape(k, n))
    if not values.size:
        return ()
    rows, row = np.unique(columns // width * k + pairs, return_inverse=True)
    panels, pairs = np.divmod(rows, k)
    counts = np.bincount(panels, minlength=-(-n // width))
    most = int(counts.max())
    if most > family.MOST_EXCESS * k:
        return None
    number = np.arange(rows.size) - (np.cumsum(counts) - counts)[panels]
    places, excess = np.zeros((counts.size, most), np.int32), np.zeros((counts.size, most, width), np.int8)
    places[panels, number] = PAIR * pairs
    excess[columns // width, number[row], columns % width] = values
    return (
        lowering.packed((name,), f"places of the excess in panels of {width}", places.shape, "int32", lambda: places),
        lowering.packed((name,), f"excess in panels of {width}", excess.shape, "int8", lambda: excess),
    )


def _beyond(weights: Array) -> tuple[Array, Array, Array]:
    """Return the pairs along K and the columns in which the sum of two neighbours is too large, and by how much."""
    odd = weights[1::PAIR]
    even = weights[::PAIR][: len(odd)]
    wrapped = even + odd
    flat = np.flatnonzero(((even ^ wrapped) & (odd ^ wrapped)) < 0)  # along two dimensions it takes six times as long
    pairs, columns = np.divmod(flat, weights.shape[1])
    sums = even[pairs, columns].astype(np.int16) + odd[pairs, columns]
    values = (sums - np.clip(sums, -MOST_SUM, MOST_SUM)).astype(np.int8)
    return pairs[values != 0], columns[values != 0], values[values != 0]


def _packed(lowering: Lowering, name: str, halves: bool) -> Plain:
    """Return a constant matrix ``(..., K, N)``, others being 1, as ``(N/panel, K/group, panel, group)``.

    With ``halves`` the first of two neighbours lacks what their sum has too much.
    """
    *_, k, n = lowering.type(name).shape
    group, width = family.group(halves, lowering.machine), family.panel(lowering.machine)
    shape = (-(-n // width), -(-k // group), width, group)

    def pack() -> Array:
        full, weights = np.zeros((shape[1] * group, shape[0] * width), np.int8), lowering.constant(name)
        full[:k, :n] = weights = np.asarray(weights).reshape(k, n)
        if halves:
            pairs, columns, values = _beyond(weights)
            full[PAIR * pairs, columns] -= values
        neighbours = interleaved([full[place::group].view(np.uint8) for place in range(group)])
        packed = np.ascontiguousarray(neighbours.reshape(shape[1], shape[0], width).swapaxes(0, 1))
        return packed.view(np.int8).reshape(shape)

    less = " less the excess" if halves else ""
    return lowering.packed((name,), f"panels of {width} by groups of {group}{less}", shape, "int8", pack)


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


def _emit(lowering: Lowering, product: Product, halves: bool, excess: tuple[Plain, ...]) -> None:
    """Emit one call."""
    m, n = product.out.shape[-2:]
    lhs = with_inner_stride(product.lhs, 1)
    if constant_step(lhs.strides[-1]) != 1:
        lhs = lowering.dense_copy(lhs, product.node)
    variant = lowering.choose(family.FAMILY, m, n)
    rank = len(product.out.shape)
    group = family.group(halves, lowering.machine)
    own = family.operands(rank, len(product.rhs.shape), group, bool(excess), variant, lowering.machine)
    desc = family.FAMILY.desc(
        ("MatMulInteger", *operations(product.expression)),
        (*own, *epilogue_inputs(product)),
        (Operand("out", product.out.storage.dtype, (Dim(stride=1), *(Dim(),) * (rank - 1))),),
        {"epilogue": product.expression} | ({"halves": True} if halves else {}) | ({"excess": True} if excess else {}),
        variant,
        product.impl_mode,
    )
    out = with_inner_stride(product.out, 1)
    lowering.emit(desc, (lhs, product.rhs, *excess, *product.operands, out), (product.node,))
