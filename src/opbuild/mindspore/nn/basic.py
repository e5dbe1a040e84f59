"""Dense, Linear, Flatten, Dropout, Embedding, Identity."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from opbuild.mindspore import names
from opbuild.mindspore.arguments import ArgumentTypeError, ArgumentValueError, positive
from opbuild.mindspore.dtype import float32
from opbuild.mindspore.initializer import HeUniform, Uniform, initializer
from opbuild.mindspore.nn.activation import get_activation
from opbuild.mindspore.nn.cell import Cell
from opbuild.mindspore.nn.declaration import layer
from opbuild.mindspore.ops.gathering import embedding, one_hot
from opbuild.mindspore.ops.linear import bias_add, dense, matmul, product
from opbuild.mindspore.ops.primitive import Primitive
from opbuild.mindspore.ops.random import dropout
from opbuild.mindspore.ops.shaping import flatten, reshaped
from opbuild.mindspore.parameter import Parameter
from opbuild.mindspore.tensor import Tensor


class Dense(Cell):
    """A fully connected layer: ``activation(x @ weight.T + bias)`` over the last axis.

    Args:
        in_channels: Extent of the input's last axis.
        out_channels: Extent of the output's last axis.
        weight_init: Initial weight of shape (out_channels, in_channels); by default ``HeUniform(sqrt(5))``.
        bias_init: Initial bias of shape (out_channels,); by default uniform within ``1 / sqrt(in_channels)``.
        has_bias: Whether there is a bias.
        activation: Name of an activation, a cell or a primitive; None for none.
        dtype: Element type of the parameters.
    """

    def __init__(self, in_channels: int, out_channels: int, weight_init: Any = None, bias_init: Any = None,
                 has_bias: bool = True, activation: Any = None, dtype: Any = float32) -> None:  # fmt: skip
        super().__init__()
        self.in_channels = positive(in_channels, "in_channels of Dense")
        self.out_channels = positive(out_channels, "out_channels of Dense")
        self.has_bias = bool(has_bias)
        weight_init = HeUniform(math.sqrt(5)) if weight_init is None else weight_init
        self.weight = Parameter(initializer(weight_init, (out_channels, in_channels), dtype), name="weight")
        self.bias: Parameter | None = None
        if has_bias:
            bias_init = Uniform(1 / math.sqrt(in_channels)) if bias_init is None else bias_init
            self.bias = Parameter(initializer(bias_init, (out_channels,), dtype), name="bias")
        self.activation = get_activation(activation) if isinstance(activation, str) else activation
        if activation is not None and not isinstance(self.activation, (Cell, Primitive)):
            raise ArgumentTypeError(f"activation of Dense is {activation!r}", "give a name, a Cell or a Primitive")

    def construct(self, x: Tensor) -> Tensor:
        """Return a tensor of shape (..., out_channels)."""
        rows = x if x.ndim == 2 else reshaped(x, (x.size // max(x.shape[-1], 1), x.shape[-1]))
        result = product(rows, self.weight, False, True, "Dense", 2)
        if self.bias is not None:
            result = bias_add(result, self.bias)
        if self.activation is not None:
            result = self.activation(result)
        return result if x.ndim == 2 else reshaped(result, (*x.shape[:-1], self.out_channels))

    def extend_repr(self) -> str:
        """Return the layer's arguments."""
        shown = f"input_channels={self.in_channels}, output_channels={self.out_channels}"
        shown += f", has_bias={self.has_bias}" if self.has_bias else ""
        return shown + (f", activation={self.activation}" if self.activation is not None else "")


