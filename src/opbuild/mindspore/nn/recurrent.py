"""Recurrent layers over whole sequences, and the cells that take one step: RNN, GRU, LSTM."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from opbuild.frontend.cell import current, location
from opbuild.mindspore import names
from opbuild.mindspore.arguments import ArgumentTypeError, ArgumentValueError, TensorShapeError, one_of, positive
from opbuild.mindspore.dtype import float32, to_type
from opbuild.mindspore.execution import cast, emit_many
from opbuild.mindspore.initializer import Uniform, initializer
from opbuild.mindspore.nn.basic import Dropout
from opbuild.mindspore.nn.cell import Cell
from opbuild.mindspore.ops.activation import relu, sigmoid
from opbuild.mindspore.ops.arithmetic import add, mul, sub, tanh
from opbuild.mindspore.ops.linear import dense
from opbuild.mindspore.ops.shaping import chunk, concat, reshaped, split, transpose
from opbuild.mindspore.parameter import Parameter, ParameterTuple
from opbuild.mindspore.tensor import Tensor

GATES = {"RNN": (0,), "GRU": (1, 0, 2), "LSTM": (0, 3, 1, 2)}
"""Where ONNX's gates are among MindSpore's: (update, reset, new) and (input, output, forget, cell)."""

States = tuple[Tensor, ...]


class _Recurrent(Cell):
    """The base of RNN, GRU and LSTM.

    Args:
        input_size: Extent of the input's last axis.
        hidden_size: Extent of the hidden state.
        num_layers: Layers, one over the other.
        has_bias: Whether there are biases.
        batch_first: Whether the input is (batch, steps, input_size) and not (steps, batch, input_size).
        dropout: What training drops between layers.
        bidirectional: Whether a second cell reads the sequence from its end.
        dtype: Element type of the parameters.
    """

    kind = ""

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, has_bias: bool = True,
                 batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
                 dtype: Any = float32) -> None:  # fmt: skip
        super().__init__()
        name = type(self).__name__
        self.input_size = positive(input_size, f"input_size of {name}")
        self.hidden_size = positive(hidden_size, f"hidden_size of {name}")
        self.num_layers = positive(num_layers, f"num_layers of {name}")
        if not 0 <= dropout < 1:
            raise ArgumentValueError(f"dropout of {name} is {dropout}", "give a number from 0 to below 1")
        self.has_bias = has_bias
        self.batch_first = batch_first
        self.dropout = dropout
        self.dropout_op = Dropout(p=float(dropout))
        self.bidirectional = bidirectional
        self._make_parameters(dtype)

    def _make_parameters(self, dtype: Any) -> None:
        gates, hidden = len(GATES[self.kind]) * self.hidden_size, self.hidden_size
        start = Uniform(1 / math.sqrt(hidden))
        found: dict[str, list[Parameter]] = {"weight_ih": [], "weight_hh": [], "bias_ih": [], "bias_hh": []}
        for layer in range(self.num_layers):
            columns = self.input_size if layer == 0 else hidden * self._directions
            shapes = {"weight_ih": (gates, columns), "weight_hh": (gates, hidden)}
            if self.has_bias:
                shapes |= {"bias_ih": (gates,), "bias_hh": (gates,)}  # type: ignore[dict-item]
            for suffix in ("", "_reverse")[: self._directions]:
                for name, shape in shapes.items():
                    values = initializer(start, shape, dtype)
                    found[name].append(Parameter(values, name=f"{name}_l{layer}{suffix}"))
        self.w_ih_list = ParameterTuple(found["weight_ih"])
        self.w_hh_list = ParameterTuple(found["weight_hh"])
        self.b_ih_list = ParameterTuple(found["bias_ih"])
        self.b_hh_list = ParameterTuple(found["bias_hh"])

    @property
    def _directions(self) -> int:
        return 2 if self.bidirectional else 1

    def construct(self, x: Tensor, hx: Any = None, seq_length: Tensor | None = None) -> tuple[Tensor, Any]:
        """Return every step's output, and the last state of each layer and direction.

        Args:
            x: The sequences.
            hx: The first states, of shape (layers * directions, batch, hidden_size): a tensor, for LSTM two of them.
                Zeros by default.
            seq_length: How many steps of each sequence count; outputs behind them are zeros.
        """
        states = self._states(x, hx)
        lengths = None if seq_length is None else cast(seq_length, "int32")
        result = transpose(x, (1, 0, 2)) if self.batch_first else x
        last: list[States] = []
        for layer in range(self.num_layers):
            here = tuple(state[layer] for state in states)
            result, ends = self._layer(layer, result, here, lengths)
            last.append(ends)
            if layer < self.num_layers - 1:
                result = self.dropout_op(result)
        final = tuple(part[0] if len(part) == 1 else concat(part, 0) for part in zip(*last, strict=True))
        output = transpose(result, (1, 0, 2)) if self.batch_first else result
        return output, final if self.kind == "LSTM" else final[0]

    def _states(self, x: Tensor, hx: Any) -> list[tuple[Tensor, ...]]:
        """Return for each state its part of each layer; nothing where it is zero."""
        name = type(self).__name__
        if x.ndim != 3 or x.shape[2] != self.input_size:
            raise TensorShapeError(
                f"{name} of shape {x.shape}{location()}",
                f"it needs {'(batch, steps' if self.batch_first else '(steps, batch'}, {self.input_size})",
            )
        if hx is None:
            return []
        wanted = 2 if self.kind == "LSTM" else 1
        given = tuple(hx) if isinstance(hx, (tuple, list)) else (hx,)
        if len(given) != wanted or not all(isinstance(item, Tensor) for item in given):
            hint = "give the tuple (h, c)" if wanted == 2 else "give a tensor"
            raise ArgumentTypeError(f"{name} was given the first state {type(hx).__name__}{location()}", hint)
        shape = (self.num_layers * self._directions, x.shape[0 if self.batch_first else 1], self.hidden_size)
        for item in given:
            if item.shape != shape:
                raise TensorShapeError(f"{name} with a first state of shape {item.shape}{location()}", f"give {shape}")
        return [split(cast(item, x.type.dtype), self._directions, 0) for item in given]

    def _layer(self, layer: int, x: Tensor, states: States, lengths: Tensor | None) -> tuple[Tensor, States]:
        w, r, b = self._weights(layer, x.type.dtype)
        outputs = 3 if self.kind == "LSTM" else 2
        attrs: dict[str, Any] = {"hidden_size": self.hidden_size, **self._attributes()}
        attrs["direction"] = "bidirectional" if self.bidirectional else "forward"
        every, *last = emit_many(self.kind, (x, w, r, b, lengths, *states), attrs, outputs=outputs)
        steps, directions, batch, hidden = every.shape
        if directions == 1:
            return reshaped(every, (steps, batch, hidden)), tuple(last)
        return reshaped(transpose(every, (0, 2, 1, 3)), (steps, batch, directions * hidden)), tuple(last)

    def _attributes(self) -> dict[str, Any]:
        return {}

    def _weights(self, layer: int, dtype: str) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return a layer's weights as ONNX's operators take them: by direction, in the order of their gates."""
        places = slice(layer * self._directions, (layer + 1) * self._directions)
        w, r = (self._ordered(each[places], dtype) for each in (self.w_ih_list, self.w_hh_list))
        if not self.has_bias:
            return w, r, None
        halves = [self._ordered(each[places], dtype) for each in (self.b_ih_list, self.b_hh_list)]
        if current() is None:
            return w, r, Tensor.of(np.concatenate([half.asnumpy() for half in halves], 1))
        return w, r, concat(halves, 1)

    def _ordered(self, parameters: Sequence[Parameter], dtype: str) -> Tensor:
        """Return parameters of the directions in one tensor, which a network joins: it follows each of them."""
        order = GATES[self.kind]
        if current() is None:
            split_up = (np.split(each.asnumpy(), len(order)) for each in parameters)
            whole = np.stack([np.concatenate([parts[gate] for gate in order]) for parts in split_up])
            return Tensor.of(whole.astype(to_type(dtype).name))
        joined = [concat([chunk(each, len(order))[gate] for gate in order]) for each in parameters]
        return cast(concat([reshaped(each, (1, *each.shape)) for each in joined]), dtype)


class RNN(_Recurrent):
    """A simple recurrent layer. Arguments as ``_Recurrent``'s, and ``nonlinearity``: ``tanh`` or ``relu``."""

    kind = "RNN"

    def __init__(self, *args: Any, nonlinearity: str = "tanh", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.nonlinearity = one_of(nonlinearity, ("tanh", "relu"), "nonlinearity of RNN")

    def _attributes(self) -> dict[str, Any]:
        return {"activations": (self.nonlinearity.capitalize(),) * self._directions}


class GRU(_Recurrent):
    """A layer of gated recurrent units."""

    kind = "GRU"

    def _attributes(self) -> dict[str, Any]:
        return {"linear_before_reset": 1}


class LSTM(_Recurrent):
    """A layer of long short-term memory. The state is a tuple: (hidden, cell)."""

    kind = "LSTM"


class _RecurrentCell(Cell):
    """The base of the three cells.

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
