"""Layers over windows and channels: convolutions, poolings, normalizations."""

from __future__ import annotations

import math
from typing import Any

from opbuild.mindspore import names, ops
from opbuild.mindspore.arguments import ArgumentTypeError, ArgumentValueError, allowed, nchw, of_rank, one_of, positive
from opbuild.mindspore.communication import GlobalComm, get_group_size
from opbuild.mindspore.dtype import float32
from opbuild.mindspore.initializer import HeUniform, Uniform, fans
from opbuild.mindspore.nn.cell import Cell
from opbuild.mindspore.nn.declaration import derived, layer, parameter
from opbuild.mindspore.ops import pooling
from opbuild.mindspore.ops.normalization import batch_norm_of_ranks, instance_norm
from opbuild.mindspore.ops.pooling import Padding
from opbuild.mindspore.ops.shaping import reshaped
from opbuild.mindspore.tensor import Tensor


class _Conv(Cell):
    """The base of all convolutions."""

    _shown = ("input_channels=in_channels output_channels=out_channels kernel_size stride pad_mode padding dilation "
              "group has_bias weight_init bias_init format=data_format")  # fmt: skip
    rank = 2
    transposed = False
    output_padding: Any = 0

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1,
                 pad_mode: str = "same", padding: Padding = 0,
                 dilation: Any = 1, group: int = 1, has_bias: bool = False, weight_init: Any = None,
                 bias_init: Any = None, data_format: str = "NCHW", dtype: Any = float32) -> None:  # fmt: skip
        super().__init__()
        name = type(self).__name__
        self.group = positive(group, f"group of {name}")
        self.in_channels = positive(in_channels, f"in_channels of {name}", group)
        self.out_channels = positive(out_channels, f"out_channels of {name}", group)
        self.kernel_size = pooling.per_axis(kernel_size, self.rank, f"kernel_size of {name}")
        self.stride = pooling.per_axis(stride, self.rank, f"stride of {name}")
        self.dilation = pooling.per_axis(dilation, self.rank, f"dilation of {name}")
        self.pad_mode = one_of(pad_mode, pooling.PAD_MODES, f"pad_mode of {name}")
        self.padding = padding
        pooling.pads_of(pad_mode, padding, (1,) * self.rank, (1,) * self.rank, (1,) * self.rank, (1,) * self.rank, name)
        self.has_bias = bool(has_bias)
        self.data_format = nchw(data_format)
        # MindSpore keeps the weight of a convolution over one axis as one over two, of height 1.
        shape = (*self._channels(), *(1,) * (self.rank == 1), *self.kernel_size)
        self.weight_init = HeUniform(math.sqrt(5)) if weight_init is None else weight_init
        self.weight = parameter(self.weight_init, shape, dtype, "weight")
        if has_bias and bias_init is None:
            bias_init = Uniform(1 / math.sqrt(max(fans(shape)[0], 1)))
        self.bias_init = bias_init
        self.bias = parameter(bias_init, (out_channels,), dtype, "bias") if has_bias else None
        more = self.output_padding
        self.output_padding = (more,) * self.rank if isinstance(more, int) else tuple(more)
        if any(self.output_padding) and self.pad_mode != "pad":
            raise ArgumentValueError(f"output_padding of {name} is {more}", "use pad_mode='pad'")

    def _channels(self) -> tuple[int, int]:
        """Return the first extents of the weight."""
        if self.transposed:
            return self.in_channels, self.out_channels // self.group
        return self.out_channels, self.in_channels // self.group

    def construct(self, x: Tensor) -> Tensor:
        """Return the convolution, or transposed one, of a tensor of shape (N, in_channels, ...)."""
        weight = reshaped(self.weight, (*self._channels(), *self.kernel_size)) if self.rank == 1 else self.weight
        window = (self.bias, self.stride, self.pad_mode, self.padding)
        if not self.transposed:
            return pooling.conv(x, weight, *window, self.dilation, self.group, self.rank)
        inside = self.output_padding if self.rank == 3 else 0
        result = pooling.conv_transpose(x, weight, *window, inside, self.dilation, self.group, self.rank)
        if self.rank != 2:
            return result
        rows, columns = self.output_padding  # MindSpore adds these as zeros after the bias
        return ops.pad(result, (0, columns, 0, rows))


