"""Loop, Scan and SequenceMap: a body is run turn by turn; it may be anything that runs, its values may be reshaped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from opbuild.errors import RunError
from opbuild.graph.types import Array, Node, TensorType
from opbuild.platform.records import NamedTuple
from opbuild.runtime.endpoint import dense

LAST_WITH_BATCHES = 8
"""The last operator set in which Scan scans a batch of sequences."""


class LoopBody(NamedTuple):
    """The body of a loop.

    Attributes:
        run: Runs it once: its inputs to its outputs.
        types: Returns the types of its outputs for some inputs without running it, None where they cannot be told; or
            nothing.
    """

    run: Callable[[Sequence[Any]], list[Any]]
    types: Callable[[Sequence[Any]], list[TensorType | None]]


def repeat(node: Node, inputs: Sequence[Any], body: LoopBody) -> list[Any]:
    """Return the outputs of a Loop, Scan or SequenceMap.

    Args:
        node: The node; its attribute ``declared`` holds what the model says of the body's outputs: element type, and
            shape if it has one.
        inputs: The values of its inputs, None for an absent one.
        body: Its body.

    Raises:
        RunError: If what the turns give cannot be put together.
    """
    if node.op_type == "Loop":
        return _loop(node, inputs, body)
    if node.op_type == "SequenceMap":
        return _map(node, inputs, body)
    if int(node.attrs.get("opset", LAST_WITH_BATCHES + 1)) <= LAST_WITH_BATCHES:
        return _scan_batch(node, inputs, body)
    return _scan(node, inputs, body)


def _loop(node: Node, inputs: Sequence[Any], body: LoopBody) -> list[Any]:
    most = None if inputs[0] is None else int(np.asarray(inputs[0]).reshape(-1)[0])
    condition = np.array(True) if len(inputs) < 2 or inputs[1] is None else inputs[1]
    carried = list(inputs[2:])
    scanned: list[list[Any]] = [[] for _ in node.outputs[len(carried) :]]
    index = 0
    while (most is None or index < most) and bool(np.asarray(condition).reshape(-1)[0]):
        condition, *results = body.run([np.array(index, np.int64), condition, *carried])
        carried = results[: len(carried)]
        for column, value in zip(scanned, results[len(carried) :], strict=True):
            column.append(value)
        index += 1
    empty: list[Array] = []
    if scanned and not index:
        empty = _empty(node, body.types([np.array(0, np.int64), condition, *carried]), 1 + len(carried))
    return [*carried, *(empty or [_stacked(node, column, 0) for column in scanned])]


def _map(node: Node, inputs: Sequence[Any], body: LoopBody) -> list[Any]:
    """Give the body one element of each sequence after the other; a tensor is the same in all turns."""
    lengths = {len(each) for each in inputs if isinstance(each, list)}
    if len(lengths) != 1:
        shown = " and ".join(map(str, sorted(lengths))) or "no"
        raise RunError(
            f"SequenceMap node {node.name!r} maps sequences of {shown} elements", "give it sequences of one length"
        )
    turns = [
        body.run([dense(each[index]) if isinstance(each, list) else each for each in inputs])
        for index in range(*lengths)
    ]
    return [[turn[number] for turn in turns] for number in range(len(node.outputs))]


def _scan(node: Node, inputs: Sequence[Any], body: LoopBody) -> list[Any]:
    count = int(node.attrs["num_scan_inputs"])
    states, sequences = list(inputs[: len(inputs) - count]), list(inputs[len(inputs) - count :])
    outputs = len(node.outputs) - len(states)
    axes = _numbers(node, "scan_input_axes", count)
    backwards = _numbers(node, "scan_input_directions", count)
    moved = [np.moveaxis(each, axis, 0) for each, axis in zip(sequences, axes, strict=True)]
    length = len(moved[0])
    if any(len(each) != length for each in moved):
        lengths = ", ".join(str(len(each)) for each in moved)
        raise RunError(f"Scan node {node.name!r} scans inputs of {lengths} elements", "give it inputs of one length")
    ordered = [each[::-1] if back else each for each, back in zip(moved, backwards, strict=True)]
    scanned: list[list[Any]] = [[] for _ in range(outputs)]
    for index in range(length):
        results = body.run([*states, *(np.array(each[index], order="C") for each in ordered)])
        states = results[: len(states)]
        for column, value in zip(scanned, results[len(states) :], strict=True):
            column.append(value)
    out_axes = _numbers(node, "scan_output_axes", outputs)
    out_backwards = _numbers(node, "scan_output_directions", outputs)
    if not length:
        example = [np.zeros(each.shape[1:], each.dtype) for each in moved]
        return [*states, *_empty(node, body.types([*states, *example]), len(states))]
    pairs = zip(scanned, out_axes, out_backwards, strict=True)
    return [*states, *(_stacked(node, column[::-1] if back else column, axis) for column, axis, back in pairs)]


def _scan_batch(node: Node, inputs: Sequence[Any], body: LoopBody) -> list[Any]:
    """Scan each sequence of a batch by itself, up to its length; results behind the shorter ones are zero."""
    lengths, *values = inputs
    count = int(node.attrs["num_scan_inputs"])
    states = len(values) - count
    attrs = {"num_scan_inputs": count, "scan_input_directions": node.attrs.get("directions", (0,) * count)}
    alone = node.with_(attrs={**node.attrs, **attrs, "opset": LAST_WITH_BATCHES + 1})
    batches, longest = values[-1].shape[:2]
    columns: list[list[Any]] = []
    for batch in range(batches):
        length = longest if lengths is None else int(lengths[batch])
        own = [np.array(each[batch], order="C") for each in values[:states]]
        own += [np.array(each[batch][:length], order="C") for each in values[states:]]
        found = _scan(alone, own, body)
        padded = [
            np.concatenate([each, np.zeros((longest - length, *each.shape[1:]), each.dtype)]) for each in found[states:]
        ]
        columns.append([*found[:states], *padded])
    return [_stacked(node, list(column), 0) for column in zip(*columns, strict=True)]


def _numbers(node: Node, name: str, count: int) -> tuple[int, ...]:
    return tuple(int(each) for each in node.attrs.get(name, ())) or (0,) * count


def _stacked(node: Node, values: Sequence[Any], axis: int) -> Array:
    shapes = {np.shape(value) for value in values}
    if len(shapes) > 1:
        shown = " and ".join(str(list(shape)) for shape in sorted(shapes))
        raise RunError(f"{node.op_type} node {node.name!r} collects values of the shapes {shown}", "collect one shape")
    return np.stack(values, axis if axis >= 0 else axis + 1 + len(next(iter(shapes))))


def _empty(node: Node, types: Sequence[TensorType | None], first: int) -> list[Array]:
    """Return the outputs of no turn: the body's outputs from ``first`` on, of their types if those can be told."""
    empty = []
    for index, declared in enumerate(node.attrs.get("declared", ())[first:], first):
        known = types[index] if index < len(types) else None
        if known is not None:
            dtype, shape = known.dtype, known.shape
        else:
            dtype, shape = declared[0] or "float32", tuple(declared[1]) if len(declared) > 1 else ()
        empty.append(np.zeros((0, *(max(extent, 0) for extent in shape)), dtype))
    return empty
