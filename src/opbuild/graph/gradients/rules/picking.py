"""Gradients of gathers by indices, and of scatters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from opbuild.graph.gradients.broadcasting import is_empty
from opbuild.graph.gradients.registry import RULES, Backward, gradient
from opbuild.graph.graph_builder import GraphBuilder, Value


def index_sum(of: GraphBuilder, dy: Value, indices: Value, shape: Sequence[int], axis: int) -> Value:
    """Return the gradient of the data that ``Gather`` took slices of ``axis`` from.

    Args:
        of: Writes the operators.
        dy: The gradient of the slices: the axis is replaced by those of the indices.
        indices: Which slices, of any shape; negative ones count from the end.
        shape: The shape of what they were taken from.
        axis: The axis, from 0.
    """
    if is_empty(dy):
        return of.filled(0.0, dy.dtype, shape)
    before, after, count = prod(shape[:axis]), prod(shape[axis + 1 :]), prod(indices.shape)
    parts = of.transpose(of.reshape(dy, (before, count, after)), (1, 0, 2))
    parts = of.reshape(parts, (count, before * after))
    places = of.reshape(of.cast(indices, "int64"), (count, 1))
    zeros = of.filled(0.0, dy.dtype, (shape[axis], before * after))
    found = of("ScatterND", zeros, places, parts, reduction="add")
    found = of.transpose(of.reshape(found, (shape[axis], before, after)), (1, 0, 2))
    return of.reshape(found, shape)


def elements_sum(of: GraphBuilder, dy: Value, indices: Value, shape: Sequence[int], axis: int) -> Value:
    """Return the gradient of the data that ``GatherElements`` took elements of ``shape`` from along ``axis``."""
    zeros = of.filled(0.0, dy.dtype, shape)
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


Parts = Sequence[Value | None]


def _taken_along(back: Callable[..., Value]) -> Callable[[Backward], Parts]:
    """Return the rule that adds each part to where it was taken from along an axis."""

    def rule(of: Backward) -> Parts:
        shape = of.input(0).shape
        return (back(of, of.gradient(), of.input(1), shape, of.axis(0, len(shape))),)

    return rule


RULES.register_all({"Gather": _taken_along(index_sum), "GatherElements": _taken_along(elements_sum)})


@gradient("GatherND")
def gather_vectors(of: Backward) -> Parts:
    """Add each slice's part to where its vector of indices points."""
    x, places, dy = of.input(0), of.input(1), of.gradient()
    zeros = of.filled(0.0, x.dtype, x.shape)
    if is_empty(dy):
        return (zeros,)
    batches = places.shape[: int(of.node.attrs.get("batch_dims", 0))]
    for axis, extent in reversed(list(enumerate(batches))):  # their places are those of the indices
        own = np.arange(extent).reshape(*(extent if each == axis else 1 for each in range(len(places.shape))))
        places = of("Concat", of.expand(of.constant(own, "int64"), (*places.shape[:-1], 1)), places, axis=-1)
    return (of("ScatterND", zeros, places, dy, reduction="add"),)


@gradient("TopK")
def greatest_elements(of: Backward) -> Parts:
    """Add each element's part to where it stood."""
    shape = of.input(0).shape
    places = of.outputs[1]
    if places is None:
        places = of.several("TopK", 2, of.input(0), of.input(1), **of.node.attrs)[1]
    return (elements_sum(of, of.gradient(), places, shape, of.axis(-1, len(shape))),)


