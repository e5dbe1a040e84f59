"""Values that follow from open extents: small arrays of integers, kept as arrays of objects.

What works out the shapes of later values is evaluated here so that it stays open. Where anything else reads such a
value, or an operator is not known here, its numbers are those of the size at hand, which is kept as a condition.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from opbuild.graph.extents import Extent, at_hand, is_open
from opbuild.graph.passes.fold import Evaluate
from opbuild.graph.passes.infer import is_text
from opbuild.graph.types import Array, Node, TensorType

_MOVES = frozenset(
    ("Concat", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze")
)
"""Operators that only move elements of their first input (Concat: of all)."""

_SHAPES = {"Reshape": (1,), "Expand": (1,), "Pad": (1,), "Slice": (1, 2), "Tile": (1,), "Split": (1,), "Resize": (3,)}
"""Inputs that only say what shape an output has, or where it begins: lowering reads them as they are."""


def is_open_value(value: Array | None) -> bool:
    """Return whether a value follows from open extents; text lies in arrays of objects too."""
    return value is not None and value.dtype == object and not is_text(value)


def fixed(value: Array, dtype: str) -> Array:
    """Return an open value as the integers of the size at hand."""
    return np.array([int(each) for each in value.reshape(-1)], dtype).reshape(value.shape)


def value_at_hand(value: Array | None) -> Any:
    """Return a value as it is in the size at hand, which decides nothing that lasts."""
    if value is None or not is_open_value(value):
        return value
    return np.array([at_hand(each) for each in value.reshape(-1).tolist()], np.int64).reshape(value.shape)


def type_at_hand(kind: TensorType) -> TensorType:
    """Return a type as it is in the size at hand, which decides nothing that lasts."""
    return TensorType(kind.dtype, tuple(map(at_hand, kind.shape)))


def is_data(node: Node, index: int) -> bool:
    """Return whether an input of a node that runs is more than what says the output's shape or place."""
    return bool(node.domain) or index not in _SHAPES.get(node.op_type, ())


def evaluate_open(
    node: Node, inputs: Sequence[Array | None], opset: int, types: Sequence[TensorType], evaluate: Evaluate
) -> Sequence[Array] | None:
    """Return the outputs of a node some of whose inputs are open values; None if it is not known here."""
    found = _moved(node, inputs, opset, evaluate) if node.op_type in _MOVES else _worked_out(node, inputs, types)
    if found is None:
        return None
    pairs = zip(found, types, strict=True)
    return [value if is_open_value(value) else value.astype(each.dtype) for value, each in pairs]


def _worked_out(node: Node, inputs: Sequence[Array | None], types: Sequence[TensorType]) -> Sequence[Array] | None:
    function = _FUNCTIONS.get(node.op_type)
    if function is not None and all(value is not None for value in inputs):
        return (_applied(function, inputs, types[0].dtype),)
    if node.op_type == "Cast" and types[0].dtype in ("int32", "int64", "bool"):
        return (_cast(inputs[0], types[0].dtype),)
    if node.op_type == "ReduceProd" and types[0].size == 1 and inputs[0] is not None:
        found = reduce(operator.mul, inputs[0].reshape(-1).tolist(), 1)
        return (_objects([_held(found, types[0].dtype)]).reshape(types[0].shape),)
    return None


def _moved(node: Node, inputs: Sequence[Array | None], opset: int, evaluate: Evaluate) -> Sequence[Array] | None:
    """Move the positions of elements instead of themselves."""
    data = len(inputs) if node.op_type == "Concat" else 1
    if any(is_open_value(value) for value in inputs[data:]):
        return None
    elements: list[Any] = []
    places: list[Array | None] = []
    for value in inputs[:data]:
        if value is None:
            return None
        places.append(np.arange(len(elements), len(elements) + value.size, dtype=np.int64).reshape(value.shape))
        elements += value.reshape(-1).tolist()
    moved = evaluate(node, [*places, *inputs[data:]], opset)
    return [_objects([elements[place] for place in each.reshape(-1)]).reshape(each.shape) for each in moved]


def _applied(function: Callable[..., Any], inputs: Sequence[Array | None], dtype: str) -> Array:
    arrays = np.broadcast_arrays(*(np.asarray(value) for value in inputs))
    elements = zip(*(array.reshape(-1).tolist() for array in arrays), strict=True)
    return _objects([_held(function(*each), dtype) for each in elements]).reshape(arrays[0].shape)


def _cast(value: Array | None, dtype: str) -> Array:
    elements = [] if value is None else value.reshape(-1).tolist()
    shape = () if value is None else value.shape
    if dtype == "bool":
        return np.array([bool(each) for each in elements], np.bool_).reshape(shape)
    if dtype == "int32" and not all(-(2**31) <= each < 2**31 for each in elements):
        elements = np.array([int(each) for each in elements], np.int64).astype(np.int32).tolist()
    return _objects(elements).reshape(shape)


def _objects(values: Sequence[Any]) -> Array:
    """Return values as an array: of objects if some are open, else of the integers or truth values that they are."""
    if not is_open(values):
        return np.array(values, np.bool_ if values and all(isinstance(each, bool) for each in values) else np.int64)
    found = np.empty(len(values), object)
    for index, value in enumerate(values):
        found[index] = value
    return found


def _held(value: Any, dtype: str) -> Any:
    """Return a result that its type holds, which is kept as a condition."""
    if isinstance(value, Extent):
        limits = np.iinfo(dtype)
        return value if int(limits.min) <= value <= int(limits.max) else int(value)
    return value


def _quotient(left: Any, right: Any) -> Any:
    """Divide as the operator does, which rounds towards zero."""
    if left >= 0 and right > 0:
        return left // right
    size = abs(int(left)) // abs(int(right))
    return size if (left < 0) == (right < 0) else -size


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Add": operator.add, "Sub": operator.sub, "Mul": operator.mul, "Div": _quotient, "Neg": operator.neg,
    "Max": max, "Min": min, "Equal": operator.eq, "Greater": operator.gt, "GreaterOrEqual": operator.ge,
    "Less": operator.lt, "LessOrEqual": operator.le, "Where": lambda chosen, one, other: one if chosen else other,
}  # fmt: skip
"""What is applied element by element."""
