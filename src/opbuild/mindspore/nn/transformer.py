"""Transformer layers and stacks of them."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

from opbuild.mindspore import names
from opbuild.mindspore.arguments import ArgumentValueError, TensorShapeError
from opbuild.mindspore.dtype import float32
from opbuild.mindspore.initializer import HeUniform, Uniform, initializer
from opbuild.mindspore.nn.activation import GELU, ReLU
from opbuild.mindspore.nn.attention import MultiheadAttention
from opbuild.mindspore.nn.basic import Dense, Dropout
from opbuild.mindspore.nn.cell import Cell
from opbuild.mindspore.nn.container import CellList
from opbuild.mindspore.nn.normalization import LayerNorm
from opbuild.mindspore.ops.activation import gelu, relu
from opbuild.mindspore.ops.arithmetic import add
from opbuild.mindspore.tensor import Tensor

Mask = Tensor | None


class _Layer(Cell):
    """The base of encoder and decoder layers.

    Args:
        d_model: Channels.
        nhead: Heads of the attention.
        dim_feedforward: Channels between the two dense layers.
        dropout: The probability that training drops an element.
        activation: ``relu`` or ``gelu``, the function or the cell of that name.
        layer_norm_eps: Added to variances.
        batch_first: Whether tensors are (batch, steps, channels) and not (steps, batch, channels).
        norm_first: Whether normalization comes before each block and not after it.
        dtype: Element type of the parameters.
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
            return add(x, dropout(function(norm(x))))
        result: Tensor = norm(add(x, dropout(function(x))))
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
        d_model: Channels.
        nhead: Heads of the attention.
        num_encoder_layers: Layers of the encoder.
        num_decoder_layers: Layers of the decoder.
        dim_feedforward: Channels between the two dense layers of each.
        dropout: The probability that training drops an element.
        activation: ``relu`` or ``gelu``, the function or the cell of that name.
        custom_encoder: A cell to take instead of the encoder.
        custom_decoder: A cell to take instead of the decoder.
        layer_norm_eps: Added to variances.
        batch_first: Whether tensors are (batch, steps, channels) and not (steps, batch, channels).
        norm_first: Whether normalization comes before each block and not after it.
        dtype: Element type of the parameters.
    """

    def __init__(self, d_model: int = 512, nhead: int = 8, num_encoder_layers: int = 6, num_decoder_layers: int = 6,
                 dim_feedforward: int = 2048, dropout: float = 0.1, activation: Any = "relu",
                 custom_encoder: Cell | None = None, custom_decoder: Cell | None = None,
                 layer_norm_eps: float = 1e-5, batch_first: bool = False, norm_first: bool = False,
                 dtype: Any = float32) -> None:  # fmt: skip
        super().__init__()
        arguments: Any = (
            d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, dtype
        )  # fmt: skip

        def norm() -> LayerNorm:
            return LayerNorm((d_model,), epsilon=layer_norm_eps, dtype=dtype)

        self.encoder = custom_encoder or TransformerEncoder(
            TransformerEncoderLayer(*arguments), num_encoder_layers, norm()
        )
        self.decoder = custom_decoder or TransformerDecoder(
            TransformerDecoderLayer(*arguments), num_decoder_layers, norm()
        )
        for parameter in self.get_parameters():
            if parameter.ndim > 1:
                parameter.set_data(initializer("xavier_uniform", parameter.shape, parameter.dtype))
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
    named = {"relu": relu, "gelu": gelu}
    if isinstance(given, str) and given in named:
        return named[given]
    if isinstance(given, (ReLU, GELU)) or given in (relu, gelu):
        return given
    raise ArgumentValueError(f"activation of a transformer layer is {given!r}", "give 'relu' or 'gelu'")


__all__ = names.public(vars(), Cell)
