"""Gradients of what picks elements: each gets the sum over all that picked it, in their order, whatever the threads."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from opbuild.graph.gradients.broadcasting import filled, is_empty
from opbuild.graph.graph_builder import GraphBuilder, Value


def index_sum(of: GraphBuilder, dy: Value, indices: Value, shape: Sequence[int], axis: int) -> Value:
    """Return the gradient of what ``Gather`` took slices of ``axis`` from.

    Args:
        of: Writes the operators.
        dy: The gradient of the slices: the axis is replaced by those of the indices.
        indices: Which slices, of any shape; negative ones count from the end.
        shape: The shape of what they were taken from.
        axis: The axis, from 0.
    """
    if is_empty(dy):
        return filled(of, 0.0, dy.dtype, shape)
    before, after, count = prod(shape[:axis]), prod(shape[axis + 1 :]), prod(indices.shape)
    parts = of.transpose(of.reshape(dy, (before, count, after)), (1, 0, 2))
    parts = of.reshape(parts, (count, before * after))
    places = of.reshape(of.cast(indices, "int64"), (count, 1))
    zeros = filled(of, 0.0, dy.dtype, (shape[axis], before * after))
    found = of("ScatterND", zeros, places, parts, reduction="add")
    found = of.transpose(of.reshape(found, (shape[axis], before, after)), (1, 0, 2))
    return of.reshape(found, shape)


def elements_sum(of: GraphBuilder, dy: Value, indices: Value, shape: Sequence[int], axis: int) -> Value:
    """Return the gradient of what ``GatherElements`` took elements of ``shape`` from along ``axis``."""
    zeros = filled(of, 0.0, dy.dtype, shape)
    if is_empty(dy):
        return zeros
    return of("ScatterElements", zeros, of.cast(indices, "int64"), dy, axis=axis, reduction="add")


def embedding_weight(of: GraphBuilder, dy: Value, indices: Value, rows: int, padding_idx: int | None = None) -> Value:
    """Return the gradient of an embedding's table, (rows, width); the row ``padding_idx`` gets none."""
    width = dy.shape[-1]
    if padding_idx is not None and padding_idx >= 0:
        kept = of("Equal", indices, of.constant(padding_idx, indices.dtype))
        kept = of.reshape(kept, (*indices.shape, 1))
        dy = of("Where", kept, of.constant(0.0, dy.dtype), dy)
    return index_sum(of, dy, indices, (rows, width), 0)
