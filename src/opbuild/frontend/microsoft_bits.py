"""Products with weights of few bits of ``com.microsoft``, in the forms for which there is no kernel of their own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from opbuild.frontend.rewriting import Rewriting, writes
from opbuild.graph.types import Node

FP4 = (0.0, 5.208333333e-03, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25)
"""The magnitudes of bitsandbytes' numbers of 4 bits; the fourth bit is the sign."""

NF4 = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635),
    *(-0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634),
    *(0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)
"""Bitsandbytes' sixteen numbers whose places are those of a normal distribution."""

SERVED, WITH_KERNELS = (2, 4, 8), (4, 8)


def unpacked(of: Rewriting, value: str, shape: Sequence[int], bits: int, *, high_first: bool = False) -> str:
    """Return bytes along whose last axis several numbers are packed as one byte a number."""
    if bits == 8:
        return value
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    shifts = shifts[::-1].copy() if high_first else shifts
    apart = of("BitShift", of.reshape(value, (*shape, 1)), of.constant(shifts), direction="RIGHT")
    numbers = of("BitwiseAnd", apart, of.constant(np.array((1 << bits) - 1, np.uint8)))
    return of.reshape(numbers, (*shape[:-1], shape[-1] * len(shifts)))


@writes("MatMulNBits")
def _matmul(of: Rewriting) -> Sequence[Node]:
    """Keep what has a kernel: known weights whose blocks lie in order; write the weights out otherwise."""
    k, n, bits, block = (int(of.attr(name, 4)) for name in ("K", "N", "bits", "block_size"))
    if bits not in SERVED:
        of.refuse(f"weights of {bits} bits are not served, those of 2, 4 and 8 are")
    if of.attr("weight_prepacked", 0):
        of.refuse("its weights are arranged for a GPU")
    if 0 in of.shape(1):
        return of.finish(_nothing(of, n))
    known = [of.is_known(index) for index in (1, 2, 3) if of.has(index)]
    if bits in WITH_KERNELS and all(known) and not of.has(4):
        return of.itself()
    blocks, kind = -(-k // block), of.dtype(0)
    codes = unpacked(of, of.input(1), (n, blocks, block * bits // 8), bits)
    scale, zero = of.reshape(of.input(2), (n, blocks)), _zeros(of, n, blocks, bits)
    if of.has(4):
        codes = of.reshape(codes, (n, blocks * block))
        codes = of.slice(codes, 1, 0, k)
        scale, zero = (of("Gather", each, of.input(4), axis=1) for each in (scale, zero))
    else:
        scale, zero = (of.reshape(each, (n, blocks, 1)) for each in (scale, zero))
    weights = of("Mul", of("Sub", of.cast(codes, kind), zero), scale)
    if not of.has(4):
        weights = of.slice(of.reshape(weights, (n, blocks * block)), 1, 0, k)
    product = of("MatMul", of.input(0), of("Transpose", weights, perm=(1, 0)))
    return of.finish(of("Add", product, of.input(5)) if of.has(5) else product)


def _nothing(of: Rewriting, n: int) -> str:
    """Return the product with weights that are left out: zeros, or the bias."""
    row = of.input(5) if of.has(5) else of.constant(np.zeros(n, of.dtype(0)))
    return of("Expand", row, of.ints(*of.shape(0)[:-1], n))


def _zeros(of: Rewriting, n: int, blocks: int, bits: int) -> str:
    """Return the zero points of all blocks, ``(n, blocks)``, in the type of the left operand."""
    kind = of.dtype(0)
    if not of.has(3):
        return of.constant(np.full((n, blocks), 1 << (bits - 1), kind))
    if of.dtype(3) != "uint8":
        return of.reshape(of.input(3), (n, blocks))
    count = -(-blocks * bits // 8)
    numbers = unpacked(of, of.reshape(of.input(3), (n, count)), (n, count), bits)
    return of.cast(of.slice(numbers, 1, 0, blocks), kind)


@writes("MatMulBnb4")
def _matmul_bnb4(of: Rewriting) -> Sequence[Node]:
    """A product with a matrix of places in a table of sixteen numbers, blocks of which have one greatest magnitude."""
    k, n, block = (int(of.attr(name, 0)) for name in ("K", "N", "block_size"))
    kind, size = of.dtype(0), k * n
    table = NF4 if of.attr("quant_type", 1) else (*FP4, *(-each for each in FP4))
    count = -(-size // 2)
    places = unpacked(of, of.reshape(of.input(1), (count,)), (count,), 4, high_first=True)
    numbers = of("Gather", of.constant(np.array(table, kind)), of.cast(places, "int32"), axis=0)
    blocks = -(-size // block)
    spread = of("Expand", of.reshape(of.input(2), (blocks, 1)), of.ints(blocks, block))
    scale = of.slice(of.reshape(spread, (blocks * block,)), 0, 0, size)
    weights = of.reshape(of("Mul", of.slice(numbers, 0, 0, size), scale), (n, k))
    if of.attr("transB", 1):
        weights = of("Transpose", weights, perm=(1, 0))
    return of.finish(of("MatMul", of.input(0), weights))