class Conv2d(_Conv):
    """A convolution over two spatial axes.

    Args:
        kernel_size: An integer, or (height, width).
        stride: An integer, or (height, width).
        pad_mode: ``same`` (as many outputs as inputs / stride), ``valid`` (none) or ``pad`` (as ``padding`` says).
        padding: An integer, or (top, bottom, left, right); only with ``pad_mode`` ``pad``.
        dilation: An integer, or (height, width).
        weight_init: Initial weight of shape (out_channels, in_channels / group, height, width).
    """


class _Pool(Cell):
    """The base of poolings."""

    rank = 2
    dilation: Any = 1

    def __init__(
        self, kernel_size: Any, stride: Any, pad_mode: str, padding: Padding, ceil_mode: bool, data_format: str
    ) -> None:
        super().__init__()
        nchw(data_format)
        name = type(self).__name__
        pooling.per_axis(kernel_size, self.rank, f"kernel_size of {name}")
        pooling.per_axis(stride, self.rank, f"stride of {name}")
        self.kernel_size = kernel_size
        self.stride = stride
        self.pad_mode = one_of(str(pad_mode).lower(), pooling.PAD_MODES, f"pad_mode of {name}")
        self.padding = padding
        self.ceil_mode = ceil_mode
        if self.pad_mode != "pad" and (padding != 0 or ceil_mode):
            raise ArgumentValueError(
                f"{name} with padding or ceil_mode and pad_mode={pad_mode!r}", "use pad_mode='pad'"
            )

    def extend_repr(self) -> str:
        """Return the layer's arguments."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, pad_mode={self.pad_mode.upper()}"


class _MaxPool(_Pool):
    def __init__(self, kernel_size: Any = 1, stride: Any = 1, pad_mode: str = "valid", padding: Padding = 0,
                 dilation: Any = 1, return_indices: bool = False, ceil_mode: bool = False,
                 data_format: str = "NCHW") -> None:  # fmt: skip
        super().__init__(kernel_size, stride, pad_mode, padding, ceil_mode, data_format)
        if return_indices and self.pad_mode != "pad":
            raise ArgumentValueError(
                f"{type(self).__name__} with return_indices and pad_mode={self.pad_mode!r}", "use pad_mode='pad'"
            )
        self.dilation, self.return_indices = dilation, return_indices

    def construct(self, x: Tensor) -> Any:
        """Return the pooled tensor, of shape (N, C, ...) or (C, ...), and with ``return_indices`` the places."""
        return pooling.max_pool(x, self.kernel_size, self.stride, self.pad_mode, self.padding, self.dilation,
                                self.ceil_mode, self.return_indices, self.rank)  # fmt: skip


class MaxPool2d(_MaxPool):
    """The greatest element under a window.

    Args:
        kernel_size: An integer, or (height, width).
        stride: An integer, or (height, width).
        pad_mode: ``valid``, ``same`` or ``pad``.
        padding: An integer, or (height, width); only with ``pad_mode`` ``pad``.
        dilation: An integer, or (height, width); only with ``pad_mode`` ``pad``.
        return_indices: Whether the places of the elements are returned too; only with ``pad_mode`` ``pad``.
        ceil_mode: Whether a window may end beyond the padded input; only with ``pad_mode`` ``pad``.
    """


class _AvgPool(_Pool):
    def __init__(self, kernel_size: Any = 1, stride: Any = 1, pad_mode: str = "valid", padding: Padding = 0,
                 ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
                 data_format: str = "NCHW") -> None:  # fmt: skip
        super().__init__(kernel_size, stride, pad_mode, padding, ceil_mode, data_format)
        self.count_include_pad, self.divisor_override = count_include_pad, divisor_override

    def construct(self, x: Tensor) -> Tensor:
        """Return the pooled tensor, of shape (N, C, ...) or (C, ...)."""
        return pooling.averaged(x, self.kernel_size, self.stride, self.pad_mode, self.padding, self.ceil_mode,
                        self.count_include_pad, self.divisor_override, self.rank)  # fmt: skip


class AvgPool2d(_AvgPool):
    """The mean under a window.

    Arguments are those of ``MaxPool2d``, and these.

    Args:
        count_include_pad: Whether padding counts in the mean; only with ``pad_mode`` ``pad``.
        divisor_override: Divide by this instead of the window's size; only with ``pad_mode`` ``pad``.
    """


_MEANS = "Means over windows chosen so that the output has ``output_size``; None keeps a dimension."
_GREATEST = "The greatest elements of windows chosen so that the output has ``output_size``; None keeps a dimension."

_UNPOOL = """The reverse of MaxPool over {}: zeros, and each element at its index in its channel.

