"""Poolings as cells."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from opbuild.mindspore.arguments import ArgumentValueError, one_of, positive
from opbuild.mindspore.execution import cast, emit
from opbuild.mindspore.nn.cell import Cell
from opbuild.mindspore.ops.activation import relu
from opbuild.mindspore.ops.arithmetic import mul
from opbuild.mindspore.ops.arithmetic import pow as power
from opbuild.mindspore.ops.convolution import PAD_MODES, Padding, only_nchw, per_axis
from opbuild.mindspore.ops.pooling import adaptive, adaptive_avg_pool2d, adaptive_max_pool2d, averaged, no_indices, pool
from opbuild.mindspore.ops.shaping import reshaped
from opbuild.mindspore.tensor import Tensor


class _Pool(Cell):
    """What the poolings share."""

    rank = 2

    def _prepare(self, kernel_size: Any, stride: Any, pad_mode: str, padding: Padding, ceil_mode: bool) -> None:
        name = type(self).__name__
        per_axis(kernel_size, self.rank, f"kernel_size of {name}")
        per_axis(stride, self.rank, f"stride of {name}")
        self.kernel_size = kernel_size
        self.stride = stride
        self.pad_mode = one_of(str(pad_mode).lower(), PAD_MODES, f"pad_mode of {name}")
        self.padding = padding
        self.ceil_mode = ceil_mode
        if self.pad_mode != "pad" and (padding != 0 or ceil_mode):
            raise ArgumentValueError(
                f"{name} with padding or ceil_mode and pad_mode={pad_mode!r}", "use pad_mode='pad'"
            )

    def extend_repr(self) -> str:
        """Return the layer's arguments."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, pad_mode={self.pad_mode.upper()}"


class MaxPool2d(_Pool):
    """The greatest element under a window.

    Args:
        kernel_size: An integer, or (height, width).
        stride: An integer, or (height, width).
        pad_mode: ``valid``, ``same`` or ``pad``.
        padding: An integer, or (height, width); only with ``pad_mode`` ``pad``.
        dilation: An integer, or (height, width); only with ``pad_mode`` ``pad``.
        return_indices: Not supported.
        ceil_mode: Whether a window may end beyond the padded input; only with ``pad_mode`` ``pad``.
        data_format: ``NCHW``.
    """

    def __init__(self, kernel_size: Any = 1, stride: Any = 1, pad_mode: str = "valid", padding: Padding = 0,
                 dilation: Any = 1, return_indices: bool = False, ceil_mode: bool = False,
                 data_format: str = "NCHW") -> None:  # fmt: skip
        super().__init__()
        only_nchw(data_format)
        no_indices(return_indices)
        self._prepare(kernel_size, stride, pad_mode, padding, ceil_mode)
        self.dilation = dilation

    def construct(self, x: Tensor) -> Tensor:
        """Return the pooled tensor, of shape (N, C, H, W) or (C, H, W)."""
        return pool("MaxPool", x, self.kernel_size, self.stride, self.pad_mode, self.padding, self.ceil_mode, self.rank,
                    dilation=self.dilation)  # fmt: skip


class MaxPool1d(MaxPool2d):
    """The greatest element under a window of one axis."""

    rank = 1

    def __init__(self, kernel_size: Any = 1, stride: Any = 1, pad_mode: str = "valid", padding: Padding = 0,
                 dilation: Any = 1, return_indices: bool = False, ceil_mode: bool = False) -> None:  # fmt: skip
        super().__init__(kernel_size, stride, pad_mode, padding, dilation, return_indices, ceil_mode)


