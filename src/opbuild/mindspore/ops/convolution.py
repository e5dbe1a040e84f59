"""Convolutions and transposed convolutions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opbuild.frontend.cell import location
from opbuild.mindspore.arguments import ArgumentValueError, TensorShapeError, one_of
from opbuild.mindspore.execution import emit
from opbuild.mindspore.ops.declaration import formula, need_tensor
from opbuild.mindspore.tensor import Tensor

__all__ = ["conv1d", "conv2d", "conv3d", "conv_transpose2d"]

Padding = int | tuple[int, ...] | list[int]
PAD_MODES = ("valid", "same", "pad")


def only_nchw(data_format: str) -> None:
    """Refuse formats other than channels-first."""
    if data_format not in ("NCHW", "NCDHW"):
        raise ArgumentValueError(
            f"data_format is {data_format!r}", "opbuild takes NCHW; it chooses its own layout inside"
        )


def per_axis(value: Any, rank: int, what: str) -> tuple[int, ...]:
    """Return one positive integer for each spatial axis; of four (MindSpore's NCHW form) the last two count."""
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if len(values) == 1:
        values *= rank
    values = values[-rank:] if len(values) == rank + 2 else values
    if len(values) != rank or not all(isinstance(item, int) and item > 0 for item in values):
        raise ArgumentValueError(f"{what} is {value!r}{location()}", f"give a positive integer or {rank} of them")
    return values


def pads_of(mode: str, padding: Padding, extents: tuple[int, ...], kernel: tuple[int, ...], stride: tuple[int, ...],
            dilation: tuple[int, ...], what: str) -> tuple[int, ...]:  # fmt: skip
    """Return ONNX's pads (all beginnings, then all ends) for MindSpore's ``pad_mode`` and ``padding``.

    Raises:
        ArgumentValueError: If the mode is unknown, or a padding other than 0 is given without mode ``pad``.
    """
    one_of(str(mode).lower(), PAD_MODES, f"the pad_mode of {what}")
    rank = len(kernel)
    if mode.lower() != "pad" and padding not in (0, (0,) * rank, (0,) * 2 * rank, [0] * rank):
        raise ArgumentValueError(f"{what} was given padding={padding} with pad_mode={mode!r}", "use pad_mode='pad'")
    if mode.lower() == "valid":
        return (0,) * 2 * rank
    if mode.lower() == "same":
        totals = [
            max((-(-extent // step) - 1) * step + (size - 1) * gap + 1 - extent, 0)
            for extent, size, step, gap in zip(extents, kernel, stride, dilation, strict=True)
        ]
        return (*(total // 2 for total in totals), *(total - total // 2 for total in totals))
    return _explicit(padding, rank, what)


def _explicit(padding: Padding, rank: int, what: str) -> tuple[int, ...]:
    given = (padding,) if isinstance(padding, int) else tuple(padding)
    if any(not isinstance(item, int) or item < 0 for item in given):
        raise ArgumentValueError(f"the padding of {what} is {padding!r}", "give integers of at least 0")
    if len(given) == 1:
        return given * 2 * rank
    if len(given) == rank:
        return given * 2
    if len(given) == 2 * rank:  # (top, bottom, left, right)
        return (*given[0::2], *given[1::2])
    raise ArgumentValueError(f"the padding of {what} is {padding!r}", f"give 1, {rank} or {2 * rank} integers")


def conv(input: Any, weight: Any, bias: Any = None, stride: Any = 1, pad_mode: str = "valid", padding: Padding = 0,
         dilation: Any = 1, groups: int = 1, rank: int = 2) -> Tensor:  # fmt: skip
    """Return a convolution over ``rank`` spatial axes.

    Args:
        input: Shape (N, C, ...).
        weight: Shape (O, C / groups, ...).
        bias: Shape (O,), or None.
        stride: An integer, or one for each spatial axis.
        pad_mode: ``valid`` (none), ``same`` (as many outputs as inputs / stride) or ``pad`` (as ``padding`` says).
        padding: An integer, or one for each side.
        dilation: An integer, or one for each spatial axis.
        groups: Groups of channels.
        rank: Number of spatial axes.
    """
    tensor, kernel = need_tensor(input, "conv"), need_tensor(weight, "conv")
    what = f"conv{rank}d"
    if tensor.ndim != rank + 2 or kernel.ndim != rank + 2:
        raise TensorShapeError(
            f"{what} of shapes {tensor.shape} and {kernel.shape}{location()}", f"both need {rank + 2} dimensions"
        )
    shape = kernel.shape[2:]
    strides = per_axis(stride, rank, f"the stride of {what}")
    dilations = per_axis(dilation, rank, f"the dilation of {what}")
    pads = pads_of(pad_mode, padding, tensor.shape[2:], shape, strides, dilations, what)
    operands = (tensor, kernel) if bias is None else (tensor, kernel, need_tensor(bias, what))
    return emit("Conv", *operands, kernel_shape=shape, strides=strides, pads=pads, dilations=dilations, group=groups)


def _conv(rank: int, axes: str) -> Callable[..., Tensor]:
    def function(input: Any, weight: Any, bias: Any = None, stride: Any = 1, pad_mode: str = "valid",
                 padding: Padding = 0, dilation: Any = 1, groups: int = 1) -> Tensor:  # fmt: skip
        return conv(input, weight, bias, stride, pad_mode, padding, dilation, groups, rank)

    return formula(f"conv{rank}d", f"a convolution over {axes}; see ``conv``", function)


conv1d, conv2d, conv3d = _conv(1, "one spatial axis"), _conv(2, "two spatial axes"), _conv(3, "three spatial axes")


def conv_transpose(input: Any, weight: Any, bias: Any = None, stride: Any = 1, pad_mode: str = "valid",
                   padding: Padding = 0, output_padding: Any = 0, dilation: Any = 1, groups: int = 1,
                   rank: int = 2) -> Tensor:  # fmt: skip
    """Return a transposed convolution; ``weight`` has the shape (C, O / groups, ...).

    With ``pad_mode`` ``same`` the output has ``stride`` times the input's extents; with ``valid`` none is cut off.
    """
    tensor, kernel = need_tensor(input, "conv_transpose"), need_tensor(weight, "conv_transpose")
    what = f"conv_transpose{rank}d"
    shape = kernel.shape[2:]
    strides = per_axis(stride, rank, f"the stride of {what}")
    dilations = per_axis(dilation, rank, f"the dilation of {what}")
    extra = (output_padding,) * rank if isinstance(output_padding, int) else tuple(output_padding)
    one_of(str(pad_mode).lower(), PAD_MODES, f"the pad_mode of {what}")
    spans = [(size - 1) * gap + 1 - step for size, gap, step in zip(shape, dilations, strides, strict=True)]
    if pad_mode.lower() == "pad":
        pads = _explicit(padding, rank, what)
    else:  # MindSpore's valid mode keeps the stride's gap after the last element, as its same mode does
        totals = [max(span, 0) if pad_mode.lower() == "same" else 0 for span in spans]
        pads = (*(total // 2 for total in totals), *(total - total // 2 for total in totals))
        extra = tuple(max(-span, 0) for span in spans)
    operands = (tensor, kernel) if bias is None else (tensor, kernel, need_tensor(bias, what))
    return emit("ConvTranspose", *operands, kernel_shape=shape, strides=strides, pads=pads, dilations=dilations,
                group=groups, output_padding=extra)  # fmt: skip


def conv_transpose2d(input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Padding = 0,
                     output_padding: Any = 0, groups: int = 1, dilation: Any = 1) -> Tensor:  # fmt: skip
    """Return a transposed convolution over two spatial axes; see ``conv_transpose``."""
    return conv_transpose(input, weight, bias, stride, "pad", padding, output_padding, dilation, groups)
