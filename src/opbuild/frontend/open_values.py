"""Values that follow from open extents: small arrays of numbers or truth values, kept as arrays of objects.

What works out the shapes of later values is evaluated here so that it stays open. An operator that is not known here
runs with the network, and reads such values as constants of one size (``graph.tables``).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np

from opbuild.graph.extents import SymbolicExtent
from opbuild.graph.passes.fold import Evaluate
from opbuild.graph.passes.infer import is_text
from opbuild.graph.symbolic_numbers import (
    Real,
    both,
    chosen,
    either,
    greater,
    is_equal,
    is_less,
    is_real,
    lesser,
    negated,
    quotient,
    real,
    truncated,
    value_of,
)
from opbuild.graph.types import Array, Node, TensorType

Types = Sequence[TensorType | None]
"""The type of each input of a node, None for an absent one."""

Values = Sequence[Array | None]
"""The inputs of a node that are known, else None."""

MOST_FACTORS = 4
"""The greatest exponent of a power that is multiplied out."""


def held(value: Any, dtype: str) -> Any:
    """Return a result that its type holds, which is kept as a condition."""
    if isinstance(value, SymbolicExtent) and dtype != "bool":
        limits = np.iinfo(dtype)
        return value if int(limits.min) <= value <= int(limits.max) else int(value)
    return value


def cast(elements: Sequence[Any], dtype: str) -> list[Any] | None:
    """Return numbers as those of another type; None if it is not one of those that stay open."""
    if dtype == "bool":
        return [negated(is_equal(each, 0)) for each in elements]
    if dtype in ("float32", "float64"):
        return [real(dtype, each) for each in elements]
    if dtype not in ("int32", "int64"):
        return None
    found = [truncated(each) if is_real(each) else each for each in elements]
    if not all(-(2**31) <= each < 2**31 for each in found if dtype == "int32"):
        return list(np.array([int(each) for each in found], np.int64).astype(np.int32).tolist())
    return found


def _arithmetic(name: str, of_integers: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *values: real(name, *values) if any(map(is_real, values)) else of_integers(*values)


def _folded(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda *values: reduce(function, values)


def _is_at_most(one: Any, other: Any) -> Any:
    return negated(is_less(other, one))


def _swapped(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda one, other: function(other, one)


def _power(one: Any, other: Any) -> Any:
    """Return a power of an integer; one of which the exponent is known and small."""
    if is_real(one) or not isinstance(other, int) or not 0 <= other <= MOST_FACTORS:
        raise NotImplementedError
    return reduce(operator.mul, [one] * other, 1)


_add, _multiply = _arithmetic("add", operator.add), _arithmetic("multiply", operator.mul)

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Add": _add, "Sub": _arithmetic("subtract", operator.sub), "Mul": _multiply, "Sum": _folded(_add),
    "Div": _arithmetic("divide", quotient), "Mod": operator.mod, "Pow": _power,
    "Neg": _arithmetic("negate", operator.neg), "Abs": _arithmetic("absolute", lambda one: greater(one, -one)),
    "Sqrt": partial(real, "square root"), "Floor": partial(real, "floor"), "Ceil": partial(real, "ceil"),
    "Round": partial(real, "round"), "Reciprocal": lambda one: real("divide", type_of(one)(1), one),
    "Max": _folded(greater), "Min": _folded(lesser), "Equal": is_equal, "Less": is_less, "LessOrEqual": _is_at_most,
    "Greater": _swapped(is_less), "GreaterOrEqual": _swapped(_is_at_most), "Where": chosen,
    "And": both, "Or": either, "Not": negated,
    "Xor": lambda one, other: either(both(one, negated(other)), both(negated(one), other)),
}  # fmt: skip
"""What is applied element by element."""

REDUCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "ReduceProd": operator.mul, "ReduceSum": operator.add, "ReduceMax": greater, "ReduceMin": lesser,
}  # fmt: skip
"""Operations that join all elements; of integers, for which the order does not matter."""


def type_of(value: Any) -> Any:
    """Return numpy's type of a floating-point number."""
    return type(value.value if isinstance(value, Real) else value)