class AvgPool2d(_Pool):
    """The mean under a window.

    Args:
        kernel_size: An integer, or (height, width).
        stride: An integer, or (height, width).
        pad_mode: ``valid``, ``same`` or ``pad``.
        padding: An integer, or (height, width); only with ``pad_mode`` ``pad``.
        ceil_mode: Whether a window may end beyond the padded input; only with ``pad_mode`` ``pad``.
        count_include_pad: Whether padding counts in the mean; only with ``pad_mode`` ``pad``.
        divisor_override: Divide by this instead of the window's size; only with ``pad_mode`` ``pad``.
        data_format: ``NCHW``.
    """

    def __init__(self, kernel_size: Any = 1, stride: Any = 1, pad_mode: str = "valid", padding: Padding = 0,
                 ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
                 data_format: str = "NCHW") -> None:  # fmt: skip
        super().__init__()
        only_nchw(data_format)
        self._prepare(kernel_size, stride, pad_mode, padding, ceil_mode)
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override

    def construct(self, x: Tensor) -> Tensor:
        """Return the pooled tensor, of shape (N, C, H, W) or (C, H, W)."""
        return averaged(x, self.kernel_size, self.stride, self.pad_mode, self.padding, self.ceil_mode,
                        self.count_include_pad, self.divisor_override, self.rank)  # fmt: skip


class AvgPool1d(AvgPool2d):
    """The mean under a window of one axis."""

    rank = 1

    def __init__(self, kernel_size: Any = 1, stride: Any = 1, pad_mode: str = "valid", padding: Padding = 0,
                 ceil_mode: bool = False, count_include_pad: bool = True) -> None:  # fmt: skip
        super().__init__(kernel_size, stride, pad_mode, padding, ceil_mode, count_include_pad)


class AdaptiveAvgPool2d(Cell):
    """Means over windows chosen so that the output has ``output_size``; None keeps an extent."""

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def construct(self, input: Tensor) -> Tensor:  # noqa: A002
        """Return the pooled tensor."""
        return adaptive_avg_pool2d(input, self.output_size)


class AdaptiveMaxPool2d(Cell):
    """The greatest elements of windows chosen so that the output has ``output_size``; None keeps an extent."""

    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__()
        no_indices(return_indices)
        self.output_size = output_size

    def construct(self, input: Tensor) -> Tensor:  # noqa: A002
        """Return the pooled tensor."""
        return adaptive_max_pool2d(input, self.output_size)


class MaxPool3d(_Pool):
    """The greatest element under a window of three axes. Arguments as ``MaxPool2d``'s."""

    rank = 3

    def __init__(self, kernel_size: Any = 1, stride: Any = 1, pad_mode: str = "valid", padding: Padding = 0,
                 dilation: Any = 1, return_indices: bool = False, ceil_mode: bool = False) -> None:  # fmt: skip
        super().__init__()
        no_indices(return_indices)
        self._prepare(kernel_size, stride, pad_mode, padding, ceil_mode)
        self.dilation = dilation

    def construct(self, x: Tensor) -> Tensor:
        """Return the pooled tensor, of shape (N, C, D, H, W) or (C, D, H, W)."""
        return pool("MaxPool", x, self.kernel_size, self.stride, self.pad_mode, self.padding, self.ceil_mode, 3,
                    dilation=self.dilation)  # fmt: skip


class AvgPool3d(_Pool):
    """The mean under a window of three axes. Arguments as ``AvgPool2d``'s."""

    rank = 3

    def __init__(self, kernel_size: Any = 1, stride: Any = 1, pad_mode: str = "valid", padding: Padding = 0,
                 ceil_mode: bool = False, count_include_pad: bool = True,
                 divisor_override: int | None = None) -> None:  # fmt: skip
        super().__init__()
        self._prepare(kernel_size, stride, pad_mode, padding, ceil_mode)
        self.count_include_pad, self.divisor_override = count_include_pad, divisor_override

    def construct(self, x: Tensor) -> Tensor:
        """Return the pooled tensor, of shape (N, C, D, H, W) or (C, D, H, W)."""
        return averaged(x, self.kernel_size, self.stride, self.pad_mode, self.padding, self.ceil_mode,
                        self.count_include_pad, self.divisor_override, 3)  # fmt: skip


