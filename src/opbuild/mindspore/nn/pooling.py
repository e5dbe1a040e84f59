"""Poolings as cells."""

from __future__ import annotations

from typing import Any

from opbuild.mindspore.arguments import ArgumentValueError, one_of
from opbuild.mindspore.nn.cell import Cell
from opbuild.mindspore.ops.convolution import PAD_MODES, Padding, only_nchw, per_axis
from opbuild.mindspore.ops.pooling import adaptive_avg_pool2d, adaptive_max_pool2d, averaged, no_indices, pool
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
        result: Tensor = adaptive_max_pool2d(input, self.output_size)
        return result
