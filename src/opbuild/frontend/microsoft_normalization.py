"""Normalizations of ``com.microsoft``, with the sums and embeddings that ONNX Runtime fuses into them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from opbuild.frontend.rewriting import Rewriting, writes
from opbuild.graph.types import Node


@writes("SimplifiedLayerNormalization")
@writes("SimplifiedLayerNormalization", domain="")
def _rms_normalization(of: Rewriting) -> Sequence[Node]:
    attrs = {"axis": of.attr("axis", -1), "epsilon": of.attr("epsilon", 1e-5)}
    return of.finish(of("RMSNormalization", of.input(0), of.input(1), **attrs))


@writes("LayerNormalization")
def _layer_normalization(of: Rewriting) -> Sequence[Node]:
    of.write("LayerNormalization", of.node.inputs, of.node.outputs, of.node.attrs)
    return of.nodes


@writes("SkipLayerNormalization")
def _skip_normalization(of: Rewriting) -> Sequence[Node]:
    """Normalise the sum of two inputs and a bias; the sum is the fourth output."""
    total = _skipped(of, 4)
    attrs = {"axis": -1, "epsilon": float(of.attr("epsilon", 1e-12))}
    value = of("LayerNormalization", total, *of.node.inputs[2 : 4 if of.has(3) else 3], **attrs)
    return of.finish(value, "", "", total)


@writes("SkipSimplifiedLayerNormalization")
def _skip_rms_normalization(of: Rewriting) -> Sequence[Node]:
    total = _skipped(of, 3)
    attrs = {"axis": -1, "epsilon": float(of.attr("epsilon", 1e-12))}
    return of.finish(of("RMSNormalization", total, of.input(2), **attrs), "", "", total)


def _skipped(of: Rewriting, bias: int) -> str:
    total = of("Add", of.input(0), of.input(1))
    return of("Add", total, of.input(bias)) if of.has(bias) else total


@writes("EmbedLayerNormalization")
def _embed_layer_normalization(of: Rewriting) -> Sequence[Node]:
    batch, length = of.shape(0, 2)
    total = of("Gather", of.input(2), of.in_range(of.input(0), of.shape(2)[0]), axis=0)
    table = of.input(3)
    if of.has(8):
        places = of("Gather", table, of.in_range(of.input(8), table.shape[0]), axis=0)
    else:
        places = of.slice(table, 0, 0, length)
    total = of("Add", total, places)
    if of.has(1):
        total = of("Add", total, of("Gather", of.input(4), of.in_range(of.input(1), of.shape(4)[0]), axis=0))
    attrs = {"axis": -1, "epsilon": float(of.attr("epsilon", 1e-12))}
    value = of("LayerNormalization", total, of.input(5), of.input(6), **attrs)
    return of.finish(value, _lengths(of, 7, batch), total)


def _lengths(of: Rewriting, mask: int, batch: int) -> str:
    """Return how many tokens each batch has, 0 if there is no mask."""
    if not of.has(mask):
        return of.constant(np.zeros(batch, np.int32))
    return of("ReduceSum", of.input(mask), of.ints(1), keepdims=0)


@writes("QEmbedLayerNormalization")
def _quantized_embed_layer_normalization(of: Rewriting) -> Sequence[Node]:
    """EmbedLayerNormalization of tables of bytes: what is looked up is dequantised."""

    def rows(table: int, places: str, scale: int, zero: int) -> str:
        value = of.input(table)
        if places:
            value = of("Gather", value, of.in_range(places, value.shape[0]), axis=0)
        return of("DequantizeLinear", value, *map(of.scalar, (scale, zero)))

    batch, length = of.shape(0, 2)
    total = rows(2, of.input(0), 8, 13)
    total = of("Add", total, of.slice(rows(3, "", 9, 14), 0, 0, length))
    if of.has(1):
        total = of("Add", total, rows(4, of.input(1), 10, 15))
    attrs = {"axis": -1, "epsilon": float(of.attr("epsilon", 1e-12))}
    value = of("LayerNormalization", total, rows(5, "", 11, 16), rows(6, "", 12, 17), **attrs)
    return of.finish(value, _lengths(of, 7, batch))


@writes("GroupNorm", "SkipGroupNorm")
def _group_norm(of: Rewriting) -> Sequence[Node]:
    """Normalise groups of channels, of the sum of two inputs and a bias for the one operator, then SiLU if asked."""
    last, rank, kind = bool(of.attr("channels_last", 1)), len(of.shape(0, 3, 4, 5)), of.dtype(0)
    value = total = _sum_of_images(of, last) if of.node.op_type == "SkipGroupNorm" else of.input(0)
    if last:
        value = of("Transpose", value, perm=(0, rank - 1, *range(1, rank - 1)))
    value, scale, bias = (
        of.cast(value, "float32", kind),
        *(of.cast(of.input(i), "float32", of.dtype(i)) for i in (1, 2)),
    )
    attrs = {"num_groups": int(of.attr("groups", 1)), "epsilon": float(of.attr("epsilon", 1e-5))}
    value = of("GroupNormalization", value, scale, bias, **attrs)
    if of.attr("activation", 0):
        value = of("Mul", value, of("Sigmoid", value))
    value = of.cast(value, kind, "float32")
    if last:
        value = of("Transpose", value, perm=(0, *range(2, rank), 1))
    return of.finish(value, total) if of.node.op_type == "SkipGroupNorm" else of.finish(value)


def _sum_of_images(of: Rewriting, last: bool) -> str:
    """Return an image plus another one, or a number for each of its channels, plus a bias."""
    shape = of.shape(0)
    ones = (1,) * (len(shape) - 2)

    def spread(index: int, *front: int) -> str:
        given = of.shape(index)
        if len(given) > 2:
            return of.input(index)
        return (
            of.reshape(of.input(index), (*front, *ones, given[-1]))
            if last
            else of.reshape(of.input(index), (*front, given[-1], *ones))
        )

    total = of("Add", of.input(0), spread(3, *of.shape(3)[:1]))
    return of("Add", total, spread(4, 1)) if of.has(4) else total
