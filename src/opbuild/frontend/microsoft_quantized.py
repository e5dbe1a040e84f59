"""Quantised operators of ``com.microsoft`` that have no kernels of their own, as ONNX's operators."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from opbuild.frontend.microsoft_bits import unpacked
from opbuild.frontend.rewriting import Rewriting, writes
from opbuild.graph.types import Node


@writes("QuantizeLinear", "DequantizeLinear")
def _linear(of: Rewriting) -> Sequence[Node]:
    """The operator of ONNX with that name, which has more element types."""
    attrs = {"axis": int(of.attr("axis", 1))}
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


@writes("MulInteger")
def _multiply(of: Rewriting) -> Sequence[Node]:
    return of.finish(of("Mul", _moved(of, 0), _moved(of, 2)))


def _moved(of: Rewriting, index: int) -> str:
    wide = of.cast(of.input(index), "int32")
    return of("Sub", wide, of.cast(of.input(index + 1), "int32")) if of.has(index + 1) else wide


@writes("ReduceSumInteger")
def _reduce_sum(of: Rewriting) -> Sequence[Node]:
    wide = of.cast(of.input(0), "int32" if of.dtype(0) == "int8" else "uint32")
    axes = of.ints(*map(int, of.attr("axes", ())))
    return of.finish(of("ReduceSum", wide, axes, keepdims=int(of.attr("keepdims", 1))))


@writes("MatMulInteger16")
def _matmul_integer16(of: Rewriting) -> Sequence[Node]:
    return of.finish(of("MatMul", *(of.cast(of.input(index), "int32") for index in (0, 1))))


@writes("GatherBlockQuantized")
def _gather_blocks(of: Rewriting) -> Sequence[Node]:
    """Gather, then dequantise what was gathered; an index that is out of range gives zeros, as the schema says."""
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
    """What is gathered of an input along an axis.

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
        value = of.input(index)
        whole = {"int4": "int8", "uint4": "uint8"}.get(of.dtype(index))
        value = of("Gather", of.cast(value, whole) if whole else value, self.places, axis=axis)
        value = unpacked(of, value, shape, bits)
        count = of.shape(2)[-1]
        if index == 3 and bits < 8 and own[-1] * 8 // bits != count:
            value = of.slice(value, len(shape) - 1, 0, count)
        return value
