"""Windows and sequences of numbers: they hold data at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from opbuild.graph.types import Array
from opbuild.mindspore.dtype import to_type
from opbuild.mindspore.ops.arithmetic import need_tensor
from opbuild.mindspore.ops.shaping import ints, roll
from opbuild.mindspore.tensor import Tensor

__all__ = [
    "bartlett_window", "blackman_window", "fftfreq", "fftshift", "hamming_window", "hann_window", "ifftshift",
    "kaiser_window", "logspace", "rfftfreq",
]  # fmt: skip


def _window(function: Any, length: Any, periodic: bool, dtype: Any) -> Tensor:
    count = int(length)
    values: Array = function(count + 1)[:-1] if periodic and count > 1 else function(count)
    return Tensor.of(np.ascontiguousarray(values.astype("float32" if dtype is None else to_type(dtype).name)))


def bartlett_window(window_length: Any, periodic: bool = True, *, dtype: Any = None) -> Tensor:
    """Return a triangle that begins (and ends, if not periodic) with 0."""
    return _window(np.bartlett, window_length, periodic, dtype)


def blackman_window(window_length: Any, periodic: bool = True, *, dtype: Any = None) -> Tensor:
    """Return Blackman's window."""
    return _window(np.blackman, window_length, periodic, dtype)


def hann_window(window_length: Any, periodic: bool = True, *, dtype: Any = None) -> Tensor:
    """Return Hann's window, in float64 by default."""
    return _window(np.hanning, window_length, periodic, dtype or np.float64)


def hamming_window(
    window_length: Any, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, *, dtype: Any = None
) -> Tensor:
    """Return ``alpha - beta * cos`` of one turn."""

    def values(count: int) -> Array:
        turn = 2 * np.pi * np.arange(count) / max(count - 1, 1)
        return np.asarray(alpha - beta * np.cos(turn)) if count > 1 else np.ones(count)

    return _window(values, window_length, periodic, dtype)


def kaiser_window(window_length: Any, periodic: bool = True, beta: float = 12.0, *, dtype: Any = None) -> Tensor:
    """Return Kaiser's window, in float64 by default."""
    return _window(lambda count: np.kaiser(count, beta), window_length, periodic, dtype or np.float64)


def logspace(start: Any, end: Any, steps: int, base: float = 10, *, dtype: Any = None) -> Tensor:
    """Return ``base`` to the power of ``steps`` numbers from ``start`` to ``end``."""
    first, last = (item.item() if isinstance(item, Tensor) else item for item in (start, end))
    name = "float32" if dtype is None else to_type(dtype).name
    return Tensor.of(np.logspace(first, last, steps, base=base).astype(name))


def fftfreq(n: int, d: float = 1.0, dtype: Any = None) -> Tensor:
    """Return the frequencies of a discrete Fourier transform of ``n`` samples ``d`` apart."""
    return Tensor.of(np.fft.fftfreq(n, d).astype("float32" if dtype is None else to_type(dtype).name))


def rfftfreq(n: int, d: float = 1.0, dtype: Any = None) -> Tensor:
    """Return the frequencies of a discrete Fourier transform of ``n`` real samples ``d`` apart."""
    return Tensor.of(np.fft.rfftfreq(n, d).astype("float32" if dtype is None else to_type(dtype).name))


def fftshift(input: Any, dim: Any = None) -> Tensor:
    """Return the tensor with frequency 0 moved to the middle."""
    return _shifted(input, dim, 1)


def ifftshift(input: Any, dim: Any = None) -> Tensor:
    """Return the tensor with the middle moved to the front: what undoes ``fftshift``."""
    return _shifted(input, dim, -1)


def _shifted(value: Any, dim: Any, direction: int) -> Tensor:
    tensor = need_tensor(value, "fftshift")
    axes = tuple(range(tensor.ndim)) if dim is None else ints(dim, "the axes of fftshift")
    shifts = tuple(
        direction * tensor.shape[axis] // 2 if direction > 0 else -(tensor.shape[axis] // 2) for axis in axes
    )
    return roll(tensor, shifts, axes)