Args:
    kernel_size: The window of the pooling.
    stride: Its stride; by default ``kernel_size``.
    padding: Its padding.
"""


class _ChannelNorm(Cell):
    """The base of normalizations of channels: parameters, ``repr``, and the numbers of dimensions that they take."""

    _shown = "num_features eps momentum=_said_momentum gamma beta moving_mean moving_variance"
    ranks: tuple[int, ...] = ()
    eps: float

    def _make_parameters(self, num_features: int, momentum: float, affine: bool, gamma: Any, beta: Any, mean: Any,
                         variance: Any, dtype: Any) -> None:  # fmt: skip
        name = type(self).__name__
        self.num_features = positive(num_features, f"num_features of {name}")
        if not 0 <= momentum <= 1:
            raise ArgumentValueError(f"momentum of {name} is {momentum}", "give a number from 0 to 1")
        self._said_momentum = momentum
        shape = (num_features,)
        self.moving_mean = parameter(mean, shape, dtype, "mean", requires_grad=False)
        self.moving_variance = parameter(variance, shape, dtype, "variance", requires_grad=False)
        self.gamma = parameter(gamma, shape, dtype, "gamma", requires_grad=affine)
        self.beta = parameter(beta, shape, dtype, "beta", requires_grad=affine)


class _BatchNorm(_ChannelNorm):
    """Each channel normalized by its stored mean and variance; in training by the batch's, which move the stored ones.

    Args:
        momentum: What of the stored statistics stays in a step of training.
        affine: Whether ``gamma`` and ``beta`` have ``requires_grad``.
        use_batch_statistics: Whether to take the batch's statistics; None: while ``training`` is set.
    """

    _normalized = staticmethod(ops.batch_norm)

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.9, affine: bool = True,
                 gamma_init: Any = "ones", beta_init: Any = "zeros", moving_mean_init: Any = "zeros",
                 moving_var_init: Any = "ones", use_batch_statistics: bool | None = None,
                 data_format: str = "NCHW", dtype: Any = float32) -> None:  # fmt: skip
        super().__init__()
        nchw(data_format)
        self.eps, self.momentum = eps, 1.0 - momentum
        self.use_batch_statistics = use_batch_statistics
        self._make_parameters(num_features, momentum, affine, gamma_init, beta_init, moving_mean_init, moving_var_init,
                              dtype)  # fmt: skip

    def construct(self, x: Tensor) -> Tensor:
        """Return the normalized tensor."""
        of_rank(x, self.ranks, type(self).__name__)
        training = self.training if self.use_batch_statistics is None else self.use_batch_statistics
        return self._normalized(x, self.moving_mean, self.moving_variance, self.gamma, self.beta, training,
                                self.momentum, self.eps)  # fmt: skip


class BatchNorm1d(_BatchNorm):
    """Batch normalization of shape (N, C) or (N, C, L)."""

    ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch normalization of shape (N, C, H, W)."""

    ranks = (4,)


class BatchNorm3d(Cell):
    """Batch normalization of shape (N, C, D, H, W), by a ``BatchNorm2d`` that has the parameters, as in MindSpore."""

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.9, affine: bool = True,
                 gamma_init: Any = "ones", beta_init: Any = "zeros", moving_mean_init: Any = "zeros",
                 moving_var_init: Any = "ones", use_batch_statistics: bool | None = None,
                 dtype: Any = float32) -> None:  # fmt: skip
        super().__init__()
        self.bn2d = BatchNorm2d(num_features, eps, momentum, affine, gamma_init, beta_init, moving_mean_init,
                                moving_var_init, use_batch_statistics, dtype=dtype)  # fmt: skip

    def construct(self, x: Tensor) -> Tensor:
        """Return the normalized tensor."""
        of_rank(x, (5,), "BatchNorm3d")
        batch, channels, depth, height, width = x.shape
        return reshaped(self.bn2d(reshaped(x, (batch, channels, depth * height, width))), x.shape)


