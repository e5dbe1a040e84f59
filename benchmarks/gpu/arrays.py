"""Arrays in a device's memory, surrounded by a pattern that shows what was read or written beside them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Protocol

import numpy as np
from calls import ITEM_BYTES, Call, Tensor
from numpy.lib.stride_tricks import as_strided

Array = np.ndarray[Any, Any]

STORED: dict[str, Any] = {"fp16": np.float16, "bf16": np.uint16, "fp32": np.float32, "i32": np.int32, "i64": np.int64}
"""How numpy holds each element type; of bfloat16 it has the bits."""

PATTERN = 0xFF
"""The byte around and under every array: as a floating-point number NaN."""

GUARD = 512
"""Bytes of the pattern before and behind an array."""

PADDING = 16
"""Elements of the pattern behind each row."""


class Memory(Protocol):
    """What holds arrays and launches calls: a GPU, or what stands for one."""

    def allocate(self, size: int) -> int:
        """Return the address of so many bytes."""

    def free(self, pointer: int) -> None:
        """Give memory back."""

    def write(self, pointer: int, values: Array) -> None:
        """Copy an array to the device."""

    def read(self, pointer: int, values: Array) -> None:
        """Copy from the device into an array."""

    def launch(self, call: Call) -> None:
        """Launch a call."""

    def synchronize(self) -> None:
        """Wait for what was launched."""


def stored(values: Array, element: str) -> Array:
    """Return values as numpy holds an element type, rounded to nearest, ties to even."""
    if element != "bf16":
        return values.astype(STORED[element])
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def numbers(values: Array, element: str) -> Array:
    """Return stored values as float64, or integers as they are."""
    if element == "bf16":
        return (values.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return values if element.startswith("i") else values.astype(np.float64)


class Arrays:
    """Arrays in one device's memory; each is freed when the block that made it ends."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._buffers: dict[int, tuple[int, int]] = {}

    def __enter__(self) -> Arrays:
        return self

    def __exit__(self, *_: object) -> None:
        for pointer, _size in self._buffers.values():
            self._memory.free(pointer)

    def put(self, values: Array, element: str, order: Sequence[int] = ()) -> Tensor:
        """Return values in memory, rounded to the element type; their axes lie there in an order, rows padded."""
        tensor, image = self._placed(values.shape, element, order)
        self._view(image, tensor)[...] = stored(values, element)
        self._memory.write(self._buffers[tensor.pointer][0], image)
        return tensor

    def blank(self, shape: Sequence[int], element: str, order: Sequence[int] = ()) -> Tensor:
        """Return an array that holds the pattern."""
        tensor, image = self._placed(tuple(shape), element, order)
        self._memory.write(self._buffers[tensor.pointer][0], image)
        return tensor

    def get(self, tensor: Tensor) -> tuple[Array, int]:
        """Return the values of an array, and how many bytes around them are not the pattern any more."""
        pointer, size = self._buffers[tensor.pointer]
        image = np.empty(size, np.uint8)
        self._memory.read(pointer, image)
        values = self._view(image, tensor).copy()
        self._view(image, tensor)[...] = np.frombuffer(bytes([PATTERN]) * 8, STORED[tensor.element])[0]
        return numbers(values, tensor.element), int(np.count_nonzero(image != PATTERN))

    def _placed(self, shape: tuple[int, ...], element: str, order: Sequence[int]) -> tuple[Tensor, Array]:
        order = tuple(order) or tuple(range(len(shape)))
        strides, stride = [0] * len(shape), 1
        for axis in reversed(order):
            strides[axis] = stride
            # A row gets padding and ends at a multiple of it, so that aligned kernels may read it.
            stride = -(-shape[axis] // PADDING) * PADDING + PADDING if stride == 1 else stride * max(shape[axis], 1)
        size = 2 * GUARD + ITEM_BYTES[element] * max(stride, prod(shape))
        buffer = self._memory.allocate(size)
        tensor = Tensor(buffer + GUARD, shape, element, tuple(strides))
        self._buffers[tensor.pointer] = (buffer, size)
        return tensor, np.full(size, PATTERN, np.uint8)

    def _view(self, image: Array, tensor: Tensor) -> Array:
        inner = image[GUARD : len(image) - GUARD].view(STORED[tensor.element])
        return as_strided(inner, tensor.shape, [stride * tensor.item for stride in tensor.strides])
