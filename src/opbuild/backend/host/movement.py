"""Operators that move or create elements, in numpy. Views where numpy can; callers do not write into them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from opbuild.dtypes import numpy_dtype
from opbuild.graph.indices import out_of_range, outside
from opbuild.graph.shape_rules import ONNX_DTYPES
from opbuild.graph.shape_rules_movement import sliced
from opbuild.graph.types import Array, Node
from opbuild.platform.registry import Registry

Inputs = Sequence[Array | None]
Implementation = Callable[[Node, Any], Sequence[Array]]

_OTHERS = (
    *("arithmetic", "microsoft", "ml", "pooling", "random", "recurrent", "reduction", "sampling"),
    *("search", "selection", "sequences", "strings"),
)
"""Modules that are loaded when this one does not serve: what most networks have folded moves elements only."""

IMPLEMENTATIONS: Registry[Implementation] = Registry("implementation", __package__, others=_OTHERS)

ON_TEXT: Registry[Implementation] = Registry("implementation on text", __package__, others=_OTHERS)
"""Those of operators that are computed otherwise if tensors of text are among their inputs or outputs."""

TEXT = 8
"""ONNX's number of the element type text."""


def implements(*op_types: str, domain: str = "", on_text: bool = False) -> Callable[[Implementation], Implementation]:
    """Register the decorated function for operator types."""
    return (ON_TEXT if on_text else IMPLEMENTATIONS).register(*op_types, domain=domain)


def implements_each(table: Mapping[str, Callable[[Node, Any], Any]], on_text: bool = False) -> None:
    """Register a function that computes the only output of operators, by their type."""

    def alone(compute: Callable[[Node, Any], Any]) -> Implementation:
        return lambda node, inputs: (compute(node, inputs),)

    for op_type, compute in table.items():
        implements(op_type, on_text=on_text)(alone(compute))


def _ints(value: Array) -> list[int]:
    return [int(item) for item in value.reshape(-1)]


def _optional_input(inputs: Inputs, index: int) -> Array | None:
    return inputs[index] if index < len(inputs) else None


def _axes(inputs: Inputs, index: int) -> tuple[int, ...] | None:
    axes = _optional_input(inputs, index)
    return None if axes is None else tuple(_ints(axes))


implements_each(
    {
        "Identity": lambda node, inputs: inputs[0],
        "Squeeze": lambda node, inputs: np.squeeze(inputs[0], _axes(inputs, 1)),
        "Unsqueeze": lambda node, inputs: np.expand_dims(inputs[0], _axes(inputs, 1) or ()),
        "Transpose": lambda node, inputs: inputs[0].transpose(node.attrs.get("perm") or None),
        "Concat": lambda node, inputs: np.concatenate(
            [value for value in inputs if value is not None], int(node.attrs.get("axis", 0))
        ),
        "Gather": lambda node, inputs: np.take(inputs[0], inputs[1], int(node.attrs.get("axis", 0))),
        "Expand": lambda node, inputs: np.broadcast_to(
            inputs[0], np.broadcast_shapes(inputs[0].shape, tuple(_ints(inputs[1])))
        ),
        "Tile": lambda node, inputs: np.tile(inputs[0], _ints(inputs[1])),
        "Shape": lambda node, inputs: np.array(
            inputs[0].shape[node.attrs.get("start", 0) : node.attrs.get("end")], np.int64
        ),
        "Size": lambda node, inputs: np.array(inputs[0].size, np.int64),
    }
)


@implements("BitCast")
def _bit_cast(node: Node, inputs: Any) -> Sequence[Array]:
    """Read the bytes as another type; of a byte that becomes a bool only its lowest bit counts."""
    x, wanted = np.ascontiguousarray(inputs[0]), node.attrs["to"]
    dtype = wanted if isinstance(wanted, str) else ONNX_DTYPES[int(wanted)]
    x = x.view(np.uint8) & 1 if dtype == "bool" else x
    return (x.view(numpy_dtype(dtype)).reshape(inputs[0].shape),)


@implements("Reshape")
def _reshape(node: Node, inputs: Any) -> Sequence[Array]:
    x, shape = inputs[0], _ints(inputs[1])
    if not node.attrs.get("allowzero", 0):
        shape = [x.shape[index] if extent == 0 else extent for index, extent in enumerate(shape)]
    return (x.reshape(shape),)


