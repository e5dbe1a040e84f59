"""Recurrent layers, as torch hands them over where ``torch._dynamo.config.allow_rnn`` is set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from opbuild.frontend.torch.registry import rule
from opbuild.frontend.torch.writing import StepBuilder, Value
from opbuild.graph.types import Node

_LSTM = 2
_GATES = (0, 3, 1, 2)
"""Torch's gates (input, forget, cell, output) in ONNX's order (input, output, forget, cell)."""

_BACK = (0, 2, 3, 1)
"""ONNX's in torch's."""


@rule("mkldnn_rnn_layer.default")
def lstm_layer(
    of: StepBuilder,
    x: Value,
    weight: Value,
    recurrence: Value,
    bias: Value,
    recurrent_bias: Value,
    hidden: Value,
    cell: Value,
    reverse: bool,
    batch_sizes: Sequence[int],
    mode: int,
    size: int,
    layers: int,
    has_biases: bool,
    bidirectional: bool,
    batch_first: bool,
    train: bool,
) -> tuple[Value | None, ...]:
    """One direction of one layer of an LSTM: ``(steps, batch, inputs)`` to ``(steps, batch, size)``."""
    _require(of, mode, batch_sizes, layers, bidirectional, batch_first, train)
    inputs = _inputs(of, x, (weight, recurrence, bias, recurrent_bias), (hidden, cell), size)
    results = of.several("LSTM", 3, *inputs, **_attributes(size, reverse))
    shapes = ((*x.shape[:2], size), hidden.shape, cell.shape)
    workspace = of.constant(np.zeros(0, np.uint8)) if of.is_read(3) else None  # the backward pass needs none
    return *(of.reshape(each, shape) for each, shape in zip(results, shapes, strict=True)), workspace


@rule("mkldnn_rnn_layer_backward.default")
def lstm_layer_backward(
    of: StepBuilder,
    x: Value,
    weight: Value,
    recurrence: Value,
    bias: Value,
    recurrent_bias: Value,
    hidden: Value,
    cell: Value,
    every: Value,
    _last_hidden: Value,
    _last_cell: Value,
    flow: Value | None,
    hidden_flow: Value | None,
    cell_flow: Value | None,
    reverse: bool,
    mode: int,
    size: int,
    layers: int,
    has_biases: bool,
    train: bool,
    bidirectional: bool,
    batch_sizes: Sequence[int],
    batch_first: bool,
    workspace: Value,
) -> tuple[Value | None, ...]:
    """The gradients of that layer's inputs, weights, biases, which get the same, and first states."""
    from opbuild.graph.gradients.recurrent import recurrent
    from opbuild.graph.gradients.registry import Backward

    _require(of, mode, batch_sizes, layers, bidirectional, batch_first, train)
    steps, batch = x.shape[:2]
    inputs = _inputs(of, x, (weight, recurrence, bias, recurrent_bias), (hidden, cell), size)
    state = (1, batch, size)
    flows = tuple(
        None if each is None else of.reshape(each, shape)
        for each, shape in ((flow, (steps, *state)), (hidden_flow, state), (cell_flow, state))
    )
    outputs = of.reshape(every, (steps, *state)).name, "", ""
    names = tuple("" if each is None else each.name for each in inputs)
    node = Node("LSTM", names, outputs, _attributes(size, reverse), of.name)
    layer = Backward(f"{of.name}/gradient", of.scope, node, flows, [each is not None for each in inputs])
    of_x, of_w, of_r, of_b, _, *of_states = recurrent(layer, apart=True)
    of_bias = of("Slice", _needed(of_b), of.ints(0), of.ints(4 * size), of.ints(1), of.ints(1))
    back = [_reordered(of, of.reshape(_needed(each), model.shape), size, _BACK, model.shape)
            for each, model in ((of_w, weight), (of_r, recurrence), (of_bias, bias))]  # fmt: skip
    states = (of.reshape(_needed(each), model.shape) for each, model in zip(of_states, (hidden, cell), strict=True))
    return _needed(of_x), *back, back[2], *states


def _needed(value: Value | None) -> Value:
    if value is None:
        raise AssertionError("a gradient that was asked for is missing")
    return value


def _require(of: StepBuilder, mode: int, batch_sizes: Sequence[int], layers: int, *flags: bool) -> None:
    if mode != _LSTM or batch_sizes or layers != 1 or any(flags):
        of.refuse("another layer than one direction of an LSTM")


def _inputs(
    of: StepBuilder, x: Value, weights: Sequence[Value], states: Sequence[Value], size: int
) -> tuple[Value | None, ...]:
    """Return the inputs of ONNX's operator."""
    w, r, *biases = (_reordered(of, each, size, _GATES, (1, *each.shape)) for each in weights)
    first = (of.reshape(each, (1, x.shape[1], size)) for each in states)
    return x, w, r, of("Concat", *biases, axis=1), None, *first


def _attributes(size: int, reverse: bool) -> dict[str, Any]:
    return {"hidden_size": size, "direction": "reverse" if reverse else "forward"}


def _reordered(of: StepBuilder, value: Value, size: int, order: Sequence[int], shape: Sequence[int]) -> Value:
    """Return the gates' values in another order, and in a shape, to which a direction may be added."""
    parts = of.several("Split", 4, value, of.ints(*(size,) * 4), axis=0)
    return of.reshape(of("Concat", *(parts[gate] for gate in order), axis=0), shape)
