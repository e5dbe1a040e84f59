"""Cells for images: resizing, cropping, patches, comparison."""

from __future__ import annotations

from typing import Any

import numpy as np

from opbuild.graph.types import Array
from opbuild.mindspore import names
from opbuild.mindspore.arguments import ArgumentValueError, TensorShapeError, allowed, one_of, positive
from opbuild.mindspore.execution import cast
from opbuild.mindspore.nn.cell import Cell
from opbuild.mindspore.nn.declaration import cell, layer
from opbuild.mindspore.ops import images
from opbuild.mindspore.ops.arithmetic import add, div, log10, mul, square, sub
from opbuild.mindspore.ops.pooling import conv, interpolate, pads_of
from opbuild.mindspore.ops.reduction import mean
from opbuild.mindspore.ops.shaping import concat, cut, pad
from opbuild.mindspore.tensor import Tensor

_ABOVE_ZERO = allowed(lambda value: value > 0, "give a number above 0")

Upsample = layer(
    "Upsample", interpolate, "A tensor resized to ``size`` or by ``scale_factor``: ``ops.interpolate``.", "x",
    size=None, scale_factor=None, mode="nearest", align_corners=None, recompute_scale_factor=None,
)  # fmt: skip
PixelShuffle = layer(
    "PixelShuffle", images.pixel_shuffle, "A tensor of shape (..., C * r**2, H, W) as (..., C, H * r, W * r).",
    checks={"upscale_factor": positive}, upscale_factor=...,
)  # fmt: skip
PixelUnshuffle = layer(
    "PixelUnshuffle", images.pixel_unshuffle, "A tensor of shape (..., C, H * r, W * r) as (..., C * r**2, H, W).",
    checks={"downscale_factor": positive}, downscale_factor=...,
)  # fmt: skip
ChannelShuffle = layer("ChannelShuffle", images.channel_shuffle,
                       "Channels in the order of their places in ``groups``.",
                       checks={"groups": positive}, groups=...)  # fmt: skip


@cell(checks={"central_fraction": allowed(lambda share: 0 < share <= 1, "it is in (0, 1]")})
def CentralCrop(image: Tensor, *, central_fraction: float) -> Tensor:
    """The middle of images of shape (..., H, W): ``central_fraction`` of each extent."""
    if image.ndim not in (3, 4):
        raise TensorShapeError(f"CentralCrop of shape {image.shape}", "it needs 3 or 4 dimensions")
    starts = [int((extent - extent * central_fraction) / 2) for extent in image.shape[-2:]]
    ends = [extent - start for extent, start in zip(image.shape[-2:], starts, strict=True)]
    return cut(image, starts, ends, (image.ndim - 2, image.ndim - 1), (1, 1))


def _along(images: Tensor, axis: int) -> Tensor:
    extent = images.shape[axis]
    later, earlier = (cut(images, [start], [start + extent - 1], [axis], [1]) for start in (1, 0))
    return pad(sub(later, earlier), (0, 0, 0, 1) if axis == 2 else (0, 1))


ImageGradients = layer("ImageGradients", lambda images: (_along(images, 2), _along(images, 3)),
                       "Differences to the next row and to the next column; 0 in the last.")  # fmt: skip


def _of_plane(given: Any, what: str) -> None:
    if len(given) != 4 or given[0] != 1 or given[3] != 1:
        raise ArgumentValueError(f"{what} is {given}", "give [1, rows, columns, 1]")


@cell(
    checks={"ksizes": _of_plane, "strides": _of_plane, "rates": _of_plane,
            "padding": lambda padding, what: one_of(str(padding).lower(), ("valid", "same"), what)},
)  # fmt: skip
def Unfold(input_x: Tensor, *, ksizes: Any, strides: Any, rates: Any, padding: str = "valid") -> Tensor:
    """Patches of images: a tensor of shape (N, C, H, W) as (N, rows * columns * C, H', W').

    Args:
        input_x: The images.
        ksizes: ``[1, rows, columns, 1]`` of a patch.
        strides: ``[1, rows, columns, 1]`` from patch to patch.
        rates: ``[1, rows, columns, 1]`` from element to element of a patch.
        padding: ``valid`` or ``same``.
    """
    kernel, stride, rate = (tuple(each[1:3]) for each in (ksizes, strides, rates))
    top, left, bottom, right = pads_of(padding.lower(), 0, input_x.shape[2:], kernel, stride, rate, "Unfold")
    padded = pad(input_x, (left, right, top, bottom))
    spans = [extent - (size - 1) * gap for extent, size, gap in zip(padded.shape[2:], kernel, rate, strict=True)]
    parts = []
    for row in range(kernel[0]):
        for column in range(kernel[1]):
            start = (row * rate[0], column * rate[1])
            ends = [place + span for place, span in zip(start, spans, strict=True)]
            parts.append(cut(padded, start, ends, (2, 3), stride))
    return concat(parts, 1)


def _scaled(image: Tensor, max_val: float) -> Tensor:
    wide = cast(image, "float32")
    return mul(wide, 1 / max_val) if max_val > 1 else wide


@cell(checks={"max_val": _ABOVE_ZERO})
def PSNR(img1: Tensor, img2: Tensor, *, max_val: float = 1.0) -> Tensor:
    """The peak signal-to-noise ratio of two batches of images of shape (N, C, H, W)."""
    first, second = (_scaled(image, float(max_val)) for image in (img1, img2))
    noise = mean(square(sub(first, second)), (-3, -2, -1))
    return mul(log10(div(min(float(max_val), 1.0) ** 2, noise)), 10.0)


@cell(checks={"max_val": _ABOVE_ZERO, "filter_size": positive, "filter_sigma": _ABOVE_ZERO})
def SSIM(img1: Tensor, img2: Tensor, *, max_val: float = 1.0, filter_size: int = 11, filter_sigma: float = 1.5,
         k1: float = 0.01, k2: float = 0.03) -> Tensor:  # fmt: skip
    """The structural similarity of two batches of images of shape (N, C, H, W).

    Args:
        img1: The first batch.
        img2: The second batch.
        max_val: The greatest value of a pixel.
        filter_size: Extent of the Gaussian window.
        filter_sigma: Its standard deviation.
        k1: Constant of the luminance.
        k2: Constant of the contrast.
    """
    first, second = (_scaled(image, float(max_val)) for image in (img1, img2))
    peak, window = min(float(max_val), 1.0), _window(filter_size, float(filter_sigma))
    c1, c2 = (k1 * peak) ** 2, (k2 * peak) ** 2
    mean1, mean2 = _blurred(first, window), _blurred(second, window)
    product = mul(mean1, mean2)
    squares = add(square(mean1), square(mean2))
    luminance = div(add(mul(product, 2.0), c1), add(squares, c1))
    covariance = sub(_blurred(mul(first, second), window), product)
    variances = sub(_blurred(add(square(first), square(second)), window), squares)
    contrast = div(add(mul(covariance, 2.0), c2), add(variances, c2))
    return mean(mean(mul(luminance, contrast), (2, 3)), -1)


def _window(size: int, sigma: float) -> Array:
    offsets = np.arange(size, dtype=np.float32) - (size - 1) / 2
    exponents = -0.5 * np.square(offsets / sigma)
    weights = np.exp(exponents[:, None] + exponents)
    return np.asarray(weights / weights.sum(), np.float32)


def _blurred(images: Tensor, window: Array) -> Tensor:
    """Return each channel under the window."""
    channels = images.shape[1]
    return conv(images, Tensor.of(np.tile(window, (channels, 1, 1, 1))), groups=channels)


__all__ = names.public(vars(), Cell)
