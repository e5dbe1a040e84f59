"""Numbers moved from one arrangement in memory to another: by ``native/opbuild_arrange.c``, or by numpy's shifts."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from opbuild.platform.paths import Path

Array = np.ndarray[tuple[Any, ...], np.dtype[Any]]

_LIBRARY = Path(__file__).parent.parent / "native" / "support" / f"arrange_{platform.machine()}.so"


def arrange(source: Array, out: Array, factors: Array | None = None) -> None:
    """Copy an array to places of another one; other threads run meanwhile.

    The loops over the dimensions are nested as these are given, wherever their elements lie: those that share cache
    lines, in either array, belong in the inner loops.

    Args:
        source: What is copied, ``float32``; need not be aligned.
        out: A view, of any strides, of the same shape and type.
        factors: What it is multiplied by, ``float64``, of a shape that broadcasts to the source's: each product is
            rounded to float64, then to float32.

    Raises:
        ValueError: If the arrays do not fit each other.
    """
    steps = (0,) * source.ndim if factors is None else np.broadcast_to(factors, source.shape).strides
    if source.shape != out.shape or {source.dtype, out.dtype} != {np.dtype(np.float32)} or not out.flags.writeable:
        raise ValueError(f"{source.dtype} of shape {source.shape} to {out.dtype} of shape {out.shape}")
    if factors is not None and factors.dtype != np.float64:
        raise ValueError(f"factors of {factors.dtype}")
    library = _library()
    if library is None:
        if factors is None:
            out[...] = source
        else:
            np.multiply(source, factors, out=out, casting="same_kind")
        return
    every = zip(source.shape, source.strides, out.strides, steps, strict=True)
    loops = np.array([loop for loop in every if loop[0] != 1] or [(1, 0, 0, 0)], np.int64)
    places = (source.ctypes.data, out.ctypes.data, None if factors is None else factors.ctypes.data)
    library.opbuild_arrange(loops.ctypes.data, len(loops), *places)


def interleaved(arrays: Sequence[Array]) -> Array:
    """Return arrays of unsigned integers as one, of integers that have one element of each, the first one's lowest.

    In memory an element of one lies beside those of the others. Shifts of whole vectors take a tenth of the time of
    numpy's copies of single bytes.

    Args:
        arrays: One, two, four or eight of equal shapes and types; eight bytes together at most.
    """
    size = arrays[0].itemsize
    joined = arrays[-1].astype(f"u{size * len(arrays)}")
    for each in reversed(arrays[:-1]):
        joined <<= 8 * size
        joined |= each
    return joined


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL | None:
    """Return the compiled loops; None where there are none for the machine, or they cannot be loaded."""
    try:
        library = ctypes.CDLL(str(_LIBRARY))
    except OSError:
        return None
    pointer = ctypes.c_void_p
    library.opbuild_arrange.argtypes = (pointer, ctypes.c_int, pointer, pointer, pointer)
    library.opbuild_arrange.restype = None
    return library
