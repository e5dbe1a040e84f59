"""Layers over sequences: recurrent ones and their cells, multi-head attention, transformers."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from opbuild.frontend.cell import current
from opbuild.mindspore import names, ops
from opbuild.mindspore.arguments import ArgumentTypeError, ArgumentValueError, TensorShapeError, one_of, positive
from opbuild.mindspore.dtype import float32, to_type
from opbuild.mindspore.execution import cast, emit_many
from opbuild.mindspore.initializer import HeUniform, Uniform, XavierNormal, XavierUniform, initializer
from opbuild.mindspore.nn.basic import CellList, Dense, Dropout
from opbuild.mindspore.nn.cell import Cell
from opbuild.mindspore.nn.convolution import LayerNorm
from opbuild.mindspore.nn.declaration import parameter
from opbuild.mindspore.nn.layers import GELU, ReLU
from opbuild.mindspore.ops.shaping import reshaped
from opbuild.mindspore.parameter import Parameter, ParameterTuple
from opbuild.mindspore.tensor import Tensor

GATES = {"RNN": (0,), "GRU": (1, 0, 2), "LSTM": (0, 3, 1, 2)}
"""Where ONNX's gates are among MindSpore's: (update, reset, new) and (input, output, forget, cell)."""

States = tuple[Tensor, ...]
Mask = Tensor | None


class _Recurrent(Cell):
    """The base of RNN, GRU and LSTM.

    Args:
        input_size: Extent of the input's last axis.
        batch_first: Whether the input is (batch, steps, input_size) and not (steps, batch, input_size).
        dropout: What training drops between layers.
        bidirectional: Whether a second cell reads the sequence from its end.
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
                    found[name].append(parameter(start, shape, dtype, f"{name}_l{layer}{suffix}"))
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
        result = ops.transpose(x, (1, 0, 2)) if self.batch_first else x
        last: list[States] = []
        for layer in range(self.num_layers):
            here = tuple(state[layer] for state in states)
            result, ends = self._layer(layer, result, here, lengths)
            last.append(ends)
            if layer < self.num_layers - 1:
                result = self.dropout_op(result)
        final = tuple(part[0] if len(part) == 1 else ops.concat(part, 0) for part in zip(*last, strict=True))
        output = ops.transpose(result, (1, 0, 2)) if self.batch_first else result
        return output, final if self.kind == "LSTM" else final[0]

    def _states(self, x: Tensor, hx: Any) -> list[tuple[Tensor, ...]]:
        """Return for each state its part of each layer; nothing where it is zero."""
        name = type(self).__name__
        if x.ndim != 3 or x.shape[2] != self.input_size:
            raise TensorShapeError(
                f"{name} of shape {x.shape}",
                f"it needs {'(batch, steps' if self.batch_first else '(steps, batch'}, {self.input_size})",
            )
        if hx is None:
            return []
        wanted = 2 if self.kind == "LSTM" else 1
        given = tuple(hx) if isinstance(hx, (tuple, list)) else (hx,)
        if len(given) != wanted or not all(isinstance(item, Tensor) for item in given):
            hint = "give the tuple (h, c)" if wanted == 2 else "give a tensor"
            raise ArgumentTypeError(f"{name} was given the first state {type(hx).__name__}", hint)
        shape = (self.num_layers * self._directions, x.shape[0 if self.batch_first else 1], self.hidden_size)
        for item in given:
            if item.shape != shape:
                raise TensorShapeError(f"{name} with a first state of shape {item.shape}", f"give {shape}")
        return [ops.split(cast(item, x.type.dtype), self._directions, 0) for item in given]

    def _layer(self, layer: int, x: Tensor, states: States, lengths: Tensor | None) -> tuple[Tensor, States]:
        w, r, b = self._weights(layer, x.type.dtype)
        outputs = 3 if self.kind == "LSTM" else 2
        attrs: dict[str, Any] = {"hidden_size": self.hidden_size, **self._attributes()}
        attrs["direction"] = "bidirectional" if self.bidirectional else "forward"
        every, *last = emit_many(self.kind, (x, w, r, b, lengths, *states), attrs, outputs=outputs)
        steps, directions, batch, hidden = every.shape
        if directions == 1:
            return reshaped(every, (steps, batch, hidden)), tuple(last)
        return reshaped(ops.transpose(every, (0, 2, 1, 3)), (steps, batch, directions * hidden)), tuple(last)

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
        return w, r, ops.concat(halves, 1)

    def _ordered(self, parameters: Sequence[Parameter], dtype: str) -> Tensor:
        """Return parameters of the directions in one tensor, which a network joins: it follows each of them."""
        order = GATES[self.kind]
        if current() is None:
            split_up = (np.split(each.asnumpy(), len(order)) for each in parameters)
            whole = np.stack([np.concatenate([parts[gate] for gate in order]) for parts in split_up])
            return Tensor.of(whole.astype(to_type(dtype).name))
        joined = [ops.concat([ops.chunk(each, len(order))[gate] for gate in order]) for each in parameters]
        return cast(ops.concat([reshaped(each, (1, *each.shape)) for each in joined]), dtype)


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
    """The base of the three cells."""

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
        return ops.dense(x, self.weight_ih, self.bias_ih)

    def _of_state(self, hx: Tensor) -> Tensor:
        return ops.dense(hx, self.weight_hh, self.bias_hh)


