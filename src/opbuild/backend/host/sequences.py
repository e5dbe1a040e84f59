"""Sequences and optional values, as lists and None."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from opbuild.backend.host.movement import implements, implements_each
from opbuild.graph.types import Array, Node

implements_each(
    {
        "SequenceConstruct": lambda node, inputs: [value for value in inputs if value is not None],
        "SequenceEmpty": lambda node, inputs: [],
        "SequenceLength": lambda node, inputs: np.array(len(inputs[0]), np.int64),
        "SequenceAt": lambda node, inputs: inputs[0][_place(inputs[1], len(inputs[0]))],
        "Optional": lambda node, inputs: inputs[0] if inputs else None,
        "OptionalHasElement": lambda node, inputs: np.array(bool(inputs) and inputs[0] is not None),
    }
)


@implements("SequenceErase")
def _erase(node: Node, inputs: Any) -> Sequence[Any]:
    values = list(inputs[0])
    del values[_place(inputs[1] if len(inputs) > 1 and inputs[1] is not None else np.array(-1), len(values))]
    return (values,)


@implements("SequenceInsert")
def _insert(node: Node, inputs: Any) -> Sequence[Any]:
    values, count = list(inputs[0]), len(inputs[0])
    given = inputs[2] if len(inputs) > 2 else None
    place = count if given is None else int(given.reshape(-1)[0])
    if not -count <= place <= count:
        raise IndexError(f"place {place} is outside a sequence of {count}")
    values.insert(place, inputs[1])
    return (values,)


def _place(given: Array, count: int) -> int:
    place = int(given.reshape(-1)[0])
    if not -count <= place < count:
        raise IndexError(f"place {place} is outside a sequence of {count}")
    return place


@implements("ConcatFromSequence")
def _concat(node: Node, inputs: Any) -> Sequence[Any]:
    values, axis = inputs[0], int(node.attrs["axis"])
    if not values:
        raise ValueError("the sequence is empty")
    return (np.stack(values, axis) if node.attrs.get("new_axis", 0) else np.concatenate(values, axis),)


@implements("SplitToSequence")
def _split(node: Node, inputs: Any) -> Sequence[Any]:
    """Split to pieces of given lengths, of one length but for the last, or of one element."""
    x, axis = inputs[0], int(node.attrs.get("axis", 0))
    extent, given = x.shape[axis], inputs[1] if len(inputs) > 1 else None
    if given is not None and given.ndim:
        lengths = [int(each) for each in given.reshape(-1)]
        if min(lengths, default=0) < 0 or sum(lengths) != extent:
            raise ValueError(f"pieces of {lengths} do not make up {extent}")
        return (np.split(x, np.cumsum(lengths)[:-1], axis) if lengths else [],)
    length = 1 if given is None else int(given)
    if length < 1:
        raise ValueError(f"a piece has {length} elements")
    pieces = np.split(x, range(length, extent, length), axis) if extent else []
    if given is None and not node.attrs.get("keepdims", 1):
        pieces = [np.squeeze(each, axis) for each in pieces]
    return (pieces,)


@implements("OptionalGetElement")
def _get_element(node: Node, inputs: Any) -> Sequence[Any]:
    if inputs[0] is None:
        raise ValueError("the optional value is empty")
    return (inputs[0],)
