"""Convolutions as cells."""

from __future__ import annotations

import math
from typing import Any

from opbuild.mindspore import names
from opbuild.mindspore.arguments import ArgumentValueError, one_of, positive
from opbuild.mindspore.dtype import float32
from opbuild.mindspore.initializer import HeUniform, Uniform, fans, initializer
from opbuild.mindspore.nn.cell import Cell
from opbuild.mindspore.ops.pooling import PAD_MODES, Padding, conv, conv_transpose, only_nchw, pads_of, per_axis
from opbuild.mindspore.ops.shaping import pad, reshaped
from opbuild.mindspore.parameter import Parameter
from opbuild.mindspore.tensor import Tensor


class _Conv(Cell):
    """The base of all convolutions."""

    _shown = ("input_channels=in_channels output_channels=out_channels kernel_size stride pad_mode padding dilation "
              "group has_bias weight_init bias_init format=data_format")  # fmt: skip
    rank = 2
    transposed = False

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1,
                 pad_mode: str = "same", padding: Padding = 0,
                 dilation: Any = 1, group: int = 1, has_bias: bool = False, weight_init: Any = None,
                 bias_init: Any = None, data_format: str = "NCHW", dtype: Any = float32) -> None:  # fmt: skip
        super().__init__()
        name = type(self).__name__
        self.in_channels = positive(in_channels, f"in_channels of {name}")
        self.out_channels = positive(out_channels, f"out_channels of {name}")
        self.kernel_size = per_axis(kernel_size, self.rank, f"kernel_size of {name}")
        self.stride = per_axis(stride, self.rank, f"stride of {name}")
        self.dilation = per_axis(dilation, self.rank, f"dilation of {name}")
        self.pad_mode = one_of(pad_mode, PAD_MODES, f"pad_mode of {name}")
        self.padding = padding
        pads_of(pad_mode, padding, (1,) * self.rank, (1,) * self.rank, (1,) * self.rank, (1,) * self.rank, name)
        self.group = positive(group, f"group of {name}")
        self.has_bias = bool(has_bias)
        self.data_format = data_format
        only_nchw(data_format)
        if in_channels % group or out_channels % group:
            raise ArgumentValueError(
                f"{name} of {in_channels} to {out_channels} channels in {group} groups",
                "both must be multiples of group",
            )
        # MindSpore keeps the weight of a convolution over one axis as one over two, of height 1.
        shape = (*self._channels(), *(1,) * (self.rank == 1), *self.kernel_size)
        self.weight_init = HeUniform(math.sqrt(5)) if weight_init is None else weight_init
        self.weight = Parameter(initializer(self.weight_init, shape, dtype), name="weight")
        self.bias_init = bias_init
        self.bias: Parameter | None = None
        if has_bias:
            self.bias_init = Uniform(1 / math.sqrt(max(fans(shape)[0], 1))) if bias_init is None else bias_init
            self.bias = Parameter(initializer(self.bias_init, (out_channels,), dtype), name="bias")

    def _channels(self) -> tuple[int, int]:
        """Return the first extents of the weight."""
        if self.transposed:
            return self.in_channels, self.out_channels // self.group
        return self.out_channels, self.in_channels // self.group

    def construct(self, x: Tensor) -> Tensor:
        """Return the convolution of a tensor of shape (N, in_channels, ...)."""
        weight = reshaped(self.weight, (*self._channels(), *self.kernel_size)) if self.rank == 1 else self.weight
        if self.transposed:
            return conv_transpose(x, weight, self.bias, self.stride, self.pad_mode, self.padding, 0, self.dilation,
                                  self.group, self.rank)  # fmt: skip
        return conv(
            x, weight, self.bias, self.stride, self.pad_mode, self.padding, self.dilation, self.group, self.rank
        )

    def _take_output_padding(self, output_padding: Any) -> None:
        given = (output_padding,) * self.rank if isinstance(output_padding, int) else tuple(output_padding)
        if any(given) and self.pad_mode != "pad":
            name = type(self).__name__
            raise ArgumentValueError(f"output_padding of {name} is {output_padding}", "use pad_mode='pad'")
        self.output_padding = given


