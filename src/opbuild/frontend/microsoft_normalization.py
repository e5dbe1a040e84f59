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
    total = of("Gather", of.input(2), of.input(0), axis=0)
    table = of.input(3)
    places = of("Gather", table, of.input(8), axis=0) if of.has(8) else of.slice(table, 0, 0, length)
    total = of("Add", total, places)
    if of.has(1):
        total = of("Add", total, of("Gather", of.input(4), of.input(1), axis=0))
    attrs = {"axis": -1, "epsilon": float(of.attr("epsilon", 1e-12))}
    value = of("LayerNormalization", total, of.input(5), of.input(6), **attrs)
    if of.has(7):
        lengths = of("Cast", of("ReduceSum", of.input(7), of.ints(1), keepdims=0), to=6)
    else:
        lengths = of.constant(np.zeros(batch, np.int32))
    return of.finish(value, lengths, total)