class Linear(Cell):
    """``input @ weight.T + bias`` over the last axis."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True, weight_init: Any = None,
                 bias_init: Any = None, dtype: Any = None) -> None:  # fmt: skip
        super().__init__()
        positive(in_features, "in_features of Linear")
        positive(out_features, "out_features of Linear")
        start = HeUniform(math.sqrt(5)) if weight_init is None else weight_init
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter(initializer(start, (out_features, in_features), dtype or float32), "weight")
        shift = Uniform(1 / math.sqrt(in_features)) if bias_init is None else bias_init
        self.bias = Parameter(initializer(shift, (out_features,), dtype or float32), "bias") if bias else None

    def construct(self, x: Tensor) -> Tensor:
        """Return a tensor of shape (..., out_features)."""
        return dense(x, self.weight, self.bias)


Flatten = layer("Flatten", flatten, "The axes from ``start_dim`` to ``end_dim`` as one.", "x", start_dim=1, end_dim=-1)


class Identity(Cell):
    """The input as it is; arguments are ignored."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def construct(self, x: Any) -> Any:
        """Return ``x``."""
        return x


class Dropout(Cell):
    """In training elements are zeroed with probability ``p`` and the others divided by ``1 - p``; else nothing happens.

    Args:
        keep_prob: The older argument: the probability that an element stays, in (0, 1].
        p: The probability that an element is zeroed, in [0, 1).
        dtype: Kept for programs that give it.

    Raises:
        ArgumentValueError: If a probability is out of range.
    """

    def __init__(self, keep_prob: float = 0.5, p: float | None = None, dtype: Any = float32) -> None:
        super().__init__()
        if p is None and not 0 < keep_prob <= 1:
            raise ArgumentValueError(f"keep_prob of Dropout is {keep_prob}", "give a number above 0 and up to 1")
        if p is not None and not 0 <= p < 1:
            raise ArgumentValueError(f"p of Dropout is {p}", "give a number from 0 to below 1")
        self.keep_prob = keep_prob
        self.p = p

    def construct(self, x: Tensor) -> Tensor:
        """Return ``x``, in training with zeros."""
        return dropout(x, 1.0 - self.keep_prob if self.p is None else self.p, self.training)

    def extend_repr(self) -> str:
        """Return the layer's arguments."""
        return f"keep_prob={self.keep_prob}" if self.p is None else f"p={self.p}"


class Embedding(Cell):
    """Rows of a table, by index.

    Args:
        vocab_size: Number of rows.
        embedding_size: Extent of a row.
        use_one_hot: Multiply a one-hot matrix instead of gathering: an index that is out of range gives zeros.
        embedding_table: Initial table.
        dtype: Kept for programs that give it; the table is float32 unless a tensor says otherwise.
        padding_idx: The row that starts as zeros, or None.
    """

    _shown = "vocab_size embedding_size use_one_hot embedding_table dtype padding_idx"

    def __init__(self, vocab_size: int, embedding_size: int, use_one_hot: bool = False, embedding_table: Any = "normal",
                 dtype: Any = float32, padding_idx: int | None = None) -> None:  # fmt: skip
        super().__init__()
        self.vocab_size = positive(vocab_size, "vocab_size of Embedding")
        self.embedding_size = positive(embedding_size, "embedding_size of Embedding")
        self.use_one_hot = use_one_hot
        self.dtype = dtype
        self.padding_idx = padding_idx
        table = initializer(embedding_table, (vocab_size, embedding_size)).asnumpy()
        if padding_idx is not None:
            if not 0 <= padding_idx < vocab_size:
                raise ArgumentValueError(
                    f"padding_idx of Embedding is {padding_idx}", f"it must be in [0, {vocab_size})"
                )
            table = table.copy()
            table[padding_idx] = 0
        self.embedding_table = Parameter(np.asarray(table), name="embedding_table")

    def construct(self, ids: Tensor) -> Tensor:
        """Return a tensor of shape (*ids.shape, embedding_size)."""
        if not self.use_one_hot:
            return embedding(ids, self.embedding_table)
        chosen = one_hot(reshaped(ids, (ids.size,)), self.vocab_size, 1.0, 0.0)
        return reshaped(matmul(chosen, self.embedding_table), (*ids.shape, self.embedding_size))


__all__ = names.public(vars(), Cell)