_MOVES = {
    **dict.fromkeys(("Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity"), (0,)),
    **dict.fromkeys(("Reshape", "Slice", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"), (0,)),
    **dict.fromkeys(("ScatterElements", "ScatterND"), (0, 2)),
}
"""Operators that only move elements, and the inputs that have them; Concat moves those of all."""

_SHAPES = {
    **dict.fromkeys(("CenterCropPad", "Expand", "Pad", "Reshape", "Split", "Tile"), (1,)),
    "Slice": (1, 2, 4),
    "Resize": (2, 3),
}
"""Inputs that only say what shape an output has, or where it begins: lowering reads them as they are."""

_EXTENTS = {"ConstantOfShape": (0,), "Range": (0, 1, 2), "TopK": (1,), "OneHot": (1,)}
"""Inputs that say what extents an output has, and are read as data or not at all."""

MOST_NUMBERS = 1024
"""Elements of values that are worked out one by one."""

FEW_NUMBERS = 16
"""Elements of a range that are; longer ones are parts of a table."""


def is_open_value(value: Array | None) -> bool:
    """Return whether a value follows from open extents; text lies in arrays of objects too."""
    return value is not None and value.dtype == object and not is_text(value)


def fixed(value: Array, dtype: str) -> Array:
    """Return an open value as the numbers of the size at hand."""
    numbers = [float(each) if is_real(each) else int(each) for each in value.reshape(-1)]
    return np.array(numbers, dtype).reshape(value.shape)


def example_array(value: Array | None, dtype: str) -> Any:
    """Return a value as it is in the size at hand, which decides nothing that lasts."""
    if value is None or not is_open_value(value):
        return value
    return np.array([value_of(each) for each in value.reshape(-1).tolist()], dtype).reshape(value.shape)


def example_type(kind: TensorType) -> TensorType:
    """Return a type as it is in the size at hand, which decides nothing that lasts."""
    return TensorType(kind.dtype, tuple(map(value_of, kind.shape)))


def is_data(node: Node, index: int) -> bool:
    """Return whether an input of a node that runs decides more than the output's shape or place."""
    return bool(node.domain) or index not in _SHAPES.get(node.op_type, ())


def decides(node: Node, index: int) -> bool:
    """Return whether an input of a node whose value its shape needs decides more than extents."""
    return is_data(node, index) and index not in _EXTENTS.get(node.op_type, ())


def evaluate_open(
    node: Node, inputs: Values, opset: int, types: Sequence[TensorType], evaluate: Evaluate
) -> Sequence[Array] | None:
    """Return the outputs of a node some of whose inputs are open values; None if it is not known here."""
    if sum(value.size for value in inputs if value is not None) > MOST_NUMBERS:
        return None
    try:
        is_moved = node.op_type in _MOVES or node.op_type == "Concat"
        found = _moved_positions(node, inputs, opset, evaluate) if is_moved else _computed(node, inputs, types)
    except (NotImplementedError, ZeroDivisionError):
        return None
    if found is None:
        return None
    pairs = zip(found, types, strict=True)
    return [value if is_open_value(value) else value.astype(each.dtype) for value, each in pairs]


def _computed(node: Node, inputs: Values, types: Sequence[TensorType]) -> Sequence[Array] | None:
    kind, function = types[0], FUNCTIONS.get(node.op_type)
    if node.op_type == "Range":
        return _range(inputs, kind)
    if node.op_type in ("Cast", "CastLike"):
        elements = cast(_elements(inputs[0]), kind.dtype)
        return None if elements is None else (_objects(elements).reshape(kind.shape),)
    if node.op_type == "Clip":
        return _clipped(inputs, kind.dtype)
    if any(value is None for value in inputs):
        return None
    if node.op_type in REDUCTIONS:
        return _reduced(node, inputs, kind)
    if function is None or (node.op_type == "Mod" and node.attrs.get("fmod", 0)):
        return None
    return _applied(function, inputs, kind.dtype)


def _reduced(node: Node, inputs: Values, kind: TensorType) -> Sequence[Array] | None:
    """Join elements along all axes, or along the last or first of several, one after the other."""
    value, axes = inputs[0], inputs[1] if len(inputs) > 1 else None
    if value is None or not value.size or is_open_value(axes) or any(map(is_real, _elements(value))):
        return None
    if axes is None or not axes.size:
        if kind.size != 1:
            return None
        axes = np.arange(value.ndim)
    join = np.frompyfunc(REDUCTIONS[node.op_type], 2, 1)
    for axis in sorted((int(each) % value.ndim for each in axes.reshape(-1)), reverse=True):
        value = np.asarray(join.reduce(value.astype(object), axis=axis), object)
    return (_objects([held(each, kind.dtype) for each in _elements(value)]).reshape(kind.shape),)


def _range(bounds: Values, kind: TensorType) -> Sequence[Array] | None:
    start, _, delta = (_elements(each)[0] for each in bounds)
    if kind.size > FEW_NUMBERS or any(is_real(_elements(each)[0]) for each in bounds):
        return None
    return (_objects([held(start + place * delta, kind.dtype) for place in range(kind.size)]),)


def _clipped(inputs: Values, dtype: str) -> Sequence[Array] | None:
    found = inputs[0]
    for bound, function in zip(inputs[1:], (greater, lesser), strict=False):
        if bound is not None and found is not None:
            (found,) = _applied(function, (found, bound), dtype)
    return None if found is None else (found,)


def _moved_positions(node: Node, inputs: Values, opset: int, evaluate: Evaluate) -> Sequence[Array] | None:
    """Move the positions of elements instead of themselves."""
    data = _MOVES.get(node.op_type, range(len(inputs)))
    if any(is_open_value(value) for index, value in enumerate(inputs) if index not in data):
        return None
    elements: list[Any] = []
    places = list(inputs)
    for index in data:
        value = inputs[index]
        if value is None:
            return None
        places[index] = np.arange(len(elements), len(elements) + value.size, dtype=np.int64).reshape(value.shape)
        elements += _elements(value)
    moved = evaluate(node, places, opset)
    return [_objects([elements[place] for place in each.reshape(-1)]).reshape(each.shape) for each in moved]


def _applied(function: Any, inputs: Values, dtype: str) -> Sequence[Array]:
    arrays = np.broadcast_arrays(*(np.asarray(value) for value in inputs))
    rows = zip(*map(_elements, arrays), strict=True)
    found = [function(*row) for row in rows]
    return (_objects([held(each, dtype) for each in found]).reshape(arrays[0].shape),)


def _elements(value: Array | None) -> list[Any]:
    """Return the elements of a value; floating-point ones keep their type, by which they are computed with."""
    if value is None:
        return []
    return list(value.reshape(-1)) if np.issubdtype(value.dtype, np.floating) else value.reshape(-1).tolist()


def _objects(values: Sequence[Any]) -> Array:
    """Return values as an array: of objects if some are open, else of the numbers or truth values that they are."""
    if not any(isinstance(each, (SymbolicExtent, Real)) for each in values):
        is_known = values and (any(map(is_real, values)) or all(isinstance(each, bool) for each in values))
        return np.array(values, None if is_known else np.int64)
    found = np.empty(len(values), object)
    for index, value in enumerate(values):
        found[index] = value
    return found
