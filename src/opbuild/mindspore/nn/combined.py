"""Cells that wrap others: lookups, dropouts of channels, layers with normalization and activation, every step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opbuild.mindspore import names
from opbuild.mindspore.arguments import ArgumentValueError, one_of, positive
from opbuild.mindspore.dtype import float32
from opbuild.mindspore.initializer import initializer
from opbuild.mindspore.nn.activation import LeakyReLU, get_activation
from opbuild.mindspore.nn.basic import Dense
from opbuild.mindspore.nn.cell import Cell
from opbuild.mindspore.nn.convolution import Conv2d
from opbuild.mindspore.nn.declaration import cell
from opbuild.mindspore.nn.matrix import ClipByNorm
from opbuild.mindspore.nn.normalization import BatchNorm1d, BatchNorm2d
from opbuild.mindspore.ops.arithmetic import greater_equal, less, logical_and, where
from opbuild.mindspore.ops.gathering import gather
from opbuild.mindspore.ops.random import dropout1d, dropout2d, dropout3d
from opbuild.mindspore.ops.shaping import expand_dims, reshape, stack, unstack
from opbuild.mindspore.parameter import Parameter
from opbuild.mindspore.tensor import Tensor


class EmbeddingLookup(Cell):
    """Rows of a table, by index; an index that is out of range gives zeros.

    Args:
        vocab_size: Number of rows.
        embedding_size: Extent of a row.
        param_init: Initial table.
        target: ``CPU`` or ``DEVICE``: there is one device.
        slice_mode: Kept for programs that give it.
        manual_shapes: Kept for programs that give it.
        max_norm: The greatest Euclidean norm of a row, or None.
        sparse: Kept for programs that give it.
        dtype: Element type of the table.
    """

    def __init__(self, vocab_size: int, embedding_size: int, param_init: Any = "normal", target: str = "CPU",
                 slice_mode: str = "batch_slice", manual_shapes: Any = None, max_norm: float | None = None,
                 sparse: bool = True, dtype: Any = float32) -> None:  # fmt: skip
        super().__init__()
        self.vocab_size = positive(vocab_size, "vocab_size of EmbeddingLookup")
        self.embedding_size = positive(embedding_size, "embedding_size of EmbeddingLookup")
        self.target = one_of(target, ("CPU", "DEVICE"), "target of EmbeddingLookup")
        shape = (vocab_size, embedding_size)
        self.embedding_table = Parameter(initializer(param_init, shape, dtype), "embedding_table")
        self.max_norm = max_norm

    def construct(self, indices: Tensor) -> Tensor:
        """Return a tensor of shape (..., embedding_size)."""
        inside = logical_and(greater_equal(indices, 0), less(indices, self.vocab_size))
        rows = gather(self.embedding_table, where(inside, indices, 0), 0)
        rows = where(expand_dims(inside, -1), rows, 0.0)
        return rows if self.max_norm is None else ClipByNorm(rows.ndim - 1)(rows, float(self.max_norm))


class _ChannelDropout(Cell):
    """In training whole channels are zeroed with probability ``p``; else nothing happens."""

    _shown = "p"
    _dropout: Callable[..., Tensor]

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ArgumentValueError(f"p of {type(self).__name__} is {p}", "give a number from 0 to 1")
        self.p = p

    def construct(self, x: Tensor) -> Tensor:
        """Return ``x``, in training with zeros."""
        return self._dropout(x, self.p, self.training)


class Dropout1d(_ChannelDropout):
    """Dropout of channels of shape (N, C, L)."""

    _dropout = staticmethod(dropout1d)


class Dropout2d(_ChannelDropout):
    """Dropout of channels of shape (N, C, H, W)."""

    _dropout = staticmethod(dropout2d)


class Dropout3d(_ChannelDropout):
    """Dropout of channels of shape (N, C, D, H, W)."""

    _dropout = staticmethod(dropout3d)


class Conv2dBnAct(Cell):
    """A convolution, batch normalization if ``has_bn``, and an activation if one is given."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1,
                 pad_mode: str = "same", padding: Any = 0, dilation: Any = 1, group: int = 1, has_bias: bool = False,
                 weight_init: Any = "normal", bias_init: Any = "zeros", has_bn: bool = False,
                 momentum: float = 0.997, eps: float = 1e-5, activation: Any = None, alpha: float = 0.2,
                 after_fake: bool = True) -> None:  # fmt: skip
        super().__init__()
        self.conv = Conv2d(in_channels, out_channels, kernel_size, stride, pad_mode, padding, dilation, group,
                           has_bias, weight_init, bias_init)  # fmt: skip
        self.has_bn = has_bn
        if has_bn:
            self.batchnorm = BatchNorm2d(out_channels, eps, momentum)
        self.activation = _activation(activation, alpha)

    def construct(self, x: Tensor) -> Tensor:
        """Return the result."""
        x = self.conv(x)
        x = self.batchnorm(x) if self.has_bn else x
        return x if self.activation is None else self.activation(x)


class DenseBnAct(Cell):
    """A dense layer, batch normalization if ``has_bn``, and an activation if one is given."""

    def __init__(self, in_channels: int, out_channels: int, weight_init: Any = "normal", bias_init: Any = "zeros",
                 has_bias: bool = True, has_bn: bool = False, momentum: float = 0.9, eps: float = 1e-5,
                 activation: Any = None, alpha: float = 0.2, after_fake: bool = True) -> None:  # fmt: skip
        super().__init__()
        self.dense = Dense(in_channels, out_channels, weight_init, bias_init, has_bias)
        self.has_bn = has_bn
        if has_bn:
            self.batchnorm = BatchNorm1d(out_channels, eps, momentum)
        self.activation = _activation(activation, alpha)

    def construct(self, x: Tensor) -> Tensor:
        """Return the result."""
        x = self.dense(x)
        x = self.batchnorm(x) if self.has_bn else x
        return x if self.activation is None else self.activation(x)


@cell()
def TimeDistributed(inputs: Tensor, *, layer: Any, time_axis: int, reshape_with_axis: int | None = None) -> Tensor:
    """A cell or a primitive applied to every step along ``time_axis``.

    Args:
        inputs: The steps.
        layer: What is applied.
        time_axis: The axis of steps.
        reshape_with_axis: The axis that the steps are joined to while the layer is applied once; by default it is
            applied to one step after another.
    """
    axis = time_axis % inputs.ndim
    if reshape_with_axis is None:
        return stack([layer(step) for step in unstack(inputs, axis)], axis)
    other = reshape_with_axis % inputs.ndim
    if abs(axis - other) != 1:
        raise ArgumentValueError(f"TimeDistributed over axis {axis} with reshape_with_axis={other}", "name a neighbour")
    first, shape = min(axis, other), inputs.shape
    joined = reshape(inputs, (*shape[:first], shape[first] * shape[first + 1], *shape[first + 2 :]))
    result = layer(joined)
    return reshape(result, (*result.shape[:first], *shape[first : first + 2], *result.shape[first + 1 :]))


def _activation(name: Any, alpha: float) -> Any:
    if name == "leakyrelu":
        return LeakyReLU(alpha)
    return get_activation(name) if isinstance(name, str) else name


__all__ = names.public(vars(), Cell)
