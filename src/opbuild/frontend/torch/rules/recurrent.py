"""Recurrent layers, as torch hands them over where ``torch._dynamo.config.allow_rnn`` is set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opbuild.frontend.torch.registry import rule
from opbuild.frontend.torch.writing import Value, Writing

_LSTM = 2
_GATES = (0, 3, 1, 2)
"""Torch's gates (input, forget, cell, output) in ONNX's order (input, output, forget, cell)."""


@rule("mkldnn_rnn_layer.default")
def lstm_layer(
    of: Writing,
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
    if mode != _LSTM or batch_sizes or layers != 1 or bidirectional or batch_first or train:
        of.refuse("another layer than one direction of an LSTM")
    steps, batch = x.shape[:2]
    weight, recurrence, bias, recurrent_bias = (
        _reordered(of, each, size) for each in (weight, recurrence, bias, recurrent_bias)
    )
    biases = of("Concat", bias, recurrent_bias, axis=1)
    state = [of.reshape(each, (1, batch, size)) for each in (hidden, cell)]
    results = of.several(
        "LSTM",
        (x, weight, recurrence, biases, None, *state),
        3,
        hidden_size=size,
        direction="reverse" if reverse else "forward",
    )
    shapes = ((steps, batch, size), hidden.shape, cell.shape)
    return *(of.reshape(each, shape) for each, shape in zip(results, shapes, strict=True)), None


def _reordered(of: Writing, value: Value, size: Any) -> Value:
    """Return what belongs to the gates in ONNX's order, with a dimension for the direction."""
    parts = of.several("Split", (value, of.ints(*(size,) * 4)), 4, axis=0)
    joined = of("Concat", *(parts[gate] for gate in _GATES), axis=0)
    return of.reshape(joined, (1, *value.shape))