class Conv2d(_Conv):
    """A convolution over two spatial axes.

    Args:
        in_channels: Channels of the input.
        out_channels: Channels of the output.
        kernel_size: An integer, or (height, width).
        stride: An integer, or (height, width).
        pad_mode: ``same`` (as many outputs as inputs / stride), ``valid`` (none) or ``pad`` (as ``padding`` says).
        padding: An integer, or (top, bottom, left, right); only with ``pad_mode`` ``pad``.
        dilation: An integer, or (height, width).
        group: Groups of channels.
        has_bias: Whether there is a bias.
        weight_init: Initial weight of shape (out_channels, in_channels / group, height, width).
        bias_init: Initial bias of shape (out_channels,).
        data_format: ``NCHW``.
        dtype: Element type of the parameters.
    """


class Conv3d(_Conv):
    """A convolution over three spatial axes. Arguments as ``Conv2d``."""

    rank = 3

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1,
                 pad_mode: str = "same", padding: Padding = 0,
                 dilation: Any = 1, group: int = 1, has_bias: bool = False, weight_init: Any = None,
                 bias_init: Any = None, data_format: str = "NCDHW", dtype: Any = float32) -> None:  # fmt: skip
        super().__init__(in_channels, out_channels, kernel_size, stride, pad_mode, padding, dilation, group, has_bias,
                         weight_init, bias_init, data_format, dtype)  # fmt: skip


class _Conv1d(_Conv):
    rank = 1

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1,
                 pad_mode: str = "same", padding: Padding = 0,
                 dilation: Any = 1, group: int = 1, has_bias: bool = False, weight_init: Any = None,
                 bias_init: Any = None, dtype: Any = float32) -> None:  # fmt: skip
        super().__init__(in_channels, out_channels, kernel_size, stride, pad_mode, padding, dilation, group, has_bias,
                         weight_init, bias_init, dtype=dtype)  # fmt: skip


class Conv1d(_Conv1d):
    """A convolution over one spatial axis. Arguments as ``Conv2d``, without ``data_format``."""


class Conv1dTranspose(_Conv1d):
    """A transposed convolution over one spatial axis. Arguments as ``Conv2d``, without ``data_format``."""

    transposed = True


class Conv2dTranspose(_Conv):
    """A transposed convolution over two spatial axes. Arguments as ``Conv2d``.

    ``output_padding`` adds rows and columns at the end, with ``pad_mode`` ``pad`` only.
    """

    transposed = True

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1,
                 pad_mode: str = "same", padding: Padding = 0,
                 output_padding: Any = 0, dilation: Any = 1, group: int = 1, has_bias: bool = False,
                 weight_init: Any = None, bias_init: Any = None, dtype: Any = float32) -> None:  # fmt: skip
        super().__init__(in_channels, out_channels, kernel_size, stride, pad_mode, padding, dilation, group, has_bias,
                         weight_init, bias_init, dtype=dtype)  # fmt: skip
        self._take_output_padding(output_padding)

    def construct(self, x: Tensor) -> Tensor:
        """Return the transposed convolution of a tensor of shape (N, in_channels, height, width)."""
        # MindSpore adds these rows and columns as zeros after the bias.
        rows, columns = self.output_padding
        return pad(super().construct(x), (0, columns, 0, rows))


class Conv3dTranspose(_Conv):
    """A transposed convolution over three spatial axes. Arguments as ``Conv2d``.

    ``output_padding`` makes the output longer at the end, with ``pad_mode`` ``pad`` only.
    """

    rank = 3
    transposed = True

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1,
                 pad_mode: str = "same", padding: Padding = 0, dilation: Any = 1, group: int = 1,
                 output_padding: Any = 0, has_bias: bool = False, weight_init: Any = None, bias_init: Any = None,
                 data_format: str = "NCDHW", dtype: Any = float32) -> None:  # fmt: skip
        super().__init__(in_channels, out_channels, kernel_size, stride, pad_mode, padding, dilation, group, has_bias,
                         weight_init, bias_init, data_format, dtype)  # fmt: skip
        self._take_output_padding(output_padding)

    def construct(self, x: Tensor) -> Tensor:
        """Return the transposed convolution of a tensor of shape (N, in_channels, depth, height, width)."""
        return conv_transpose(x, self.weight, self.bias, self.stride, self.pad_mode, self.padding,
                              self.output_padding, self.dilation, self.group, 3)  # fmt: skip


__all__ = names.public(vars(), Cell)
