"""Checking that a kernel's result does not depend on the order in which its tasks run (debug option ``check_flag``).

A kernel is run as ever, then once more on what its arguments held before, its tasks one after the other, the last one
first. A task that reads what another writes, or writes what another writes too, shows as a difference.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from opbuild.graph.types import Array
from opbuild.program import View
from opbuild.runtime.devices.cpu.library import Library
from opbuild.runtime.devices.device import remember_error

DIFFERS = 1
"""What a call returns if the results differ."""


class OrderCheck:
    """A kernel that checks itself at each call; called as the kernel is, it returns the kernel's status.

    Args:
        library: Whose kernel it is.
        kernel: The kernel.
        headers: The headers of its arguments, of dtype ``HEADER``; their addresses are read at a call.
        views: The views of its arguments.
        itemsizes: Bytes of an element of each.
    """

    def __init__(
        self,
        library: Library,
        kernel: Callable[..., int],
        headers: Array,
        views: Sequence[View],
        itemsizes: Sequence[int],
    ) -> None:
        self._kernel = kernel
        self._library = library
        self._headers = headers
        self._arguments = [_Argument(view, size) for view, size in zip(views, itemsizes, strict=True)]

    def __call__(self, *arguments: Any) -> int:
        """Run the kernel, and run it again to compare; return 0, the kernel's error code, or ``DIFFERS``."""
        if not self._library.has_tasks:
            return self._kernel(*arguments)
        addresses = [int(address) for address in self._headers["host"]]
        before = self._contents(addresses)
        status = self._kernel(*arguments)
        first = self._contents(addresses)
        if status:
            return status
        for argument, address, old, new in zip(self._arguments, addresses, before, first, strict=True):
            if old != new:  # constants may lie in memory that cannot be written
                ctypes.memmove(address + argument.low, old, len(old))
        with self._library.reversed_tasks():
            status = self._kernel(*arguments)
        second = self._contents(addresses)
        return status or self._compare(first, second)

    def _contents(self, addresses: Sequence[int]) -> list[bytes]:
        return [
            ctypes.string_at(address + argument.low, argument.size)
            for argument, address in zip(self._arguments, addresses, strict=True)
        ]

    def _compare(self, first: Sequence[bytes], second: Sequence[bytes]) -> int:
        for number, argument in enumerate(self._arguments):
            if first[number] != second[number]:
                place = argument.first_difference(first[number], second[number])
                remember_error(f"argument {number} depends on the order of the kernel's tasks, first at index {place}")
                return DIFFERS
        return 0


class _Argument:
    """Which bytes around its address a view covers: ``size`` bytes, the first ``low`` bytes beside the address."""

    def __init__(self, view: View, itemsize: int) -> None:
        reaches = [(extent - 1) * stride for extent, stride in view.dims]
        empty = any(extent == 0 for extent, _ in view.dims)
        self.low = sum(min(reach, 0) for reach in reaches) * itemsize
        self.size = 0 if empty else (1 + sum(abs(reach) for reach in reaches)) * itemsize
        self._dims = view.dims
        self._kind = np.dtype(f"u{itemsize}")

    def first_difference(self, one: bytes, other: bytes) -> list[int]:
        """Return the index, outermost dimension first, of the first element that differs."""
        places = np.argwhere(self._window(one) != self._window(other))
        return [int(index) for index in places[0]] if len(places) else []

    def _window(self, content: bytes) -> Array:
        shape = tuple(extent for extent, _ in reversed(self._dims))
        strides = tuple(stride * self._kind.itemsize for _, stride in reversed(self._dims))
        start = np.frombuffer(content, self._kind)[-self.low // self._kind.itemsize :]
        return np.lib.stride_tricks.as_strided(start, shape, strides)