@gradient("ScatterElements", "ScatterND")
def scatter(of: Backward) -> Parts:
    """Take back the updates written, added, multiplied or compared; elements written over get nothing."""
    x, places, updates, dy = of.input(0), of.input(1), of.input(2), of.gradient()
    if is_empty(updates):
        return dy, None, of.filled(0.0, x.dtype, updates.shape)
    how = of.node.text("reduction", "none")
    if how == "add":
        return dy, None, _taken(of, dy)
    if how == "mul":
        return _of_product(of)
    if how in ("max", "min"):
        own, other = (of("Equal", *each) for each in ((x, of.output()), (updates, _taken(of, of.output()))))
        own, other = (of.cast(each, x.dtype) for each in (own, other))
        share = of("Div", dy, of("Max", _scattered(of, own, other, "add"), of.constant(1.0, x.dtype)))
        return of("Mul", own, share), None, of("Mul", other, _taken(of, share))
    data = _scattered(of, dy, of.filled(0.0, x.dtype, updates.shape)) if of.wants(0) else None
    back = _taken(of, dy)
    if of.wants(2) and not _is_distinct(of, of.axis(0, len(x.shape))):
        back = of("Where", _is_last(of, places, updates), back, of.constant(0.0, x.dtype))
    return data, None, back


def _scattered(of: Backward, data: Value, updates: Value, how: str = "none") -> Value:
    """Return other data with other updates at the same places."""
    attrs: dict[str, Any] = {"axis": of.axis(0, len(data.shape))} if of.node.op_type == "ScatterElements" else {}
    return of(of.node.op_type, data, of.input(1), updates, reduction=how, **attrs)


def _taken(of: Backward, data: Value) -> Value:
    """Return the elements of the data at the places of the updates."""
    if of.node.op_type == "ScatterElements":
        return of("GatherElements", data, of.input(1), axis=of.axis(0, len(data.shape)))
    return of("GatherND", data, of.input(1))


def _is_last(of: Backward, places: Value, updates: Value) -> Value:
    """Return a mask of the updates that nothing was written over: their numbers are written and read again."""
    shape = updates.shape
    if of.node.op_type == "ScatterND":  # a row has one number
        rows = len(places.shape) - 1
        shape = (*shape[:rows], *(1 for _ in shape[rows:]))
    numbers = np.arange(prod(shape)).reshape(shape)
    own = of.expand(of.constant(numbers, "int64"), updates.shape)
    return of("Equal", _taken(of, _scattered(of, of.filled(0, "int64", of.input(0).shape), own)), own)


def _of_product(of: Backward) -> Parts:
    """Return the gradients of data that is multiplied by updates: each factor gets the product of the others.

    Of factors that are 0 one alone gets something: it is left out of a product of its own.
    """
    x, updates, dy = of.input(0), of.input(2), of.gradient()
    zero, one = (of.constant(each, x.dtype) for each in (0.0, 1.0))
    no_x, no_update = of("Equal", x, zero), of("Equal", updates, zero)
    factor = of("Where", no_x, one, x)
    data = of("Div", of("Mul", dy, _scattered(of, factor, updates, "mul")), factor)
    counts = _scattered(of, of.filled(0.0, x.dtype, x.shape), of.cast(no_update, x.dtype), "add")
    alone = of("And", no_update, of("Equal", _taken(of, counts), one))
    rest = of("Mul", dy, _scattered(of, x, of("Where", alone, one, updates), "mul"))
    shared = of("Div", _taken(of, of("Mul", dy, of.output())), of("Where", no_update, one, updates))
    return data, None, of("Where", alone, _taken(of, rest), shared)


def _is_distinct(of: Backward, axis: int) -> bool:
    """Return whether indices are known, and no two the same."""
    known, shape = of.known(of.input(1)), of.input(0).shape
    if known is None:
        return False
    if of.node.op_type == "ScatterElements":
        return all(len(set(row)) == len(row) for row in _rows((known % shape[axis]).swapaxes(axis, -1).tolist()))
    rows = (known % shape[: known.shape[-1]]).reshape(-1, known.shape[-1]).tolist()
    return len(set(map(tuple, rows))) == len(rows)


def _rows(nested: list[object]) -> list[list[int]]:
    if nested and isinstance(nested[0], list):
        return [row for part in nested for row in _rows(part)]  # type: ignore[arg-type]  # nested lists
    return [nested]  # type: ignore[list-item]  # of integers