class SyncBatchNorm(_BatchNorm):
    """Batch normalization; in training on several ranks all of them are one batch.

    Arguments are those of ``BatchNorm2d``.

    Args:
        process_groups: A list with the list of all ranks, or None for it.
    """

    ranks = (2, 4)
    _normalized = staticmethod(batch_norm_of_ranks)

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.9, affine: bool = True,
                 gamma_init: Any = "ones", beta_init: Any = "zeros", moving_mean_init: Any = "zeros",
                 moving_var_init: Any = "ones", use_batch_statistics: bool | None = None,
                 process_groups: Any = None, dtype: Any = float32) -> None:  # fmt: skip
        super().__init__(num_features, eps, momentum, affine, gamma_init, beta_init, moving_mean_init,
                         moving_var_init, use_batch_statistics, dtype=dtype)  # fmt: skip
        self.process_groups = process_groups
        if process_groups is not None and GlobalComm.INITED:
            groups, all_ranks = [sorted(group) for group in process_groups], list(range(get_group_size()))
            if groups != [all_ranks]:
                raise ArgumentValueError(
                    f"process_groups of SyncBatchNorm is {process_groups}", f"there is one group: {[all_ranks]}"
                )


class _InstanceNorm(_ChannelNorm):
    """Each channel of each sample normalized by its own mean and variance.

    Args:
        momentum: Kept for programs that ask; the stored statistics do not change.
        affine: Whether ``gamma`` and ``beta`` have ``requires_grad``.
    """

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = True,
                 gamma_init: Any = "ones", beta_init: Any = "zeros", dtype: Any = float32) -> None:  # fmt: skip
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self._make_parameters(num_features, momentum, affine, gamma_init, beta_init, "zeros", "ones", dtype)

    def construct(self, x: Tensor) -> Tensor:
        """Return the normalized tensor."""
        of_rank(x, self.ranks, type(self).__name__)
        return instance_norm(x, self.gamma, self.beta, self.eps)


class LayerNorm(Cell):
    """Normalization over the axes from ``begin_norm_axis`` on.

    Args:
        normalized_shape: Shape of ``gamma`` and ``beta``.
        begin_norm_axis: The first axis that is normalized.
        begin_params_axis: The first axis that ``gamma`` and ``beta`` cover.
    """

    _shown = "normalized_shape begin_norm_axis begin_params_axis gamma beta"

    def __init__(self, normalized_shape: Any, begin_norm_axis: int = -1, begin_params_axis: int = -1,
                 gamma_init: Any = "ones", beta_init: Any = "zeros", epsilon: float = 1e-7,
                 dtype: Any = float32) -> None:  # fmt: skip
        super().__init__()
        if not isinstance(normalized_shape, (tuple, list)):
            raise ArgumentTypeError(
                f"normalized_shape of LayerNorm is {normalized_shape!r}", "give a tuple of integers"
            )
        self.normalized_shape = tuple(normalized_shape)
        self.begin_norm_axis = begin_norm_axis
        self.begin_params_axis = begin_params_axis
        self.epsilon = epsilon
        self.gamma = parameter(gamma_init, self.normalized_shape, dtype, "gamma")
        self.beta = parameter(beta_init, self.normalized_shape, dtype, "beta")
        self.layer_norm = ops.LayerNorm(begin_norm_axis, begin_params_axis, epsilon)

    def construct(self, input_x: Tensor) -> Tensor:
        """Return the normalized tensor."""
        result: Tensor = self.layer_norm(input_x, self.gamma, self.beta)[0]
        return result


class GroupNorm(Cell):
    """Normalization over each group of channels (axis 1) of a tensor of shape (N, C, H, W)."""

    _shown = "num_groups num_channels"

    def __init__(self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True,
                 gamma_init: Any = "ones", beta_init: Any = "zeros", dtype: Any = float32) -> None:  # fmt: skip
        super().__init__()
        self.num_groups = positive(num_groups, "num_groups of GroupNorm")
        self.num_channels = positive(num_channels, "num_channels of GroupNorm", num_groups)
        self.eps = eps
        self.gamma = parameter(gamma_init, (num_channels,), dtype, "gamma", requires_grad=affine)
        self.beta = parameter(beta_init, (num_channels,), dtype, "beta", requires_grad=affine)

    def construct(self, x: Tensor) -> Tensor:
        """Return the normalized tensor."""
        return ops.group_norm(x, self.num_groups, self.gamma, self.beta, self.eps)


