"""The order in which the passes run."""

from __future__ import annotations

from opbuild.graph.passes.attention import fuse_attention
from opbuild.graph.passes.batchnorm import fold_batchnorm
from opbuild.graph.passes.cleanup import eliminate_dead, merge_duplicates, remove_identities
from opbuild.graph.passes.composite import decompose
from opbuild.graph.passes.fold import DEQUANTIZE, Bounded, Evaluate, fold
from opbuild.graph.passes.fuse import fuse
from opbuild.graph.passes.indices import check_indices
from opbuild.graph.passes.integers import rewrite_integers
from opbuild.graph.passes.narrow import widen_narrow_floats
from opbuild.graph.passes.overlap_collectives import overlap_collectives
from opbuild.graph.passes.patterns import (
    fuse_channel_shuffle,
    fuse_gelu,
    fuse_group_normalization,
    fuse_layer_normalization,
    keep_leading_dimensions,
    merge_scales,
    reshape_whole_gathers,
    zero_softmax,
)
from opbuild.graph.passes.volumes import flatten_volumes
from opbuild.graph.types import Graph


def optimize(graph: Graph, evaluate: Evaluate) -> Graph:
    """Return an equivalent of a typed graph for lowering: simplified, elementwise operators fused, communication early.

    What is known is evaluated, e.g. with the host backend's ``evaluate``.
    """
    evaluate = Bounded.of(evaluate)
    graph = fold(flatten_volumes(simplify(graph, evaluate)), evaluate)
    return overlap_collectives(fuse_attention(fuse(fuse_channel_shuffle(graph))))


def simplify(graph: Graph, evaluate: Evaluate) -> Graph:
    """Return an equivalent graph with fewer and simpler nodes, all of them operators that the host backend runs."""
    evaluate = Bounded.of(evaluate)
    graph = check_indices(merge_duplicates(eliminate_dead(graph)))
    graph = fold(graph, evaluate, but=DEQUANTIZE)
    graph = remove_identities(graph)
    graph = fold(rewrite_integers(graph), evaluate)
    graph = remove_identities(widen_narrow_floats(zero_softmax(graph)))
    graph = fuse_layer_normalization(graph)
    graph = fuse_group_normalization(fuse_gelu(graph))
    graph = keep_leading_dimensions(merge_scales(reshape_whole_gathers(decompose(graph))))
    graph = fold_batchnorm(graph)
    graph = fold(graph, evaluate)
    return remove_identities(graph)
