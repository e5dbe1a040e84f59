"""``mint.nn``'s layers with parameters, which are called as PyTorch's."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from opbuild.mindspore import names
from opbuild.mindspore.arguments import ArgumentValueError, TensorShapeError, positive
from opbuild.mindspore.dtype import float32
from opbuild.mindspore.initializer import HeUniform, Normal, Uniform, initializer
from opbuild.mindspore.mint.nn.functional import FUNCTIONS
from opbuild.mindspore.nn.basic import Dropout as _Dropout
from opbuild.mindspore.nn.cell import Cell
from opbuild.mindspore.nn.combined import Dropout2d as _Dropout2d
from opbuild.mindspore.nn.declaration import cell
from opbuild.mindspore.ops import batch_norm, conv_transpose2d, group_norm, layer_norm, prelu
from opbuild.mindspore.ops.normalization import batch_norm_of_ranks
from opbuild.mindspore.ops.pooling import per_axis
from opbuild.mindspore.parameter import Parameter
from opbuild.mindspore.tensor import Tensor


def _parameter(start: Any, shape: tuple[int, ...], dtype: Any, name: str, requires_grad: bool = True) -> Parameter:
    return Parameter(initializer(start, shape, float32 if dtype is None else dtype), name, requires_grad)


class _Conv(Cell):
    """A convolution of mint: arguments as PyTorch's, ``padding`` an integer, one for each axis, or a word."""

    rank = 2
    transposed = False

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0,
                 dilation: Any = 1, groups: int = 1, bias: bool = True, padding_mode: str = "zeros",
                 dtype: Any = None) -> None:  # fmt: skip
        super().__init__()
        name = type(self).__name__
        if padding_mode != "zeros":
            raise ArgumentValueError(f"padding_mode of {name} is {padding_mode!r}", "pad with mint.nn's layers first")
        if in_channels % groups or out_channels % groups:
            raise ArgumentValueError(
                f"{name} of {in_channels} to {out_channels} channels in {groups} groups",
                "both must be multiples of groups",
            )
        kernel = per_axis(kernel_size, self.rank, f"kernel_size of {name}")
        self.arguments = (stride, padding, dilation, groups)
        first, second = (in_channels, out_channels) if self.transposed else (out_channels, in_channels)
        shape = (first, second // groups, *kernel)
        self.weight = _parameter(HeUniform(math.sqrt(5)), shape, dtype, "weight")
        bound = 1 / math.sqrt(math.prod(shape[1:]))
        self.bias = _parameter(Uniform(bound), (out_channels,), dtype, "bias") if bias else None

    def construct(self, input: Tensor) -> Tensor:
        """Return the convolution of a tensor with or without a batch axis."""
        result: Tensor = FUNCTIONS[f"conv{self.rank}d"](input, self.weight, self.bias, *self.arguments)
        return result


class Conv1d(_Conv):
    """A convolution over one spatial axis."""

    rank = 1


class Conv2d(_Conv):
    """A convolution over two spatial axes."""


class Conv3d(_Conv):
    """A convolution over three spatial axes."""

    rank = 3


class ConvTranspose2d(_Conv):
    """A transposed convolution over two spatial axes."""

    transposed = True

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0,
                 output_padding: Any = 0, groups: int = 1, bias: bool = True, dilation: Any = 1,
                 padding_mode: str = "zeros", dtype: Any = None) -> None:  # fmt: skip
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias,
                         padding_mode, dtype)  # fmt: skip
        self.output_padding = output_padding

    def construct(self, input: Tensor) -> Tensor:
        """Return the transposed convolution."""
        stride, padding, dilation, groups = self.arguments
        return conv_transpose2d(input, self.weight, self.bias, stride, padding, self.output_padding, groups, dilation)


class _BatchNorm(Cell):
    """Each channel normalized by its stored mean and variance, in training by the batch's, which move those."""

    ranks: tuple[int, ...] = ()
    _normalized = staticmethod(batch_norm)

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = True,
                 track_running_stats: bool = True, dtype: Any = None) -> None:  # fmt: skip
        super().__init__()
        shape = (positive(num_features, f"num_features of {type(self).__name__}"),)
        if not track_running_stats:
            raise ArgumentValueError(
                f"{type(self).__name__} was given track_running_stats=False",
                "leave it out",
            )
        self.eps, self.momentum = eps, momentum
        self.weight = _parameter("ones", shape, dtype, "weight") if affine else None
        self.bias = _parameter("zeros", shape, dtype, "bias") if affine else None
        self.running_mean = _parameter("zeros", shape, dtype, "running_mean", False)
        self.running_var = _parameter("ones", shape, dtype, "running_var", False)
        self.num_batches_tracked = Parameter(np.asarray(0, np.float32), "num_batches_tracked", False)

    def construct(self, input: Tensor) -> Tensor:
        """Return the normalized tensor."""
        name = type(self).__name__
        if input.ndim not in self.ranks:
            raise TensorShapeError(f"{name} of shape {input.shape}", f"it needs {self.ranks} dimensions")
        scale = Tensor.of(np.ones(self.running_mean.shape, np.float32)) if self.weight is None else self.weight
        shift = Tensor.of(np.zeros(self.running_mean.shape, np.float32)) if self.bias is None else self.bias
        return self._normalized(
            input, self.running_mean, self.running_var, scale, shift, self.training, self.momentum, self.eps
        )