class RNNCell(_RecurrentCell):
    """``nonlinearity(x @ weight_ih.T + bias_ih + hx @ weight_hh.T + bias_hh)``, with ``tanh`` or ``relu``."""

    def __init__(self, input_size: int, hidden_size: int, has_bias: bool = True, nonlinearity: str = "tanh",
                 dtype: Any = float32) -> None:  # fmt: skip
        super().__init__(input_size, hidden_size, has_bias, dtype)
        self.nonlinearity = one_of(nonlinearity, ("tanh", "relu"), "nonlinearity of RNNCell")

    def construct(self, x: Tensor, hx: Tensor) -> Tensor:
        """Return the next hidden state."""
        total = ops.add(self._of_input(x), self._of_state(hx))
        return ops.tanh(total) if self.nonlinearity == "tanh" else ops.relu(total)


class GRUCell(_RecurrentCell):
    """A gated recurrent unit."""

    gates = 3

    def construct(self, x: Tensor, hx: Tensor) -> Tensor:
        """Return the next hidden state."""
        reset_x, update_x, new_x = ops.chunk(self._of_input(x), 3, 1)
        reset_h, update_h, new_h = ops.chunk(self._of_state(hx), 3, 1)
        reset, update = ops.sigmoid(ops.add(reset_x, reset_h)), ops.sigmoid(ops.add(update_x, update_h))
        new = ops.tanh(ops.add(new_x, ops.mul(reset, new_h)))
        return ops.add(new, ops.mul(update, ops.sub(hx, new)))


