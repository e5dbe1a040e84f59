"""Operators that choose elements by their values, in numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from opbuild.backend.host.movement import implements
from opbuild.dtypes import NARROW_FLOATS
from opbuild.graph.types import Array, Node


@implements("TopK")
def _top_k(node: Node, inputs: Any) -> Sequence[Array]:
    """The greatest or least elements of a dimension and their places: the first of equal ones; NaN is the greatest."""
    x, count, axis = inputs[0], int(inputs[1].reshape(-1)[0]), int(node.attrs.get("axis", -1))
    keys = x.astype(np.float32) if x.dtype.name in NARROW_FLOATS else x
    if node.attrs.get("largest", 1):  # the last ones of what is sorted the other way round
        order = keys.shape[axis] - 1 - np.flip(np.argsort(np.flip(keys, axis), axis, kind="stable"), axis)
    else:
        order = np.argsort(keys, axis, kind="stable")
    places = np.take(order, np.arange(count), axis)
    return (np.take_along_axis(x, places, axis), places.astype(np.int64))


@implements("ScatterElements")
def _scatter_elements(node: Node, inputs: Any) -> Sequence[Array]:
    """Each update in its order; NaN is the extreme of all it meets."""
    x, indices, updates = inputs
    axis, found = int(node.attrs.get("axis", 0)) % x.ndim, x.copy()
    places = list(np.indices(indices.shape, sparse=True))
    places[axis] = indices
    reduction = node.text("reduction", "none")
    if reduction == "none":
        found[tuple(places)] = updates
    else:
        _COMBINED[reduction].at(found, tuple(places), updates)
    return (found,)


_COMBINED: dict[str, Any] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


@implements("NonZero")
def _non_zero(node: Node, inputs: Any) -> Sequence[Array]:
    """Places of elements that are not zero, a row for each dimension; a scalar has none."""
    x = inputs[0]
    if not x.ndim:
        return (np.zeros((0, int(bool(x))), np.int64),)
    return (np.array(np.nonzero(x), np.int64).reshape(x.ndim, -1),)


@implements("Compress")
def _compress(node: Node, inputs: Any) -> Sequence[Array]:
    axis = node.attrs.get("axis")
    return (np.compress(inputs[1], inputs[0], None if axis is None else int(axis)),)


@implements("Unique")
def _unique(node: Node, inputs: Any) -> Sequence[Array]:
    """Different elements or slices, sorted or as they first stand; where each first stands, which each is, how many."""
    axis = node.attrs.get("axis")
    x = inputs[0].reshape(-1) if axis is None else inputs[0]
    axis = 0 if axis is None else int(axis)
    values, first, inverse, counts = np.unique(x, True, True, True, axis if x.ndim > 1 else None)
    inverse = inverse.reshape(-1)
    if not node.attrs.get("sorted", 1):
        order = np.argsort(first, kind="stable")
        values, first, counts = np.take(values, order, axis if x.ndim > 1 else 0), first[order], counts[order]
        inverse = np.argsort(order, kind="stable")[inverse]
    return (values, *(each.astype(np.int64) for each in (first, inverse, counts)))[: len(node.outputs)]


@implements("NonMaxSuppression")
def _non_max_suppression(node: Node, inputs: Any) -> Sequence[Array]:
    """Rows of batch, class and box: of boxes that overlap more than the limit only the one of the highest score."""
    boxes, scores = inputs[0], inputs[1]
    most, overlap, least = (_number(inputs, index) for index in (2, 3, 4))
    found: list[tuple[int, int, int]] = []
    for batch in range(scores.shape[0]) if most else ():
        corners = _corners(boxes[batch], bool(node.attrs.get("center_point_box", 0)))
        for kind in range(scores.shape[1]):
            chosen = _chosen(corners, scores[batch, kind], int(most or 0), overlap or 0.0, least)
            found += [(batch, kind, box) for box in chosen]
    return (np.array(found, np.int64).reshape(-1, 3),)


def _number(inputs: Any, index: int) -> float | None:
    given = inputs[index] if index < len(inputs) else None
    return None if given is None else given.reshape(-1)[0].item()


def _corners(boxes: Array, centered: bool) -> Array:
    """Return boxes as their least and greatest coordinates, two each."""
    if centered:
        half = boxes[:, 2:] / 2
        return np.concatenate([boxes[:, :2] - half, boxes[:, :2] + half], 1)
    return np.concatenate([np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])], 1)


def _chosen(corners: Array, scores: Array, most: int, overlap: float, least: float | None) -> list[int]:
    order = np.argsort(-scores, kind="stable")
    if least is not None:
        order = order[scores[order] > np.float32(least)]
    chosen: list[int] = []
    while len(order) and len(chosen) < most:
        best, order = int(order[0]), order[1:]
        chosen.append(best)
        order = order[_overlaps(corners[best], corners[order]) <= np.float32(overlap)]
    return chosen


def _overlaps(box: Array, others: Array) -> Array:
    """Return the share of the area that two boxes cover together that is in both; 0 where none is."""
    sides = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
    common = np.prod(np.maximum(sides, 0), 1)
    areas = np.prod(others[:, 2:] - others[:, :2], 1)
    whole = np.prod(box[2:] - box[:2]) + areas - common
    return np.where((common > 0) & (whole > 0), common / np.where(whole > 0, whole, 1), 0)
