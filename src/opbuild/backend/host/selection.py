"""Operators whose results are as large as their data say, in numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from opbuild.backend.host.movement import implements
from opbuild.graph.types import Array, Node


@implements("NonZero")
def _non_zero(node: Node, inputs: Any) -> Sequence[Array]:
    x = inputs[0]
    if not x.ndim:  # a scalar has no dimension to name
        return (np.zeros((0, int(bool(x))), np.int64),)
    return (np.array(np.nonzero(x), np.int64).reshape(x.ndim, -1),)


@implements("Compress")
def _compress(node: Node, inputs: Any) -> Sequence[Array]:
    axis = node.attrs.get("axis")
    x, condition = inputs[0] if axis is not None else inputs[0].reshape(-1), inputs[1]
    return (np.compress(condition, x, 0 if axis is None else int(axis)),)


@implements("Unique")
def _unique(node: Node, inputs: Any) -> Sequence[Array]:
    """Give each element, or each slice along an axis, once: sorted, or in the order in which they come first."""
    given = node.attrs.get("axis")
    x, axis = (inputs[0].reshape(-1), 0) if given is None else (inputs[0], int(given))
    places: dict[Any, int] = {}
    rows = [tuple(map(_comparable, each.flat)) for each in np.moveaxis(x, axis, 0)]
    numbers = [places.setdefault(row, len(places)) for row in rows]
    ordered = sorted(places, key=_sortable) if node.attrs.get("sorted", 1) else list(places)
    rank = {places[row]: index for index, row in enumerate(ordered)}
    inverse = np.array([rank[number] for number in numbers], np.int64)
    first = np.array([rows.index(row) for row in ordered], np.int64)
    counts = np.bincount(inverse, minlength=len(ordered)).astype(np.int64)
    return (np.take(x, first, axis), first, inverse, counts)[: len(node.outputs)]


_NAN = "NaN"
"""What stands for each NaN: no NaN equals another."""


def _comparable(value: Any) -> Any:
    return (_NAN,) if value != value else value  # noqa: PLR0124 - only NaN differs from itself


def _sortable(row: tuple[Any, ...]) -> list[tuple[bool, Any]]:
    """Return what rows are ordered by; NaN is last."""
    return [(isinstance(value, tuple), 0 if isinstance(value, tuple) else value) for value in row]


@implements("NonMaxSuppression")
def _suppress(node: Node, inputs: Any) -> Sequence[Array]:
    """Choose boxes by their scores, the greatest first, that overlap none that was chosen by more than a threshold."""
    boxes, scores, most, overlap, least = (*inputs, None, None, None)[:5]
    count = 0 if most is None else int(most.reshape(-1)[0])
    threshold = 0.0 if overlap is None else float(overlap.reshape(-1)[0])
    corners = _corners(boxes.astype(np.float32), bool(node.attrs.get("center_point_box", 0)))
    chosen = []
    for batch, of_batch in enumerate(scores):
        for kind, row in enumerate(of_batch):
            order = np.argsort(-row, kind="stable")
            if least is not None:
                order = order[row[order] > float(least.reshape(-1)[0])]
            chosen += [(batch, kind, box) for box in _kept(corners[batch], order, count, threshold)]
    return (np.array(chosen, np.int64).reshape(-1, 3),)


def _corners(boxes: Array, centred: bool) -> Array:
    """Return the least and the greatest coordinates of boxes, [batch, box, 4]."""
    if centred:
        middle, half = boxes[..., :2], boxes[..., 2:] / 2
        return np.concatenate([middle - half, middle + half], -1)
    ends = boxes[..., :2], boxes[..., 2:]
    return np.concatenate([np.minimum(*ends), np.maximum(*ends)], -1)


def _kept(boxes: Array, order: Array, most: int, threshold: float) -> list[int]:
    kept: list[int] = []
    for box in order:
        if len(kept) >= most:
            break
        if all(_overlap(boxes[box], boxes[other]) <= threshold for other in kept):
            kept.append(int(box))
    return kept


def _overlap(a: Array, b: Array) -> float:
    """Return what two boxes share, of what either covers; 0 if one covers nothing."""
    sides = np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])
    areas = float(np.prod(a[2:] - a[:2])), float(np.prod(b[2:] - b[:2]))
    if min(sides) <= 0 or min(areas) <= 0:
        return 0.0
    shared = float(np.prod(sides))
    return shared / (sum(areas) - shared)