class LSTMCell(_RecurrentCell):
    """A unit of long short-term memory."""

    gates = 4

    def construct(self, x: Tensor, hx: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the next hidden state and the next cell state."""
        if not isinstance(hx, (tuple, list)) or len(hx) != 2:
            raise ArgumentTypeError(f"LSTMCell was given the state {type(hx).__name__}", "give the tuple (h, c)")
        hidden, cell = hx
        into, forget, new, out = ops.chunk(ops.add(self._of_input(x), self._of_state(hidden)), 4, 1)
        cell = ops.add(ops.mul(ops.sigmoid(forget), cell), ops.mul(ops.sigmoid(into), ops.tanh(new)))
        return ops.mul(ops.sigmoid(out), ops.tanh(cell)), cell


NEVER = float("-inf")


class MultiheadAttention(Cell):
    """Attention of queries to keys and values, in several heads.

    Args:
        embed_dim: Extent of the queries' last axis, and of the output's.
        num_heads: Heads; ``embed_dim`` is a multiple.
        dropout: The probability that training drops a weight.
        has_bias: Whether the projections have biases.
        add_bias_kv: Whether a learned key and value are added to the sequences.
        add_zero_attn: Whether a key and value of zeros are added to the sequences.
        kdim: Extent of the keys' last axis; by default ``embed_dim``.
        vdim: Extent of the values' last axis; by default ``embed_dim``.
        batch_first: Whether tensors are (batch, steps, channels) and not (steps, batch, channels).
    """

    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0, has_bias: bool = True,
                 add_bias_kv: bool = False, add_zero_attn: bool = False, kdim: int | None = None,
                 vdim: int | None = None, batch_first: bool = False, dtype: Any = float32) -> None:  # fmt: skip
        super().__init__()
        self.num_heads = positive(num_heads, "num_heads of MultiheadAttention")
        self.embed_dim = positive(embed_dim, "embed_dim of MultiheadAttention", num_heads)
        self.kdim, self.vdim = kdim or embed_dim, vdim or embed_dim
        self.dropout, self.batch_first, self.add_zero_attn = dropout, batch_first, add_zero_attn
        self.head_dim = embed_dim // num_heads
        self.dtype = float32 if dtype is None else dtype
        self._make_parameters(has_bias, add_bias_kv)

    def _make_parameters(self, has_bias: bool, add_bias_kv: bool) -> None:
        size, dtype = self.embed_dim, self.dtype
        together = self.kdim == self.vdim == size
        columns = {} if together else {"q": size, "k": self.kdim, "v": self.vdim}
        for letter in "qkv":
            name = f"{letter}_proj_weight"
            weight = parameter(XavierUniform(), (size, columns[letter]), dtype, name) if columns else None
            setattr(self, name, weight)
        shape = (3 * size, size)
        self.in_proj_weight = parameter(XavierUniform(), shape, dtype, "in_proj_weight") if together else None
        self.in_proj_bias = parameter("zeros", (3 * size,), dtype, "in_proj_bias") if has_bias else None
        self.out_proj = Dense(size, size, has_bias=has_bias, weight_init=HeUniform(math.sqrt(5)),
                              bias_init=Uniform(1 / math.sqrt(size)), dtype=dtype)  # fmt: skip
        self.bias_k = parameter(XavierNormal(), (1, 1, size), dtype, "bias_k") if add_bias_kv else None
        self.bias_v = parameter(XavierNormal(), (1, 1, size), dtype, "bias_v") if add_bias_kv else None

    def construct(self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None = None,
                  need_weights: bool = True, attn_mask: Tensor | None = None,
                  average_attn_weights: bool = True) -> tuple[Tensor, ...]:  # fmt: skip
        """Return the output, and the attention's weights if they are needed.

        Args:
            query: Shape (steps, batch, embed_dim), or without a batch.
            key: Shape (source steps, batch, kdim).
            value: Shape (source steps, batch, vdim).
            key_padding_mask: Shape (batch, source steps): True, or a number that is added, for keys to pass over.
            need_weights: Whether the weights are returned.
            attn_mask: Shape (steps, source steps), or one for each batch and head: as ``key_padding_mask``.
            average_attn_weights: Whether the weights are averaged over the heads.
        """
        batched = query.ndim == 3
        tensors = [self._steps_first(item, batched) for item in (query, key, value)]
        if key_padding_mask is not None and not batched:
            key_padding_mask = ops.expand_dims(key_padding_mask, 0)
        q, k, v = self._projected(*tensors)
        masks = [attn_mask, key_padding_mask]
        k, v, masks = self._extended(k, v, masks)
        output, weights = self._attended(q, k, v, self._mask(masks, q, k))
        output = ops.squeeze(output, 1) if not batched else ops.swapaxes(output, 0, 1) if self.batch_first else output
        if not need_weights:
            return (output,)
        weights = ops.mean(weights, 1) if average_attn_weights else weights
        return output, weights if batched else ops.squeeze(weights, 0)

    def _steps_first(self, tensor: Tensor, batched: bool) -> Tensor:
        if tensor.ndim != (3 if batched else 2):
            raise TensorShapeError(
                f"MultiheadAttention of shape {tensor.shape}", "query, key and value all have 3 dimensions, or all 2"
            )
        if not batched:
            return ops.expand_dims(tensor, 1)
        return ops.swapaxes(tensor, 0, 1) if self.batch_first else tensor

    def _projected(self, query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
        weights: Any = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)  # type: ignore[attr-defined]
        if self.in_proj_weight is not None:
            weights = ops.split(self.in_proj_weight, self.embed_dim, 0)
        biases: Any = (None,) * 3 if self.in_proj_bias is None else ops.split(self.in_proj_bias, self.embed_dim, 0)
        return [ops.dense(*each) for each in zip((query, key, value), weights, biases, strict=True)]

    def _extended(self, k: Tensor, v: Tensor, masks: list[Tensor | None]) -> tuple[Tensor, Tensor, list[Tensor | None]]:
        """Return keys, values and masks with the learned step and the step of zeros, where they are asked for."""
        batch = k.shape[1]
        if self.bias_k is not None and self.bias_v is not None:
            k = ops.concat((k, ops.tile(self.bias_k, (1, batch, 1))))
            v = ops.concat((v, ops.tile(self.bias_v, (1, batch, 1))))
            masks = [_wider(mask) for mask in masks]
        if self.add_zero_attn:
            k, v = ops.pad(k, (0, 0, 0, 0, 0, 1)), ops.pad(v, (0, 0, 0, 0, 0, 1))
            masks = [_wider(mask) for mask in masks]
        return k, v, masks

    def _mask(self, masks: list[Tensor | None], q: Tensor, k: Tensor) -> Tensor | None:
        """Return the addend of the scores, of shape (batch or 1, heads or 1, steps or 1, source steps)."""
        steps, batch, _ = q.shape
        source = k.shape[0]
        attn, padding = (None if mask is None else _truth_or_float(mask) for mask in masks)
        if attn is not None:
            allowed = {2: (steps, source), 3: (batch * self.num_heads, steps, source)}
            if attn.shape != allowed.get(attn.ndim):
                raise TensorShapeError(f"attn_mask of shape {attn.shape}", f"it must be one of {[*allowed.values()]}")
            lead = (1, 1) if attn.ndim == 2 else (batch, self.num_heads)
            attn = reshaped(attn, (*lead, steps, source))
        if padding is not None:
            if padding.shape != (batch, source):
                raise TensorShapeError(f"key_padding_mask of shape {padding.shape}", f"it must be {(batch, source)}")
            padding = reshaped(padding, (batch, 1, 1, source))
        return _combined(attn, padding, q.type.dtype)

    def _attended(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        steps, batch, _ = q.shape
        heads = [reshaped(item, (item.shape[0], batch, self.num_heads, self.head_dim)) for item in (q, k, v)]
        q = ops.transpose(heads[0], (1, 2, 0, 3))
        k = ops.transpose(heads[1], (1, 2, 3, 0))
        v = ops.transpose(heads[2], (1, 2, 0, 3))
        scores = ops.matmul(ops.mul(q, 1 / math.sqrt(self.head_dim)), k)
        weights = ops.softmax(scores if mask is None else ops.add(scores, mask), -1)
        weights = ops.dropout(weights, self.dropout, self.training)
        joined = ops.transpose(ops.matmul(weights, v), (2, 0, 1, 3))
        return self.out_proj(reshaped(joined, (steps, batch, self.embed_dim))), weights


def _truth_or_float(mask: Tensor) -> Tensor:
    dtype = mask.type.dtype
    if dtype == "uint8":
        return cast(mask, "bool")
    if dtype != "bool" and not mask.is_floating_point():
        raise ArgumentTypeError(f"a mask of {dtype}", "give truth values or floats")
    return mask


def _wider(mask: Tensor | None) -> Tensor | None:
    """Return the mask with one more key, which is not passed over."""
    if mask is None:
        return None
    return ops.concat((mask, Tensor.of(np.zeros((*mask.shape[:-1], 1), mask.type.dtype))), -1)


def _combined(first: Tensor | None, second: Tensor | None, dtype: str) -> Tensor | None:
    masks = [mask for mask in (first, second) if mask is not None]
    if len(masks) == 2 and all(mask.type.dtype == "bool" for mask in masks):
        masks = [ops.logical_or(*masks)]
    never, zero = (Tensor.of(np.asarray(value, dtype)) for value in (NEVER, 0))
    added = [ops.where(mask, never, zero) if mask.type.dtype == "bool" else mask for mask in masks]
    return reduce(ops.add, added) if added else None


class _Layer(Cell):
    """The base of encoder and decoder layers.

    Args:
        dim_feedforward: Channels between the two dense layers.
        activation: ``relu`` or ``gelu``, the function or the cell of that name.
        batch_first: Whether tensors are (batch, steps, channels) and not (steps, batch, channels).
        norm_first: Whether normalization comes before each block and not after it.
    """

    attentions: tuple[str, ...] = ("self_attn",)

    def __init__(self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
                 activation: Any = "relu", layer_norm_eps: float = 1e-5, batch_first: bool = False,
                 norm_first: bool = False, dtype: Any = float32) -> None:  # fmt: skip
        super().__init__()
        for name in self.attentions:
            setattr(self, name, MultiheadAttention(d_model, nhead, dropout, batch_first=batch_first, dtype=dtype))
        self.dense1 = _dense(d_model, dim_feedforward, dtype)
        self.dropout = Dropout(p=dropout)
        self.dense2 = _dense(dim_feedforward, d_model, dtype)
        blocks = len(self.attentions) + 1
        for number in range(1, blocks + 1):
            setattr(self, f"norm{number}", LayerNorm((d_model,), epsilon=layer_norm_eps, dtype=dtype))
        for number in range(1, blocks + 1):
            setattr(self, f"dropout{number}", Dropout(p=dropout))
        self.norm_first = norm_first
        self.activation = _activation(activation)
        self._arguments = (
            d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, dtype
        )  # fmt: skip

    def again(self) -> _Layer:
        """Return a new layer of the same arguments."""
        return type(self)(*self._arguments)

    def _block(self, number: int, x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        """Return ``x`` plus a block of it, normalized before the block or after the sum."""
        norm, dropout = getattr(self, f"norm{number}"), getattr(self, f"dropout{number}")
        if self.norm_first:
            return ops.add(x, dropout(function(norm(x))))
        result: Tensor = norm(ops.add(x, dropout(function(x))))
        return result

    def _feed_forward(self, x: Tensor) -> Any:
        return self.dense2(self.dropout(self.activation(self.dense1(x))))


def _attended(attention: MultiheadAttention, memory: Tensor | None, mask: Mask, padding: Mask) -> Any:
    """Return attention to ``memory``, or to the tensor itself, as a function of the tensor."""

    def function(x: Tensor) -> Any:
        there = x if memory is None else memory
        return attention(x, there, there, attn_mask=mask, key_padding_mask=padding, need_weights=False)[0]

    return function


class TransformerEncoderLayer(_Layer):
    """Self-attention and two dense layers."""

    self_attn: MultiheadAttention

    def construct(self, src: Tensor, src_mask: Mask = None, src_key_padding_mask: Mask = None) -> Tensor:
        """Return a tensor of the shape of ``src``."""
        attended = _attended(self.self_attn, None, src_mask, src_key_padding_mask)
        return self._block(2, self._block(1, src, attended), self._feed_forward)


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to the encoder's output, and two dense layers."""

    attentions = ("self_attn", "multihead_attn")
    self_attn: MultiheadAttention
    multihead_attn: MultiheadAttention

    def construct(self, tgt: Tensor, memory: Tensor, tgt_mask: Mask = None, memory_mask: Mask = None,
                  tgt_key_padding_mask: Mask = None, memory_key_padding_mask: Mask = None) -> Tensor:  # fmt: skip
        """Return a tensor of the shape of ``tgt``."""
        to_itself = _attended(self.self_attn, None, tgt_mask, tgt_key_padding_mask)
        to_memory = _attended(self.multihead_attn, memory, memory_mask, memory_key_padding_mask)
        x = self._block(2, self._block(1, tgt, to_itself), to_memory)
        return self._block(3, x, self._feed_forward)


class _Stack(Cell):
    """Layers of the arguments of one, each with parameters of its own, and a normalization at the end."""

    def __init__(self, layer: _Layer, num_layers: int, norm: Cell | None = None) -> None:
        super().__init__()
        first = layer.again()
        self.layers = CellList([copy.deepcopy(first) for _ in range(num_layers)])
        self.num_layers = num_layers
        self.norm = norm

    def _ended(self, x: Tensor) -> Tensor:
        return x if self.norm is None else self.norm(x)


class TransformerEncoder(_Stack):
    """``num_layers`` layers like ``encoder_layer``, which start from the same values."""

    def __init__(self, encoder_layer: TransformerEncoderLayer, num_layers: int, norm: Cell | None = None) -> None:
        super().__init__(encoder_layer, num_layers, norm)

    def construct(self, src: Tensor, src_mask: Mask = None, src_key_padding_mask: Mask = None) -> Tensor:
        """Return a tensor of the shape of ``src``."""
        for layer in self.layers:
            src = layer(src, src_mask=src_mask, src_key_padding_mask=src_key_padding_mask)
        return self._ended(src)


class TransformerDecoder(_Stack):
    """``num_layers`` layers like ``decoder_layer``, which start from the same values."""

    def __init__(self, decoder_layer: TransformerDecoderLayer, num_layers: int, norm: Cell | None = None) -> None:
        super().__init__(decoder_layer, num_layers, norm)

    def construct(self, tgt: Tensor, memory: Tensor, tgt_mask: Mask = None, memory_mask: Mask = None,
                  tgt_key_padding_mask: Mask = None, memory_key_padding_mask: Mask = None) -> Tensor:  # fmt: skip
        """Return a tensor of the shape of ``tgt``."""
        for layer in self.layers:
            tgt = layer(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)
        return self._ended(tgt)


class Transformer(Cell):
    """An encoder and a decoder.

    Args:
        dim_feedforward: Channels between the two dense layers of each.
        activation: ``relu`` or ``gelu``, the function or the cell of that name.
        custom_encoder: A cell to take instead of the encoder.
        custom_decoder: A cell to take instead of the decoder.
        batch_first: Whether tensors are (batch, steps, channels) and not (steps, batch, channels).
        norm_first: Whether normalization comes before each block and not after it.
    """

    def __init__(self, d_model: int = 512, nhead: int = 8, num_encoder_layers: int = 6, num_decoder_layers: int = 6,
                 dim_feedforward: int = 2048, dropout: float = 0.1, activation: Any = "relu",
                 custom_encoder: Cell | None = None, custom_decoder: Cell | None = None,
                 layer_norm_eps: float = 1e-5, batch_first: bool = False, norm_first: bool = False,
                 dtype: Any = float32) -> None:  # fmt: skip
        super().__init__()
        given: Any = (
            d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, dtype
        )  # fmt: skip

        def norm() -> LayerNorm:
            return LayerNorm((d_model,), epsilon=layer_norm_eps, dtype=dtype)

        self.encoder = custom_encoder or TransformerEncoder(TransformerEncoderLayer(*given), num_encoder_layers, norm())
        self.decoder = custom_decoder or TransformerDecoder(TransformerDecoderLayer(*given), num_decoder_layers, norm())
        for each in self.get_parameters():
            if each.ndim > 1:
                each.set_data(initializer("xavier_uniform", each.shape, each.dtype))
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def construct(self, src: Tensor, tgt: Tensor, src_mask: Mask = None, tgt_mask: Mask = None,
                  memory_mask: Mask = None, src_key_padding_mask: Mask = None, tgt_key_padding_mask: Mask = None,
                  memory_key_padding_mask: Mask = None) -> Tensor:  # fmt: skip
        """Return a tensor of the shape of ``tgt``."""
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise TensorShapeError(
                f"Transformer of shapes {src.shape} and {tgt.shape}", f"the last dimension of both is {self.d_model}"
            )
        memory = self.encoder(src, src_mask=src_mask, src_key_padding_mask=src_key_padding_mask)
        result: Tensor = self.decoder(tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask,
                                      tgt_key_padding_mask=tgt_key_padding_mask,
                                      memory_key_padding_mask=memory_key_padding_mask)  # fmt: skip
        return result


def _dense(into: int, out: int, dtype: Any) -> Dense:
    return Dense(into, out, weight_init=HeUniform(math.sqrt(5)), bias_init=Uniform(1 / math.sqrt(into)), dtype=dtype)


def _activation(given: Any) -> Any:
    named = {"relu": ops.relu, "gelu": ops.gelu}
    if isinstance(given, str) and given in named:
        return named[given]
    if isinstance(given, (ReLU, GELU)) or given in (ops.relu, ops.gelu):
        return given
    raise ArgumentValueError(f"activation of a transformer layer is {given!r}", "give 'relu' or 'gelu'")


names.export(vars())
