"""Operators of ``com.microsoft`` on quantised numbers and weights of few bits that have no kernels of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from opbuild.frontend.rewriting import Rewriting, writes
from opbuild.frontend.rewritten import MICROSOFT, REWRITES
from opbuild.graph.graph_builder import Value
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
def _matmul_nbits(of: Rewriting) -> Sequence[Node]:
    """Keep forms that have a kernel: known weights whose blocks lie in order; write the weights out otherwise."""
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
    scale, zero = of.reshape(of.input(2), (n, blocks)), _zero_points(of, n, blocks, bits)
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
    return of.finish(of.plus(product, 5))


def _nothing(of: Rewriting, n: int) -> Value:
    """Return the product with weights that are left out: zeros, or the bias."""
    row = of.input(5) if of.has(5) else of.constant(np.zeros(n, of.dtype(0)))
    return of("Expand", row, of.ints(*of.shape(0)[:-1], n))


def _zero_points(of: Rewriting, n: int, blocks: int, bits: int) -> Value:
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


@writes("QuantizeLinear", "DequantizeLinear")
def _linear(of: Rewriting) -> Sequence[Node]:
    """The operator of ONNX with that name, which has more element types."""
    attrs: dict[str, Any] = {"axis": int(of.attr("axis", 1))}
    if len(of.shape(0)) <= attrs["axis"]:
        attrs = {}  # there is one scale
    of.write(of.node.op_type, of.node.inputs, of.node.outputs, attrs)
    return of.nodes


@writes("QLinearReduceMean")
def _reduce_mean(of: Rewriting) -> Sequence[Node]:
    value = of("DequantizeLinear", *(of.input(index) for index in (0, 1, 2) if of.has(index)))
    axes = of.ints(*map(int, of.attr("axes", ())))
    mean = of("ReduceMean", value, axes, keepdims=int(of.attr("keepdims", 1)))
    zero = of.input(4) if of.has(4) else of.constant(np.zeros((), of.dtype(0)))
    return of.finish(of("QuantizeLinear", mean, of.input(3), zero))


def _moved(of: Rewriting, index: int) -> Value:
    wide = of.cast(of.input(index), "int32")
    return of("Sub", wide, of.cast(of.input(index + 1), "int32")) if of.has(index + 1) else wide


@writes("ReduceSumInteger")
def _reduce_sum(of: Rewriting) -> Sequence[Node]:
    wide = of.cast(of.input(0), "int32" if of.dtype(0) == "int8" else "uint32")
    axes = of.ints(*map(int, of.attr("axes", ())))
    return of.finish(of("ReduceSum", wide, axes, keepdims=int(of.attr("keepdims", 1))))


@writes("GatherBlockQuantized")
def _gather_blocks(of: Rewriting) -> Sequence[Node]:
    """Gather, then dequantise the gathered rows; an index that is out of range gives zeros, as the schema says."""
    shape, indices, kind = of.shape(0, *range(1, 9)), of.shape(1), of.dtype(2)
    rank = len(shape)
    taken, blocked = (
        int(of.attr(f"{name}_axis", default)) % rank for name, default in (("gather", 0), ("quantize", 1))
    )
    places, inside = _places(of, shape[taken])
    own = {index: _Gathered(of, index, taken, places) for index in (0, 2, 3) if of.has(index)}
    bits = int(of.attr("bits", 4)) if of.dtype(0) == "uint8" else 8
    if bits < 8 and taken == rank - 1:
        of.refuse("packed numbers are gathered along another axis than the last one")
    value, (extent, blocks) = own[0].numbers(bits), (shape[blocked], of.shape(2, rank)[blocked])
    if blocked == rank - 1:
        extent *= 8 // bits
    block = int(of.attr("block_size", 128)) or extent
    if taken == blocked:
        own[2].places = own[3 if 3 in own else 2].places = of("Div", places, of.number(block))
    scale = own[2].numbers(8)
    zero = own[3].numbers(bits) if 3 in own else ""
    axis = blocked if blocked < taken else blocked + len(indices) - 1
    if taken != blocked and (blocks > 1 or block < extent):
        index = of.constant(np.arange(extent, dtype=np.int64) // block)
        scale = of("Gather", scale, index, axis=axis)
        zero = of("Gather", zero, index, axis=axis) if zero else zero
    if not zero and of.dtype(0) == "uint8":
        zero = of.constant(np.array(1 << (bits - 1), np.uint8))
    wide = of.cast(value, kind)
    result = of("Mul", of("Sub", wide, of.cast(zero, kind)) if zero else wide, scale)
    inside = of.reshape(inside, (*(1,) * taken, *indices, *(1,) * (rank - 1 - taken)))
    return of.finish(of("Where", inside, result, of.constant(np.zeros((), kind))))


def _places(of: Rewriting, extent: int) -> tuple[str, str]:
    """Return indices from 0 on, 0 for those that are out of range, and which are not."""
    given = of.cast(of.input(1), "int64", of.dtype(1))
    places = of("Where", of("Less", given, of.number(0)), of("Add", given, of.number(extent)), given)
    inside = of("And", of("GreaterOrEqual", places, of.number(0)), of("Less", places, of.number(extent)))
    return of("Where", inside, places, of.number(0)), inside


class _Gathered:
    """The elements gathered of an input along an axis.

    Args:
        of: Where it is written.
        index: Which input it is.
        axis: The axis.
        places: Indices along it.
    """

    def __init__(self, of: Rewriting, index: int, axis: int, places: str) -> None:
        self._of, self._index, self._axis = of, index, axis
        self.places = places

    def numbers(self, bits: int) -> str:
        """Write it, one element a number; of one number for the whole axis all places have that."""
        of, index, axis = self._of, self._index, self._axis
        own, indices = of.shape(index), of.shape(1)
        shape = (*own[:axis], *indices, *own[axis + 1 :])
        if own[axis] == 1 and of.shape(0)[axis] != 1:
            return of.reshape(of.input(index), (*own[:axis], *(1,) * len(indices), *own[axis + 1 :]))
        value: str = of.input(index)
        whole = {"int4": "int8", "uint4": "uint8"}.get(of.dtype(index))
        value = of("Gather", of.cast(value, whole) if whole else value, self.places, axis=axis)
        value = unpacked(of, value, shape, bits)
        count = of.shape(2)[-1]
        if index == 3 and bits < 8 and own[-1] * 8 // bits != count:
            value = of.slice(value, len(shape) - 1, 0, count)
        return value


@writes("DynamicQuantizeLSTM")
def _dynamic_quantize_lstm(of: Rewriting) -> Sequence[Node]:
    """DynamicQuantizeLSTM: an LSTM whose weights are dequantised when the network is built.

    ONNX Runtime quantises inputs and hidden states at each step besides; that they are not here makes results closer
    to those of float32.
    """
    weights = []
    for index, scale, zero in ((1, 8, 9), (2, 10, 11)):
        wide = of("Cast", of.input(index), to=1)
        parameters = (of.input(scale), of("Cast", of.input(zero), to=1))
        # One number a direction, or one a column of it.
        spread, moved = (of.reshape(each, (*of.shape(scale)[:1], 1, -1)) for each in parameters)
        weights.append(of("Transpose", of("Mul", of("Sub", wide, moved), spread), perm=(0, 2, 1)))
    others = [of.input(index) if of.has(index) else "" for index in range(3, 8)]
    of.write("LSTM", (of.input(0), *weights, *others), of.node.outputs, of.node.attrs)
    return of.nodes


REWRITES.register_all(
    {
        "MulInteger": lambda of: of.finish(of("Mul", _moved(of, 0), _moved(of, 2))),
        "MatMulInteger16": lambda of: of.finish(of("MatMul", *(of.cast(of.input(i), "int32") for i in (0, 1)))),
    },
    MICROSOFT,
)
