"""The CPU: compiled kernels, their arguments, ``halide_buffer_t`` of HalideRuntime.h laid out with numpy, their calls.

One array holds the headers of all arguments of all calls and another the dimensions they point to, so that a whole
network's arguments are made, copied and moved with a few array operations.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_size_t
from functools import cache
from typing import Any

import numpy as np

from opbuild.dtypes import ADDED, CODED
from opbuild.graph.types import Array
from opbuild.runtime.devices import Callee, KernelCalls, Step
from opbuild.runtime.devices.cpu.library import MOST_OPERANDS
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


class CpuCalls:
    """Calls of kernels and their arguments; see ``devices.Prepared``.

    Args:
        calls: The calls.

    Attributes:
        steps: What is called, in order.
        headers: The arguments of all kernels.
        words: The same, as 64-bit numbers: to write one takes half the time that numpy takes.
    """

    def __init__(self, calls: KernelCalls) -> None:
        self._dims = np.zeros(len(calls.dims.pairs), DIMENSION)
        types = np.array([element_type(dtype) for dtype in calls.dtypes], np.uint8).reshape(-1, 2)
        self.headers = make_headers(calls.dims, calls.shape, types[calls.dtype])
        self.headers["dim"] += np.uint64(self._dims.ctypes.data)
        self.words = self.headers.view(np.uint64).data
        self.steps = kernel_steps(calls.callees, calls.called, calls.ends, self.headers)

    def fill(self, addresses: Array, pairs: Array) -> None:
        """Write the numbers of a size."""
        self._dims["extent"], self._dims["stride"] = pairs.T
        self.headers["host"] = addresses

    def places_of(self, arguments: Array) -> Array:
        """Return where in ``words`` the addresses of arguments stand."""
        return arguments * HEADER_WORDS + HOST_WORD

    def step_of(self, first: int, end: int, function: Any, tasks: int) -> Step:
        """Return what calls a function as a kernel, with the arguments from one on to before another."""
        return function, (tasks, *references(self.headers[first:end], HEADER.itemsize))


def kernel_steps(callees: Sequence[Callee], called: Array, ends: Array, headers: Array) -> list[Step]:
    """Return what runs kernels one after the other: the kernels themselves, or what calls them.

    Args:
        callees: The kernels.
        called: For each call the index of its kernel.
        ends: For each where its arguments end among all headers; those of the next begin there.
        headers: The arguments.
    """
    through = [callee.module.call for callee in callees]
    arguments = references(headers, HEADER.itemsize)
    blocks = _call_blocks(callees, called, ends, headers) if any(through) else [None] * len(called)
    steps: list[Step] = []
    start = 0
    for number, end, block in zip(called.tolist(), ends.tolist(), blocks, strict=True):
        caller = through[number]
        if caller is not None and end - start <= MOST_OPERANDS:
            steps.append((caller, (block,)))
        else:
            function, _, tasks = callees[number]
            steps.append((function, (tasks, *arguments[start:end])))
        start = end
    return steps


def _call_blocks(callees: Sequence[Callee], called: Array, ends: Array, headers: Array) -> list[Any]:
    """Return for each call what ``Library.call`` takes; behind the arguments it has those of the next calls."""
    addresses = [ctypes.cast(callee.function, ctypes.c_void_p).value for callee in callees]
    words = np.empty((len(called), 2 + MOST_OPERANDS), np.uint64)
    words[:, 0] = np.array(addresses, np.uint64)[called]
    words[:, 1] = np.array([callee.tasks for callee in callees], np.uint64)[called]
    own = np.concatenate(([0], ends))[:-1, np.newaxis] + np.arange(MOST_OPERANDS)
    words[:, 2:] = headers.ctypes.data + own * HEADER.itemsize
    return references(words, words.strides[0])


def references(array: Array, nbytes: int) -> list[Any]:
    """Return pointers to each so many bytes of an array, which lives as long as they do."""
    # byref is the cheapest argument there is: 150 ns a call with two of them, c_void_p 200
    if not array.nbytes:
        return []
    memory = ctypes.c_char.from_buffer(array.view(np.uint8).data)  # a type of the array's size would be a cycle
    return [ctypes.byref(memory, place) for place in range(0, array.nbytes, nbytes)]