AdaptiveAvgPool2d = layer(ops.adaptive_avg_pool2d, _MEANS, output_size=...)
AdaptiveAvgPool3d = layer(pooling.adaptive_avg_pool3d, _MEANS, output_size=...)
AdaptiveMaxPool2d = layer(ops.adaptive_max_pool2d, _GREATEST, output_size=..., return_indices=False)
AdaptiveMaxPool3d = layer(pooling.adaptive_max_pool3d, _GREATEST, output_size=..., return_indices=False)
_CONV = (
    "in_channels out_channels kernel_size stride pad_mode padding{} dilation group{} has_bias weight_init bias_init{}"
)
Conv1d = derived(_Conv, "A convolution over one spatial axis. Arguments as ``Conv2d``, without ``data_format``.",
    _CONV.format("", "", " dtype"), rank=1)  # fmt: skip
Conv3d = derived(_Conv, "A convolution over three spatial axes. Arguments as ``Conv2d``.",
    _CONV.format("", "", " data_format dtype"), rank=3, data_format="NCDHW")  # fmt: skip
Conv1dTranspose = derived(
    _Conv, "A transposed convolution over one spatial axis. Arguments as ``Conv2d``, without ``data_format``.",
    _CONV.format("", "", " dtype"), rank=1, transposed=True)  # fmt: skip
Conv2dTranspose = derived(
    _Conv, "A transposed convolution over two spatial axes. Arguments as ``Conv2d``.\n\n"
    "``output_padding`` adds rows and columns at the end, with ``pad_mode`` ``pad`` only.\n",
    _CONV.format(" output_padding", "", " dtype"), transposed=True, output_padding=0)  # fmt: skip
Conv3dTranspose = derived(
    _Conv, "A transposed convolution over three spatial axes. Arguments as ``Conv2d``.\n\n"
    "``output_padding`` makes the output longer at the end, with ``pad_mode`` ``pad`` only.\n",
    _CONV.format("", " output_padding", " data_format dtype"), rank=3, transposed=True, output_padding=0,
    data_format="NCDHW")  # fmt: skip
_MAXIMUM, _MEAN = (f"kernel_size stride pad_mode padding {more}" for more in (
    "dilation return_indices ceil_mode", "ceil_mode count_include_pad"))  # fmt: skip
MaxPool1d = derived(_MaxPool, "The greatest element under a window of one axis. Arguments as ``MaxPool2d``'s.",
    _MAXIMUM, rank=1)  # fmt: skip
MaxPool3d = derived(_MaxPool, "The greatest element under a window of three axes. Arguments as ``MaxPool2d``'s.",
    _MAXIMUM, rank=3)  # fmt: skip
AvgPool1d = derived(_AvgPool,
    "The mean under a window of one axis. Arguments as ``AvgPool2d``'s, without ``divisor_override``.",
    _MEAN, rank=1)  # fmt: skip
AvgPool3d = derived(_AvgPool, "The mean under a window of three axes. Arguments as ``AvgPool2d``'s.",
    f"{_MEAN} divisor_override", rank=3)  # fmt: skip
InstanceNorm1d = derived(_InstanceNorm, "Instance normalization of shape (N, C, L).", ranks=(3,))
InstanceNorm2d = derived(_InstanceNorm, "Instance normalization of shape (N, C, H, W).", ranks=(4,))
InstanceNorm3d = derived(_InstanceNorm, "Instance normalization of shape (N, C, D, H, W).", ranks=(5,))
LPPool1d, LPPool2d = (
    layer(function, f"The norm of order ``norm_type`` of what is under a window of {axes}.",
          checks={"norm_type": allowed(bool, "give another number")},
          norm_type=..., kernel_size=..., stride=None, ceil_mode=False)
    for rank, function, axes in ((1, pooling.lp_pool1d, "one axis"), (2, pooling.lp_pool2d, "two axes"))
)  # fmt: skip
AdaptiveAvgPool1d = layer(pooling.adaptive_avg_pool1d,
                          "Means over windows of the last axis, chosen so that the output has ``output_size``.",
                          checks={"output_size": positive}, output_size=...)  # fmt: skip
AdaptiveMaxPool1d = layer(pooling.adaptive_max_pool1d,
    "The greatest elements of windows of the last axis, chosen so that the output has ``output_size``.", "x",
    checks={"output_size": positive}, output_size=...)  # fmt: skip
MaxUnpool1d, MaxUnpool2d, MaxUnpool3d = (
    layer(getattr(pooling, f"max_unpool{rank}d"), _UNPOOL.format(axes),
          kernel_size=..., stride=None, padding=0)
    for rank, axes in enumerate(("one axis", "two axes", "three axes"), 1)
)  # fmt: skip

names.export(vars())