@implements("Flatten")
def _flatten(node: Node, inputs: Any) -> Sequence[Array]:
    x, axis = inputs[0], int(node.attrs.get("axis", 1))
    axis = axis + x.ndim if axis < 0 else axis
    rows = int(np.prod(x.shape[:axis], dtype=np.int64))
    return (x.reshape(rows, int(np.prod(x.shape[axis:], dtype=np.int64))),)


@implements("Split")
def _split(node: Node, inputs: Any) -> Sequence[Array]:
    x, sizes, axis = inputs[0], _optional_input(inputs, 1), int(node.attrs.get("axis", 0))
    if sizes is not None:
        return np.split(x, np.cumsum(_ints(sizes))[:-1], axis)
    piece = -(-x.shape[axis] // len(node.outputs))
    return np.split(x, [min(piece * index, x.shape[axis]) for index in range(1, len(node.outputs))], axis)


@implements("Slice")
def _slice(node: Node, inputs: Any) -> Sequence[Array]:
    x, starts, ends = inputs[0], _ints(inputs[1]), _ints(inputs[2])
    axes, steps = _optional_input(inputs, 3), _optional_input(inputs, 4)
    chosen = [slice(None)] * x.ndim
    for index, axis in enumerate(range(len(starts)) if axes is None else _ints(axes)):
        step = 1 if steps is None else int(steps.reshape(-1)[index])
        first, count = sliced(x.shape[axis], starts[index], ends[index], step)
        stop = first + count * step
        chosen[axis] = slice(first, stop if stop >= 0 else None, step) if count else slice(0)
    return (x[tuple(chosen)],)


@implements("Pad")
def _pad(node: Node, inputs: Any) -> Sequence[Array]:
    x, pads, value, given = inputs[0], _ints(inputs[1]), _optional_input(inputs, 2), _optional_input(inputs, 3)
    axes = range(x.ndim) if given is None else [axis % x.ndim for axis in _ints(given)]
    widths, crop = [(0, 0)] * x.ndim, [slice(None)] * x.ndim
    for index, axis in enumerate(axes):
        before, after = pads[index], pads[len(pads) // 2 + index]
        widths[axis] = (max(before, 0), max(after, 0))
        crop[axis] = slice(max(-before, 0), x.shape[axis] - max(-after, 0))
    mode = node.attrs.get("mode", "constant")
    x = x[tuple(crop)]
    if mode == "constant":
        fill = 0 if value is None else value.reshape(-1)[0]
        return (np.pad(x, widths, constant_values=fill),)
    modes: dict[Any, Any] = {"edge": "edge", "reflect": "reflect", "wrap": "wrap"}
    return (np.pad(x, widths, mode=modes[mode]),)


@implements("InRange", domain="opbuild")
def _in_range(node: Node, inputs: Any) -> Sequence[Array]:
    """Give the indices; the numbers of elements are an attribute, or where a network runs the shape of an input."""
    found = outside(inputs[0], node.attrs["counts"], negative=node.attrs["negative"])
    if found:
        raise out_of_range(node.name, found)
    return (inputs[0],)


@implements("GatherElements")
def _gather_elements(node: Node, inputs: Any) -> Sequence[Array]:
    x, indices, axis = inputs[0], inputs[1], int(node.attrs.get("axis", 0))
    indices = np.where(indices < 0, indices + x.shape[axis], indices)
    grid = list(np.ogrid[tuple(slice(extent) for extent in indices.shape)])
    grid[axis] = indices
    return (x[tuple(grid)],)


@implements("ConstantOfShape")
def _constant_of_shape(node: Node, inputs: Any) -> Sequence[Array]:
    value = node.attrs.get("value")
    scalar = np.float32(0) if value is None else np.asarray(value).reshape(-1)[0]
    return (np.broadcast_to(scalar, _ints(inputs[0])),)


@implements("Range")
def _range(node: Node, inputs: Any) -> Sequence[Array]:
    start, limit, delta = (value.reshape(-1)[0] for value in inputs)
    count = max(int(np.ceil((limit.item() - start.item()) / delta.item())), 0)
    return ((start + np.arange(count, dtype=start.dtype) * delta).astype(start.dtype),)


@implements("OneHot")
def _one_hot(node: Node, inputs: Any) -> Sequence[Array]:
    indices, depth, values = inputs[0], _ints(inputs[1])[0], inputs[2]
    axis = int(node.attrs.get("axis", -1))
    positions = np.expand_dims(np.where(indices < 0, indices + depth, indices), axis)
    shape = [1] * positions.ndim
    shape[axis] = depth
    return (np.where(positions == np.arange(depth).reshape(shape), values[1], values[0]).astype(values.dtype),)
