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
    shape, indices, kind = of.shape(0, *range(1, 9)), of.shape(1), of.dtype(0)
    rank = len(shape)
    taken, blocked = int(of.attr("gather_axis", 0)) % rank, int(of.attr("quantize_axis", 1)) % rank
    bits = int(of.attr("bits", 4)) if kind == "uint8" else 8
    if bits < 8 and (taken == rank - 1 or rank == 1):
        of.refuse("packed numbers are gathered along another axis than the last one")
    scales = of.shape(2, rank)
    places = of.input(1) if of.dtype(1) == "int64" else of.cast(of.input(1), "int64")
    inside = of("Less", of("Abs", of("Add", of("Mul", places, of.ints(2)), of.ints(1))), of.ints(2 * shape[taken]))
    places = of("Where", inside, places, of.ints(0))

    def gathered(index: int) -> str:
        extent = of.shape(index)[taken]
        return of("Gather", of.input(index), places, axis=taken) if extent == shape[taken] else _spread(index)

    def _spread(index: int) -> str:
        """Return what has one number for all of the axis along which others are gathered, with the indices' rank."""
        own = of.shape(index)
        return of.reshape(of.input(index), *own[:taken], *(1,) * len(indices), *own[taken + 1 :])

    axis = blocked if blocked < taken else blocked + len(indices) - 1
    last = rank + len(indices) - 2
    value = unpacked(of, gathered(0), (*shape[:taken], *indices, *shape[taken + 1 :]), bits)
    zero = ""
    if of.has(3):
        own = of.shape(3, rank)
        zero = unpacked(of, gathered(3), (*own[:taken], *indices, *own[taken + 1 :]), bits)
        if own[-1] * 8 // bits != scales[-1]:
            zero = of.slice(zero, last, 0, scales[-1])
    elif kind == "uint8":
        zero = of.constant(np.full((1,) * (last + 1), 1 << (bits - 1), np.uint8))
    extent = shape[blocked] * (8 // bits if blocked == rank - 1 else 1)
    result = _dequantized(of, value, gathered(2), zero, axis, (extent, scales[blocked]))
    inside = of.reshape(inside, *(1,) * taken, *indices, *(1,) * (rank - 1 - taken))
    nothing = of.constant(np.zeros((), of.dtype(2)))
    return of.finish(of("Where", inside, result, nothing))


def _dequantized(of: Rewriting, value: str, scale: str, zero: str, axis: int, extents: tuple[int, int]) -> str:
    """Return ``(value - zero) * scale`` where neighbours along an axis share both; 1 extent of all is broadcast."""
    extent, blocks = extents
    block = int(of.attr("block_size", 128)) or extent
    if blocks > 1 or block < extent:
        index = of.constant(np.arange(extent, dtype=np.int64) // block)
        scale = of("Gather", scale, index, axis=axis)
        zero = of("Gather", zero, index, axis=axis) if zero and of.has(3) else zero
    kind = of.dtype(2)
    wide = of.cast(value, kind)
    return of("Mul", of("Sub", wide, of.cast(zero, kind)) if zero else wide, scale)