class BatchNorm1d(_BatchNorm):
    """Batch normalization of shape (N, C) or (N, C, L)."""

    ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch normalization of shape (N, C, H, W)."""

    ranks = (4,)


class BatchNorm3d(_BatchNorm):
    """Batch normalization of shape (N, C, D, H, W)."""

    ranks = (5,)


class SyncBatchNorm(_BatchNorm):
    """Batch normalization; in training on several ranks all of them are one batch."""

    ranks = (2, 3, 4, 5)
    _normalized = staticmethod(batch_norm_of_ranks)

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = True,
                 track_running_stats: bool = True, process_group: str | None = None,
                 dtype: Any = None) -> None:  # fmt: skip
        super().__init__(num_features, eps, momentum, affine, track_running_stats, dtype)
        self.process_group = process_group


def _of_channels(start: str, name: str) -> Callable[[Any], Parameter]:
    return lambda self: _parameter(start, (self.num_channels,), self.dtype, name, self.affine)


@cell(checks={"num_groups": positive},
      made={"weight": _of_channels("ones", "weight"), "bias": _of_channels("zeros", "bias")})  # fmt: skip
def GroupNorm(self: Any, input: Tensor, *, num_groups: int, num_channels: int, eps: float = 1e-5,
              affine: bool = True, dtype: Any = None) -> Tensor:  # fmt: skip
    """Normalization over each group of channels (axis 1)."""
    return group_norm(input, num_groups, self.weight, self.bias, eps)


class LayerNorm(Cell):
    """Normalization over the last axes, whose extents are ``normalized_shape``."""

    def __init__(self, normalized_shape: Any, eps: float = 1e-5, elementwise_affine: bool = True, bias: bool = True,
                 dtype: Any = None) -> None:  # fmt: skip
        super().__init__()
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.normalized_shape, self.eps = shape, eps
        self.weight = _parameter("ones", shape, dtype, "weight") if elementwise_affine else None
        self.bias = _parameter("zeros", shape, dtype, "bias") if elementwise_affine and bias else None

    def construct(self, input: Tensor) -> Tensor:
        """Return the normalized tensor."""
        return layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)


@cell(made={"weight": lambda self: _parameter(float(self.init), (self.num_parameters,), self.dtype, "weight")})
def PReLU(self: Any, input: Tensor, *, num_parameters: int = 1, init: float = 0.25, dtype: Any = None) -> Tensor:
    """``input`` where it is positive, ``weight * input`` elsewhere, one weight or one a channel."""
    return prelu(input, self.weight)


class Embedding(Cell):
    """Rows of a table, by index."""

    def __init__(self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None,
                 max_norm: float | None = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False,
                 sparse: bool = False, _weight: Tensor | None = None, _freeze: bool = False,
                 dtype: Any = None) -> None:  # fmt: skip
        super().__init__()
        start = Normal(1.0) if _weight is None else _weight
        values = initializer(start, (num_embeddings, embedding_dim), dtype or float32)
        table = values.asnumpy().copy()
        if padding_idx is not None and _weight is None:
            table[padding_idx] = 0
        self.weight = Parameter(table, "weight", not _freeze)
        self.padding_idx, self.max_norm = padding_idx, max_norm

    def construct(self, input: Tensor) -> Tensor:
        """Return a tensor of shape (..., embedding_dim)."""
        result: Tensor = FUNCTIONS["embedding"](input, self.weight, self.padding_idx, self.max_norm)
        return result


class Dropout(_Dropout):
    """Nothing, when a network runs; in training it would zero elements with probability ``p``."""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__(p=p)


class Dropout2d(_Dropout2d):
    """Nothing, when a network runs; in training it would zero channels with probability ``p``."""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__(p)


__all__ = names.public(vars(), Cell)