class LPPool2d(Cell):
    """The norm of order ``norm_type`` of what is under a window."""

    rank = 2

    def __init__(self, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> None:
        super().__init__()
        if not norm_type:
            raise ArgumentValueError(f"norm_type of {type(self).__name__} is {norm_type}", "give another number")
        self.norm_type = float(norm_type)
        self.kernel_size = per_axis(kernel_size, self.rank, f"kernel_size of {type(self).__name__}")
        self.stride = self.kernel_size if stride is None else stride
        self.ceil_mode = ceil_mode

    def construct(self, x: Tensor) -> Tensor:
        """Return the pooled tensor."""
        powers = power(x, self.norm_type)
        means = averaged(powers, self.kernel_size, self.stride, "pad", 0, self.ceil_mode, True, None, self.rank)
        return power(mul(relu(means), float(prod(self.kernel_size))), 1 / self.norm_type)


class LPPool1d(LPPool2d):
    """The norm of order ``norm_type`` of what is under a window of one axis."""

    rank = 1


class AdaptiveAvgPool1d(Cell):
    """Means over windows of the last axis, chosen so that the output has ``output_size``."""

    def __init__(self, output_size: int) -> None:
        super().__init__()
        self.output_size = positive(output_size, "output_size of AdaptiveAvgPool1d")

    def construct(self, input: Tensor) -> Tensor:  # noqa: A002
        """Return the pooled tensor."""
        return adaptive("ReduceMean", "AveragePool", input, self.output_size, 1)


class AdaptiveMaxPool1d(Cell):
    """The greatest elements of windows of the last axis, chosen so that the output has ``output_size``."""

    def __init__(self, output_size: int) -> None:
        super().__init__()
        self.output_size = positive(output_size, "output_size of AdaptiveMaxPool1d")

    def construct(self, x: Tensor) -> Tensor:
        """Return the pooled tensor."""
        return adaptive("ReduceMax", "MaxPool", x, self.output_size, 1)


class AdaptiveAvgPool3d(Cell):
    """Means over windows chosen so that the output has ``output_size``; None keeps an extent."""

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def construct(self, input: Tensor) -> Tensor:  # noqa: A002
        """Return the pooled tensor."""
        return adaptive("ReduceMean", "AveragePool", input, self.output_size, 3)


class AdaptiveMaxPool3d(Cell):
    """The greatest elements of windows chosen so that the output has ``output_size``; None keeps an extent."""

    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__()
        no_indices(return_indices)
        self.output_size = output_size

    def construct(self, input: Tensor) -> Tensor:  # noqa: A002
        """Return the pooled tensor."""
        return adaptive("ReduceMax", "MaxPool", input, self.output_size, 3)


class _MaxUnpool(Cell):
    """Zeros, and each element at its index in its channel: what MaxPool took away, put back.

    Args:
        kernel_size: The window of the pooling.
        stride: Its stride; by default ``kernel_size``.
        padding: Its padding.
    """

    rank = 2

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0) -> None:
        super().__init__()
        name = type(self).__name__
        self.kernel_size = per_axis(kernel_size, self.rank, f"kernel_size of {name}")
        self.stride = self.kernel_size if stride is None else per_axis(stride, self.rank, f"stride of {name}")
        self.padding = (padding,) * self.rank if isinstance(padding, int) else tuple(padding)

    def construct(self, x: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        """Return the tensor in the shape that it had before the pooling, or in ``output_size``."""
        lead, pooled = x.shape[: x.ndim - self.rank], x.shape[x.ndim - self.rank :]
        spatial = tuple(
            (extent - 1) * step + size - 2 * pad
            for extent, step, size, pad in zip(pooled, self.stride, self.kernel_size, self.padding, strict=True)
        )
        if output_size:
            spatial = tuple(output_size)[-self.rank :]
        rows, columns = prod(lead), prod(spatial)
        places, values = (reshaped(item, (rows, prod(pooled))) for item in (indices, x))
        zeros = Tensor.of(np.zeros((rows, columns), x.type.dtype))
        return reshaped(emit("ScatterElements", zeros, cast(places, "int64"), values, axis=1), (*lead, *spatial))


class MaxUnpool1d(_MaxUnpool):
    """The reverse of MaxPool over one axis."""

    rank = 1


class MaxUnpool2d(_MaxUnpool):
    """The reverse of MaxPool over two axes."""


class MaxUnpool3d(_MaxUnpool):
    """The reverse of MaxPool over three axes."""

    rank = 3
