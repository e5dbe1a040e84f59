"""The argument of a compiled kernel: ``halide_buffer_t`` of HalideRuntime.h, laid out with numpy.

One array holds the headers of all arguments of all calls and another the dimensions they point to, so that a whole
network's arguments are made, copied and moved with a few array operations.
"""

from __future__ import annotations

from ctypes import c_size_t
from functools import cache

import numpy as np

from opbuild.dtypes import ADDED, CODED
from opbuild.graph.types import Array
from opbuild.runtime.record import DimsTable

HEADER = np.dtype(
    [
        ("device", "u8"), ("device_interface", "u8"), ("host", "u8"), ("flags", "u8"),
        ("type_code", "u1"), ("type_bits", "u1"), ("type_lanes", "u2"), ("dimensions", "i4"),
        ("dim", "u8"), ("padding", "u8"),
    ]
)  # fmt: skip
"""``halide_buffer_t``, 56 bytes on 64-bit machines; ``host`` is the address of the element with all indices 0."""
DIMENSION = np.dtype([("min", "i4"), ("extent", "i4"), ("stride", "i4"), ("flags", "u4")])
"""``halide_dimension_t``; the stride counts elements."""
HOST_WORD = 2
"""Position of ``host`` in a header read as 64-bit words."""
HEADER_WORDS = HEADER.itemsize // 8

_CODES = {"i": 0, "u": 1, "b": 1, "f": 2}


def make_headers(dims: DimsTable, shape: Array, types: Array) -> Array:
    """Return the headers of views; ``host`` and ``dim`` count from where their data and all dimensions will lie.

    Args:
        dims: The extents and strides that there are.
        shape: For each view the index of its own.
        types: For each view the code and the bits of its elements, ``[views, 2]``.
    """
    headers = np.zeros(len(shape), HEADER)
    headers["type_code"], headers["type_bits"], headers["type_lanes"] = types[:, 0], types[:, 1], 1
    headers["dimensions"], headers["dim"] = dims.rank[shape], dims.first[shape] * DIMENSION.itemsize
    return headers


@cache
def element_type(dtype: str) -> tuple[int, int]:
    """Return Halide's code and bits for a numpy name; bytes that are codes of numbers are unsigned."""
    if dtype in ADDED:
        return (1, 8) if dtype in CODED else (3, 16)
    kind = np.dtype(dtype)
    return _CODES[kind.kind], 1 if kind.kind == "b" else kind.itemsize * 8


_ELEMENTS = object.__basicsize__
"""Where in an array its elements' address is: behind what all objects begin with, as compiled extensions read it."""

_word_at = c_size_t.from_address


def address_of(array: Array) -> int:
    """Return where a dense array lies: in a sixth of the microsecond that ``array.ctypes`` takes."""
    return _word_at(id(array) + _ELEMENTS).value


_probe = np.zeros(1)
if address_of(_probe) != _probe.ctypes.data:
    raise ImportError("arrays of this numpy do not lie as its C interface says")
