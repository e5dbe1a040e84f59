"""Recurrent cells: one step of RNN, GRU, LSTM."""

from __future__ import annotations

import math
from typing import Any

from opbuild.mindspore import names
from opbuild.mindspore.arguments import ArgumentTypeError, one_of, positive
from opbuild.mindspore.dtype import float32
from opbuild.mindspore.initializer import Uniform, initializer
from opbuild.mindspore.nn.cell import Cell
from opbuild.mindspore.ops.activation import relu, sigmoid
from opbuild.mindspore.ops.arithmetic import add, mul, sub, tanh
from opbuild.mindspore.ops.linear import dense
from opbuild.mindspore.ops.shaping import chunk
from opbuild.mindspore.parameter import Parameter
from opbuild.mindspore.tensor import Tensor


class _RecurrentCell(Cell):
    """What the three cells share.

    Args:
        input_size: Extent of the input's last axis.
        hidden_size: Extent of the hidden state.
        has_bias: Whether there are biases.
        dtype: Element type of the parameters.
    """

    gates = 1

    def __init__(self, input_size: int, hidden_size: int, has_bias: bool = True, dtype: Any = float32) -> None:
        super().__init__()
        name = type(self).__name__
        self.input_size = positive(input_size, f"input_size of {name}")
        self.hidden_size = positive(hidden_size, f"hidden_size of {name}")
        self.has_bias = has_bias
        rows, start = self.gates * hidden_size, Uniform(1 / math.sqrt(hidden_size))
        self.weight_ih = Parameter(initializer(start, (rows, input_size), dtype))
        self.weight_hh = Parameter(initializer(start, (rows, hidden_size), dtype))
        self.bias_ih: Parameter | None = None
        self.bias_hh: Parameter | None = None
        if has_bias:
            self.bias_ih = Parameter(initializer(start, (rows,), dtype))
            self.bias_hh = Parameter(initializer(start, (rows,), dtype))

    def _of_input(self, x: Tensor) -> Tensor:
        return dense(x, self.weight_ih, self.bias_ih)

    def _of_state(self, hx: Tensor) -> Tensor:
        return dense(hx, self.weight_hh, self.bias_hh)


class RNNCell(_RecurrentCell):
    """``nonlinearity(x @ weight_ih.T + bias_ih + hx @ weight_hh.T + bias_hh)``, with ``tanh`` or ``relu``."""

    def __init__(self, input_size: int, hidden_size: int, has_bias: bool = True, nonlinearity: str = "tanh",
                 dtype: Any = float32) -> None:  # fmt: skip
        super().__init__(input_size, hidden_size, has_bias, dtype)
        self.nonlinearity = one_of(nonlinearity, ("tanh", "relu"), "nonlinearity of RNNCell")

    def construct(self, x: Tensor, hx: Tensor) -> Tensor:
        """Return the next hidden state."""
        total = add(self._of_input(x), self._of_state(hx))
        return tanh(total) if self.nonlinearity == "tanh" else relu(total)


class GRUCell(_RecurrentCell):
    """A gated recurrent unit."""

    gates = 3

    def construct(self, x: Tensor, hx: Tensor) -> Tensor:
        """Return the next hidden state."""
        reset_x, update_x, new_x = chunk(self._of_input(x), 3, 1)
        reset_h, update_h, new_h = chunk(self._of_state(hx), 3, 1)
        reset, update = sigmoid(add(reset_x, reset_h)), sigmoid(add(update_x, update_h))
        new = tanh(add(new_x, mul(reset, new_h)))
        return add(new, mul(update, sub(hx, new)))


class LSTMCell(_RecurrentCell):
    """A unit of long short-term memory."""

    gates = 4

    def construct(self, x: Tensor, hx: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the next hidden state and the next cell state."""
        if not isinstance(hx, (tuple, list)) or len(hx) != 2:
            raise ArgumentTypeError(f"LSTMCell was given the state {type(hx).__name__}", "give the tuple (h, c)")
        hidden, cell = hx
        into, forget, new, out = chunk(add(self._of_input(x), self._of_state(hidden)), 4, 1)
        cell = add(mul(sigmoid(forget), cell), mul(sigmoid(into), tanh(new)))
        return mul(sigmoid(out), tanh(cell)), cell


__all__ = names.public(vars(), Cell)
