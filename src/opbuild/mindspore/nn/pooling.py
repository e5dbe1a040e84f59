"""Poolings as cells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opbuild.mindspore import names
from opbuild.mindspore.arguments import ArgumentValueError, one_of, positive
from opbuild.mindspore.nn.cell import Cell
from opbuild.mindspore.ops import volumes
from opbuild.mindspore.ops.convolution import PAD_MODES, Padding, only_nchw, per_axis
from opbuild.mindspore.ops.pooling import adaptive, adaptive_avg_pool2d, adaptive_max_pool2d, averaged, pool
from opbuild.mindspore.tensor import Tensor


class _Pool(Cell):
    """What the poolings share."""

    rank = 2
    dilation: Any = 1

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

    def _indices(self, return_indices: bool) -> bool:
        if return_indices and self.pad_mode != "pad":
            raise ArgumentValueError(
                f"{type(self).__name__} with return_indices and pad_mode={self.pad_mode!r}", "use pad_mode='pad'"
            )
        return return_indices

    def _with_indices(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the greatest elements and their places in their channels."""
        return volumes.with_indices(
            x, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.rank
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
        return_indices: Whether the places of the elements are returned too; only with ``pad_mode`` ``pad``.
        ceil_mode: Whether a window may end beyond the padded input; only with ``pad_mode`` ``pad``.
        data_format: ``NCHW``.
    """

    def __init__(self, kernel_size: Any = 1, stride: Any = 1, pad_mode: str = "valid", padding: Padding = 0,
                 dilation: Any = 1, return_indices: bool = False, ceil_mode: bool = False,
                 data_format: str = "NCHW") -> None:  # fmt: skip
        super().__init__()
        only_nchw(data_format)
        self._prepare(kernel_size, stride, pad_mode, padding, ceil_mode)
        self.dilation, self.return_indices = dilation, self._indices(return_indices)

    def construct(self, x: Tensor) -> Any:
        """Return the pooled tensor, of shape (N, C, H, W) or (C, H, W), and with ``return_indices`` the places."""
        if self.return_indices:
            return self._with_indices(x)
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

    def construct(self, input: Tensor) -> Tensor:
        """Return the pooled tensor."""
        return adaptive_avg_pool2d(input, self.output_size)


class AdaptiveMaxPool2d(Cell):
    """The greatest elements of windows chosen so that the output has ``output_size``; None keeps an extent."""

    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__()
        self.output_size, self.return_indices = output_size, return_indices

    def construct(self, input: Tensor) -> Any:
        """Return the pooled tensor, and with ``return_indices`` the places."""
        return adaptive_max_pool2d(input, self.output_size, self.return_indices)


class MaxPool3d(_Pool):
    """The greatest element under a window of three axes. Arguments as ``MaxPool2d``'s."""

    rank = 3

    def __init__(self, kernel_size: Any = 1, stride: Any = 1, pad_mode: str = "valid", padding: Padding = 0,
                 dilation: Any = 1, return_indices: bool = False, ceil_mode: bool = False) -> None:  # fmt: skip
        super().__init__()
        self._prepare(kernel_size, stride, pad_mode, padding, ceil_mode)
        self.dilation, self.return_indices = dilation, self._indices(return_indices)

    def construct(self, x: Tensor) -> Any:
        """Return the pooled tensor, of shape (N, C, D, H, W) or (C, D, H, W), and as asked the places."""
        if self.return_indices:
            return self._with_indices(x)
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


class _LPPool(Cell):
    """The norm of order ``norm_type`` of what is under a window."""

    function: Callable[..., Tensor]

    def __init__(self, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> None:
        super().__init__()
        if not norm_type:
            raise ArgumentValueError(f"norm_type of {type(self).__name__} is {norm_type}", "give another number")
        self.arguments = (norm_type, kernel_size, stride, ceil_mode)

    def construct(self, x: Tensor) -> Tensor:
        """Return the pooled tensor."""
        return type(self).function(x, *self.arguments)


class LPPool1d(_LPPool):
    """The norm of order ``norm_type`` of what is under a window of one axis."""

    function = volumes.lp_pool1d


class LPPool2d(_LPPool):
    """The norm of order ``norm_type`` of what is under a window of two axes."""

    function = volumes.lp_pool2d


class AdaptiveAvgPool1d(Cell):
    """Means over windows of the last axis, chosen so that the output has ``output_size``."""

    def __init__(self, output_size: int) -> None:
        super().__init__()
        self.output_size = positive(output_size, "output_size of AdaptiveAvgPool1d")

    def construct(self, input: Tensor) -> Tensor:
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

    def construct(self, input: Tensor) -> Tensor:
        """Return the pooled tensor."""
        return adaptive("ReduceMean", "AveragePool", input, self.output_size, 3)


class AdaptiveMaxPool3d(Cell):
    """The greatest elements of windows chosen so that the output has ``output_size``; None keeps an extent."""

    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__()
        self.output_size, self.return_indices = output_size, return_indices

    def construct(self, input: Tensor) -> Any:
        """Return the pooled tensor, and with ``return_indices`` the places."""
        return volumes.adaptive_max_pool3d(input, self.output_size, self.return_indices)


class _MaxUnpool(Cell):
    """Zeros, and each element at its index in its channel: what MaxPool took away, put back.

    Args:
        kernel_size: The window of the pooling.
        stride: Its stride; by default ``kernel_size``.
        padding: Its padding.
    """

    function: Callable[..., Tensor]

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0) -> None:
        super().__init__()
        self.arguments = (kernel_size, stride, padding)

    def construct(self, x: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        """Return the tensor in the shape that it had before the pooling, or in ``output_size``."""
        return type(self).function(x, indices, *self.arguments, output_size)


class MaxUnpool1d(_MaxUnpool):
    """The reverse of MaxPool over one axis."""

    function = volumes.max_unpool1d


class MaxUnpool2d(_MaxUnpool):
    """The reverse of MaxPool over two axes."""

    function = volumes.max_unpool2d


class MaxUnpool3d(_MaxUnpool):
    """The reverse of MaxPool over three axes."""

    function = volumes.max_unpool3d


__all__ = names.public(vars(), Cell)
