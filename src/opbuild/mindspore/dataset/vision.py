"""``dataset.vision``: functions of one image for ``map``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from opbuild.graph.types import Array
from opbuild.mindspore import names
from opbuild.mindspore.arguments import ArgumentValueError
from opbuild.mindspore.dtype import to_type

__getattr__ = names.getter(__name__)

__all__ = ["HWC2CHW", "Normalize", "Rescale", "ToTensor"]


class Rescale:
    """``image * rescale + shift`` in float32."""

    def __init__(self, rescale: float, shift: float) -> None:
        self._rescale, self._shift = np.float32(rescale), np.float32(shift)

    def __call__(self, image: Any) -> Array:
        """Return the image."""
        return np.asarray(image, np.float32) * self._rescale + self._shift


class Normalize:
    """Each channel less its mean, over its deviation, in float32."""

    def __init__(self, mean: Sequence[float], std: Sequence[float], is_hwc: bool = True) -> None:
        self._mean, self._std = (np.asarray(each, np.float32) for each in (mean, std))
        self._is_hwc = is_hwc
        if self._mean.shape != self._std.shape or not (self._std > 0).all():
            raise ArgumentValueError(
                f"Normalize with mean={mean}, std={std}", "give a mean and a std above 0 a channel"
            )

    def __call__(self, image: Any) -> Array:
        """Return the image."""
        array = np.asarray(image, np.float32)
        shape = (-1,) if self._is_hwc or array.ndim == 2 else (-1, 1, 1)
        return (array - self._mean.reshape(shape)) / self._std.reshape(shape)


class HWC2CHW:
    """The channels in front."""

    def __call__(self, image: Any) -> Array:
        """Return the image."""
        array = np.asarray(image)
        return array if array.ndim == 2 else np.ascontiguousarray(array.transpose(2, 0, 1))


class ToTensor(HWC2CHW):
    """The channels in front, and numbers from 0 to 255 as numbers from 0 to 1."""

    def __init__(self, output_type: Any = np.float32) -> None:
        self._name = to_type(output_type).name

    def __call__(self, image: Any) -> Array:
        """Return the image."""
        array = np.asarray(image)
        planes = super().__call__(array[..., None] if array.ndim == 2 else array)
        return np.asarray(planes.astype(self._name) / np.asarray(255, self._name))
