"""Tensors that hold data at once: constants, sequences of numbers, windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from opbuild.graph.types import Array
from opbuild.mindspore.dtype import to_type
from opbuild.mindspore.ops.declaration import formula, need_tensor, of_tensor
from opbuild.mindspore.ops.shaping import ints, roll
from opbuild.mindspore.tensor import Tensor

__all__ = [
    "arange", "bartlett_window", "blackman_window", "eye", "fftfreq", "fftshift", "fill", "full", "full_like",
    "hamming_window", "hann_window", "ifftshift", "kaiser_window", "linspace", "logspace", "ones", "ones_like",
    "rfftfreq", "scalar_to_tensor", "tuple_to_array", "zeros", "zeros_like",
]  # fmt: skip

zeros = formula(
    "zeros", "zeros of a shape; float32 by default",
    lambda size, dtype=None: Tensor.of(np.zeros(ints(size, "the shape of zeros"), _name(dtype))),
)  # fmt: skip
ones = formula(
    "ones", "ones of a shape; float32 by default",
    lambda shape, dtype=None: Tensor.of(np.ones(ints(shape, "the shape of ones"), _name(dtype))),
)  # fmt: skip
fill = formula("fill", "one number in every element of a tensor of an element type and shape",
               lambda type, shape, value: full(shape, value, dtype=type))  # fmt: skip
zeros_like = formula("zeros_like", "zeros of the shape (and type) of a tensor",
                     of_tensor(lambda input, *, dtype=None: zeros(input.shape, dtype or input.dtype)))  # fmt: skip
ones_like = formula("ones_like", "ones of the shape (and type) of a tensor",
                    of_tensor(lambda input, *, dtype=None: ones(input.shape, dtype or input.dtype)))  # fmt: skip
full_like = formula(
    "full_like", "one number in every element, in the shape (and type) of a tensor",
    of_tensor(lambda input, fill_value, *, dtype=None: full(input.shape, fill_value, dtype=dtype or input.dtype)),
)  # fmt: skip
eye = formula("eye", "ones on the diagonal of an ``n`` by ``m`` matrix and zeros elsewhere",
              lambda n, m=None, dtype=None: Tensor.of(np.eye(n, m, dtype=_name(dtype))))  # fmt: skip
scalar_to_tensor = formula("scalar_to_tensor", "a tensor without dimensions",
                           lambda input_x, dtype=None: Tensor(input_x, dtype or np.float32))  # fmt: skip


def _name(dtype: Any, default: str = "float32") -> str:
    return default if dtype is None else to_type(dtype).name


def full(size: Any, fill_value: Any, *, dtype: Any = None) -> Tensor:
    """Return one number in every element; integers give int64, floats float32 by default."""
    value = fill_value.item() if isinstance(fill_value, Tensor) else fill_value
    return Tensor.of(np.full(ints(size, "the shape of full"), value, _name(dtype, to_type(type(value)).name)))


def arange(start: Any = 0, end: Any = None, step: Any = 1, *, dtype: Any = None) -> Tensor:
    """Return numbers from ``start`` to below ``end``; int64, or float32 if any is a float."""
    start, end = (0, start) if end is None else (start, end)
    floats = any(isinstance(item, float) for item in (start, end, step))
    return Tensor.of(np.arange(start, end, step).astype(_name(dtype, "float32" if floats else "int64")))


def linspace(start: Any, end: Any, steps: int) -> Tensor:
    """Return ``steps`` numbers (float32) from ``start`` to ``end``, both included."""
    first, last = (item.item() if isinstance(item, Tensor) else item for item in (start, end))
    return Tensor.of(np.linspace(first, last, steps).astype(np.float32))


def tuple_to_array(input_x: Any) -> Tensor:
    """Return a tensor of the numbers in a tuple."""
    return Tensor(np.array(input_x, np.float32 if any(isinstance(item, float) for item in input_x) else np.int32))


def _window(function: Any, length: Any, periodic: bool, dtype: Any) -> Tensor:
    count = int(length)
    values: Array = function(count + 1)[:-1] if periodic and count > 1 else function(count)
    return Tensor.of(np.ascontiguousarray(values.astype(_name(dtype))))


def _window_of(name: str, values: Any, what: str, usual: Any = np.float32) -> Callable[..., Tensor]:
    def function(window_length: Any, periodic: bool = True, *, dtype: Any = None) -> Tensor:
        return _window(values, window_length, periodic, dtype or usual)

    return formula(name, f"{what}", function)


bartlett_window = _window_of(
    "bartlett_window", np.bartlett, "a triangle that begins (and ends, if not periodic) with 0"
)
blackman_window = _window_of("blackman_window", np.blackman, "Blackman's window")
hann_window = _window_of("hann_window", np.hanning, "Hann's window, in float64 by default", np.float64)


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
    return Tensor.of(np.logspace(first, last, steps, base=base).astype(_name(dtype)))


def _frequencies(name: str, samples: str) -> Callable[..., Tensor]:
    def function(n: int, d: float = 1.0, dtype: Any = None) -> Tensor:
        return Tensor.of(getattr(np.fft, name)(n, d).astype(_name(dtype)))

    return formula(name, f"the frequencies of a discrete Fourier transform of ``n`` {samples}", function)


fftfreq, rfftfreq = _frequencies("fftfreq", "samples ``d`` apart"), _frequencies("rfftfreq", "real samples ``d`` apart")


def _shift(name: str, direction: int, what: str) -> Callable[..., Tensor]:
    def function(input: Any, dim: Any = None) -> Tensor:
        tensor = need_tensor(input, name)
        axes = tuple(range(tensor.ndim)) if dim is None else ints(dim, f"the axes of {name}")
        return roll(tensor, tuple(tensor.shape[axis] // 2 * direction for axis in axes), axes)

    return formula(name, f"the tensor with {what}", function)


fftshift = _shift("fftshift", 1, "frequency 0 moved to the middle")
ifftshift = _shift("ifftshift", -1, "the middle moved to the front: what undoes ``fftshift``")
