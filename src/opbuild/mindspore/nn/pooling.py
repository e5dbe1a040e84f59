"""Poolings as cells."""

from __future__ import annotations

from typing import Any

from opbuild.mindspore import names
from opbuild.mindspore.arguments import ArgumentValueError, allowed, one_of, positive
from opbuild.mindspore.nn.cell import Cell
from opbuild.mindspore.nn.declaration import layer
from opbuild.mindspore.ops import pooling
from opbuild.mindspore.ops.pooling import (
    PAD_MODES,
    Padding,
    adaptive_avg_pool2d,
    adaptive_max_pool2d,
    averaged,
    only_nchw,
    per_axis,
    pool,
)
from opbuild.mindspore.tensor import Tensor


class _Pool(Cell):
    """The base of poolings."""

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

    def extend_repr(self) -> str:
        """Return the layer's arguments."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, pad_mode={self.pad_mode.upper()}"


class _MaxPool(_Pool):
    def __init__(self, kernel_size: Any = 1, stride: Any = 1, pad_mode: str = "valid", padding: Padding = 0,
                 dilation: Any = 1, return_indices: bool = False, ceil_mode: bool = False) -> None:  # fmt: skip
        super().__init__()
        self._prepare(kernel_size, stride, pad_mode, padding, ceil_mode)
        if return_indices and self.pad_mode != "pad":
            raise ArgumentValueError(
                f"{type(self).__name__} with return_indices and pad_mode={self.pad_mode!r}", "use pad_mode='pad'"
            )
        self.dilation, self.return_indices = dilation, return_indices

    def construct(self, x: Tensor) -> Any:
        """Return the pooled tensor, of shape (N, C, ...) or (C, ...), and with ``return_indices`` the places."""
        if self.return_indices:
            return pooling.with_indices(
                x, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.rank
            )
        return pool("MaxPool", x, self.kernel_size, self.stride, self.pad_mode, self.padding, self.ceil_mode, self.rank,
                    dilation=self.dilation)  # fmt: skip


class MaxPool1d(_MaxPool):
    """The greatest element under a window of one axis. Arguments as ``MaxPool2d``'s."""

    rank = 1


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
        data_format: ``NCHW``.
    """

    def __init__(self, kernel_size: Any = 1, stride: Any = 1, pad_mode: str = "valid", padding: Padding = 0,
                 dilation: Any = 1, return_indices: bool = False, ceil_mode: bool = False,
                 data_format: str = "NCHW") -> None:  # fmt: skip
        only_nchw(data_format)
        super().__init__(kernel_size, stride, pad_mode, padding, dilation, return_indices, ceil_mode)


class MaxPool3d(_MaxPool):
    """The greatest element under a window of three axes. Arguments as ``MaxPool2d``'s."""

    rank = 3


class _AvgPool(_Pool):
    def __init__(self, kernel_size: Any = 1, stride: Any = 1, pad_mode: str = "valid", padding: Padding = 0,
                 ceil_mode: bool = False, count_include_pad: bool = True,
                 divisor_override: int | None = None) -> None:  # fmt: skip
        super().__init__()
        self._prepare(kernel_size, stride, pad_mode, padding, ceil_mode)
        self.count_include_pad, self.divisor_override = count_include_pad, divisor_override

    def construct(self, x: Tensor) -> Tensor:
        """Return the pooled tensor, of shape (N, C, ...) or (C, ...)."""
        return averaged(x, self.kernel_size, self.stride, self.pad_mode, self.padding, self.ceil_mode,
                        self.count_include_pad, self.divisor_override, self.rank)  # fmt: skip


class AvgPool1d(_AvgPool):
    """The mean under a window of one axis. Arguments as ``AvgPool2d``'s, without ``divisor_override``."""

    rank = 1

    def __init__(self, kernel_size: Any = 1, stride: Any = 1, pad_mode: str = "valid", padding: Padding = 0,
                 ceil_mode: bool = False, count_include_pad: bool = True) -> None:  # fmt: skip
        super().__init__(kernel_size, stride, pad_mode, padding, ceil_mode, count_include_pad)


class AvgPool2d(_AvgPool):
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
        only_nchw(data_format)
        super().__init__(kernel_size, stride, pad_mode, padding, ceil_mode, count_include_pad, divisor_override)


class AvgPool3d(_AvgPool):
    """The mean under a window of three axes. Arguments as ``AvgPool2d``'s."""

    rank = 3


LPPool1d, LPPool2d = (
    layer(f"LPPool{rank}d", function, f"The norm of order ``norm_type`` of what is under a window of {axes}.",
          checks={"norm_type": allowed(bool, "give another number")},
          norm_type=..., kernel_size=..., stride=None, ceil_mode=False)
    for rank, function, axes in ((1, pooling.lp_pool1d, "one axis"), (2, pooling.lp_pool2d, "two axes"))
)  # fmt: skip
AdaptiveAvgPool1d = layer(
    "AdaptiveAvgPool1d", pooling.adaptive_avg_pool1d,
    "Means over windows of the last axis, chosen so that the output has ``output_size``.",
    checks={"output_size": positive}, output_size=...,
)  # fmt: skip
AdaptiveMaxPool1d = layer(
    "AdaptiveMaxPool1d", pooling.adaptive_max_pool1d,
    "The greatest elements of windows of the last axis, chosen so that the output has ``output_size``.", "x",
    checks={"output_size": positive}, output_size=...,
)  # fmt: skip

_MEANS = "Means over windows chosen so that the output has ``output_size``; None keeps a dimension."
_GREATEST = "The greatest elements of windows chosen so that the output has ``output_size``; None keeps a dimension."

AdaptiveAvgPool2d = layer("AdaptiveAvgPool2d", adaptive_avg_pool2d, _MEANS, output_size=...)
AdaptiveAvgPool3d = layer("AdaptiveAvgPool3d", pooling.adaptive_avg_pool3d, _MEANS, output_size=...)
AdaptiveMaxPool2d = layer("AdaptiveMaxPool2d", adaptive_max_pool2d, _GREATEST, output_size=..., return_indices=False)
AdaptiveMaxPool3d = layer(
    "AdaptiveMaxPool3d", pooling.adaptive_max_pool3d, _GREATEST, output_size=..., return_indices=False
)

_UNPOOL = """The reverse of MaxPool over {}: zeros, and each element at its index in its channel.

Args:
    kernel_size: The window of the pooling.
    stride: Its stride; by default ``kernel_size``.
    padding: Its padding.
"""

MaxUnpool1d, MaxUnpool2d, MaxUnpool3d = (
    layer(f"MaxUnpool{rank}d", getattr(pooling, f"max_unpool{rank}d"), _UNPOOL.format(axes),
          kernel_size=..., stride=None, padding=0)
    for rank, axes in enumerate(("one axis", "two axes", "three axes"), 1)
)  # fmt: skip

__all__ = names.public(vars(), Cell)
