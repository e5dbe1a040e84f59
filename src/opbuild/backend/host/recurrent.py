"""RNN, GRU and LSTM in numpy: one step after another, states kept in the input's type, at least float32."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from opbuild.backend.host.movement import implements
from opbuild.graph.recurrent import GATES, Activation, Cell, cell_of
from opbuild.graph.types import Array, Node
from opbuild.operations.evaluation import apply
from opbuild.operations.table import of_onnx
from opbuild.platform.records import dataclass


@dataclass(frozen=True, eq=False)
class _Direction:
    """One direction's weights.

    Attributes:
        cell: The node's attributes.
        projected: What each step's input adds to the gates, shape ``(steps, batch, gates * hidden)``.
        recurrent: ``R``, transposed.
        input_bias: The first half of ``B``.
        recurrent_bias: The second half of ``B``.
        peepholes: ``P``'s three parts, zeros if there are none.
        act: The activations, with clipping.
        seen: What an LSTM multiplies by ``R`` of a state.
    """

    cell: Cell
    projected: Array
    recurrent: Array
    input_bias: Array
    recurrent_bias: Array
    peepholes: tuple[Array, Array, Array]
    act: tuple[Callable[[Array], Array], ...]
    seen: Callable[[Array], Array]


@implements("RNN", "GRU", "LSTM")
def _recurrent(node: Node, inputs: Any) -> Sequence[Array]:
    cell = cell_of(node)
    given: tuple[Any, ...] = (*inputs, *[None] * (8 - len(inputs)))
    x, w, r, b, lengths, h, c, p = given
    x = x.swapaxes(0, 1) if cell.batch_first else x
    return _layer(node, [x] * len(cell.reverse), (w, r, b, p), (lengths, h, c), lambda state: state)


@implements("IntegerLSTM", domain="opbuild")
def _integer_lstm(node: Node, inputs: Any) -> Sequence[Array]:
    given: tuple[Any, ...] = (*inputs, *[None] * (7 - len(inputs)))
    projected, weights, scales, lengths, h, c, p = given
    recurrent = (weights * scales[:, np.newaxis]).swapaxes(1, 2)
    parts = np.split(projected, len(weights), -1)
    return _layer(node, parts, (None, recurrent, None, p), (lengths, h, c), _in_steps)


def _in_steps(state: Array) -> Array:
    """Return the states of sequences rounded to steps, as bytes have them; of no finite range: NaN."""
    low, high = state.min(1, initial=0, keepdims=True), state.max(1, initial=0, keepdims=True)
    spread = high - low
    step = np.where(np.isfinite(spread), np.where(spread > 0, spread / state.dtype.type(255), 1), np.nan)
    zero = np.rint(-low / step)
    return np.asarray((np.clip(np.rint(state / step) + zero, 0, 255) - zero) * step, state.dtype)


def _layer(
    node: Node, parts: Sequence[Array], weights: tuple[Any, ...], given: tuple[Any, ...], seen: Callable[[Array], Array]
) -> Sequence[Array]:
    """Return a layer's outputs.

    Args:
        node: The node.
        parts: The inputs of each direction ``(T, B, ...)``.
        weights: ``W``, of which None leaves inputs as they are, ``R``, ``B`` and ``P``.
        given: The lengths, the first hidden states and the first cells.
        seen: As in ``_Direction``.
    """
    cell, (lengths, h, c) = cell_of(node), given
    kind = parts[0].dtype
    wide = np.promote_types(kind, np.float32)
    steps, batch, _ = parts[0].shape
    hidden = weights[1].shape[-1]
    lengths = np.full(batch, steps) if lengths is None else lengths
    if lengths.size and not 0 <= lengths.min() <= lengths.max() <= steps:
        raise ValueError(f"sequence_lens has values outside [0, {steps}]")
    states = [_state(each, cell, (len(cell.reverse), batch, hidden), wide) for each in (h, c)]
    outputs = []
    for number, reverse in enumerate(cell.reverse):
        order = _order(steps, lengths, reverse)
        moved = np.take_along_axis(parts[number], order[:, :, None], 0).astype(wide)
        own = (None if each is None else each[number].astype(wide) for each in weights)
        direction = _direction(cell, moved, *own, hidden=hidden, activations=cell.activations[number], seen=seen)
        every, cells, *last = _run(cell.kind, direction, lengths, states[0][number], states[1][number])
        kept = _gradient_values(direction, lengths, states[0][number], every, cells) if len(node.outputs) > 3 else every
        outputs.append((*(np.take_along_axis(each, order[:, :, None], 0) for each in (every, kept)), *last))
    found = zip(*outputs, strict=True)
    every, kept, last_h, last_c = (np.stack(each, axis) for each, axis in zip(found, (1, 1, 0, 0), strict=True))
    if cell.batch_first:
        every, last_h, last_c = every.transpose(2, 0, 1, 3), last_h.swapaxes(0, 1), last_c.swapaxes(0, 1)
    return [each.astype(kind) for each in (every, last_h, last_c, kept)][: len(node.outputs)]


def _state(given: Array | None, cell: Cell, shape: tuple[int, ...], wide: np.dtype[Any]) -> Array:
    if given is None:
        return np.zeros(shape, wide)
    return (given.swapaxes(0, 1) if cell.batch_first else given).astype(wide)


def _order(steps: int, lengths: Array, reverse: bool) -> Array:
    """Return the step that each step reads, by batch: a reversed sequence begins at its end, padding stays behind."""
    forward = np.broadcast_to(np.arange(steps)[:, None], (steps, lengths.size))
    return np.where(forward < lengths, lengths - 1 - forward, forward) if reverse else forward


def _direction(
    cell: Cell, x: Array, w: Any, r: Any, b: Any, p: Any, *, hidden: int, activations: Sequence[Activation], seen: Any
) -> _Direction:
    rows = GATES[cell.kind] * hidden
    bias = np.zeros(2 * rows, x.dtype) if b is None else b
    peepholes = np.zeros(3 * hidden, x.dtype) if p is None else p
    # The cell goes into LSTM's last activation as it is: the text leaves open whether that one is clipped, too.
    clips = [cell.clip if number < 2 else float("inf") for number in range(len(activations))]
    act = tuple(_activation(each, clip) for each, clip in zip(activations, clips, strict=True))
    first, second, third = np.split(peepholes, 3)
    projected = x if w is None else x @ w.T
    return _Direction(cell, projected, r.T, bias[:rows], bias[rows:], (first, second, third), act, seen)


def _activation(activation: Activation, clip: float) -> Callable[[Array], Array]:
    def function(x: Array) -> Array:
        clipped = np.clip(x, -clip, clip) if np.isfinite(clip) else x
        alpha, beta = (np.asarray(value, x.dtype) for value in (activation.alpha, activation.beta))
        if activation.name == "Affine":
            return np.asarray(alpha * clipped + beta)
        if activation.name == "ScaledTanh":
            return np.asarray(alpha * np.tanh(beta * clipped))
        found = of_onnx(activation.name, {})
        if found is None:
            raise ValueError(f"activation {activation.name} is unknown")
        onnx, operation = found
        return apply(operation.name, clipped, *(alpha, beta)[: len(onnx.parameters)])

    return function


def _run(kind: str, direction: _Direction, lengths: Array, h: Array, c: Array) -> tuple[Array, Array, Array, Array]:
    """Return all hidden states and cells, zeros behind a sequence's end, and the last ones of each sequence.

    A sequence of no steps has no last state: zeros.
    """
    step = _STEPS[kind]
    every, cells = (np.zeros((len(direction.projected), *h.shape), h.dtype) for _ in range(2))
    for number, projected in enumerate(direction.projected):
        runs = (number < lengths)[:, None]
        new_h, new_c = step(direction, projected, h, c)
        every[number], cells[number] = np.where(runs, new_h, 0), np.where(runs, new_c, 0)
        h, c = np.where(runs, new_h, h), np.where(runs, new_c, c)
    some = (lengths > 0)[:, None]
    return every, cells, np.where(some, h, 0), np.where(some, c, 0)


def _gradient_values(d: _Direction, lengths: Array, h: Array, every: Array, cells: Array) -> Array:
    """Return the values that a gradient needs: the arguments of each gate's activation, and the cell, or a GRU's reset.

    An LSTM's gates are without what they see of the cell, a GRU's those of a linear one. Behind ends all is 0.
    """
    size = h.shape[1]
    seen = np.concatenate([h[np.newaxis], every])[:-1] @ d.recurrent + d.recurrent_bias
    found, last = d.projected + d.input_bias, cells
    if d.cell.kind == "GRU":
        last = seen[..., 2 * size :]
        reset = d.act[0](found[..., size : 2 * size] + seen[..., size : 2 * size])
        seen = np.concatenate([seen[..., : 2 * size], reset * last], -1)
    runs = np.arange(len(every))[:, np.newaxis] < lengths
    return np.where(runs[:, :, np.newaxis], np.concatenate([found + seen, last], -1), 0)


def _step_rnn(d: _Direction, projected: Array, h: Array, c: Array) -> tuple[Array, Array]:
    (f,) = d.act
    return f(projected + h @ d.recurrent + d.input_bias + d.recurrent_bias), c


def _step_gru(d: _Direction, projected: Array, h: Array, c: Array) -> tuple[Array, Array]:
    f, g = d.act
    size = h.shape[1]
    gates, hidden = slice(0, 2 * size), slice(2 * size, None)
    bias = d.input_bias + d.recurrent_bias
    update, reset = np.split(f(projected[:, gates] + h @ d.recurrent[:, gates] + bias[gates]), 2, 1)
    if d.cell.linear_before_reset:
        candidate = reset * (h @ d.recurrent[:, hidden] + d.recurrent_bias[hidden]) + d.input_bias[hidden]
    else:
        candidate = (reset * h) @ d.recurrent[:, hidden] + bias[hidden]
    return (1 - update) * g(projected[:, hidden] + candidate) + update * h, c


def _step_lstm(d: _Direction, projected: Array, h: Array, c: Array) -> tuple[Array, Array]:
    f, g, last = d.act
    gates = projected + d.seen(h) @ d.recurrent + d.input_bias + d.recurrent_bias
    taken, output, kept, candidate = np.split(gates, 4, 1)
    of_input, of_output, of_forget = d.peepholes
    taken = f(taken + of_input * c)
    kept = 1 - taken if d.cell.coupled else f(kept + of_forget * c)
    c = kept * c + taken * g(candidate)
    return f(output + of_output * c) * last(c), c


_STEPS: dict[str, Callable[[_Direction, Array, Array, Array], tuple[Array, Array]]] = {
    "RNN": _step_rnn,
    "GRU": _step_gru,
    "LSTM": _step_lstm,
}
