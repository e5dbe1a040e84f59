"""Colors of images whose last axis is red, green and blue, or hue, saturation and value: computed on data."""

from __future__ import annotations

from typing import Any

import numpy as np

from opbuild.graph.types import Array
from opbuild.mindspore.arguments import TensorShapeError
from opbuild.mindspore.host import on_data
from opbuild.mindspore.ops.primitive import primitive

__all__ = ["HSVToRGB", "RGBToHSV"]


def _channels(images: Any, name: str) -> list[Array]:
    if images.ndim < 1 or images.shape[-1] != 3:
        raise TensorShapeError(f"{name} of shape {images.shape}", "the last axis must have 3 elements")
    return [images[..., index] for index in range(3)]


@on_data
def _rgb_to_hsv(images: Any) -> Any:
    """Return hue, saturation and value of red, green and blue, all from 0 to 1."""
    red, green, blue = _channels(images, "RGBToHSV")
    value, span = images.max(-1), np.ptp(images, -1)
    safe = np.where(span > 0, span, 1)
    sector = np.where(red == value, (green - blue) / safe,
                      np.where(green == value, 2 + (blue - red) / safe, 4 + (red - green) / safe))  # fmt: skip
    hue = np.where(span > 0, sector / 6 % 1, 0)
    saturation = np.where(value > 0, span / np.where(value > 0, value, 1), 0)
    return np.stack([hue, saturation, value], -1).astype(images.dtype)


@on_data
def _hsv_to_rgb(images: Any) -> Any:
    """Return red, green and blue of hue, saturation and value, all from 0 to 1."""
    hue, saturation, value = _channels(images, "HSVToRGB")
    shares = [np.clip(shift + sign * np.abs(hue * 6 - middle), 0, 1)
              for shift, sign, middle in ((-1, 1, 3), (2, -1, 2), (2, -1, 4))]  # fmt: skip
    return np.stack([value * (1 - saturation * (1 - share)) for share in shares], -1).astype(images.dtype)


RGBToHSV, HSVToRGB = primitive("RGBToHSV", _rgb_to_hsv), primitive("HSVToRGB", _hsv_to_rgb)
