"""Plain values seen otherwise without moving an element: reshaped, transposed, cut, narrowed to a part."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from opbuild.lowering.operands import Plain, dense_strides


def reshaped(value: Plain, shape: Sequence[int]) -> Plain | None:
    """Return the elements in another shape, or None if their memory does not allow it without a copy."""
    shape = tuple(shape)
    if value.dense:
        return Plain(value.storage, shape, dense_strides(shape), value.offset)
    # numpy knows when strides allow a new shape; the array's memory is never touched.
    array = np.lib.stride_tricks.as_strided(np.zeros(1, np.int8), value.shape, value.strides)
    try:
        array.shape = shape
    except AttributeError:
        return None
    return Plain(value.storage, shape, tuple(array.strides), value.offset)


def dense_as(value: Plain, shape: Sequence[int]) -> Plain:
    """Return a dense value in another shape."""
    shape = tuple(shape)
    return Plain(value.storage, shape, dense_strides(shape), value.offset)


def transposed(value: Plain, order: Sequence[int]) -> Plain:
    """Return the value with its dimensions in another order."""
    return Plain(
        value.storage,
        tuple(value.shape[axis] for axis in order),
        tuple(value.strides[axis] for axis in order),
        value.offset,
    )


def narrowed(value: Plain, axis: int, start: int, count: int, step: int = 1) -> Plain:
    """Return ``count`` elements of one axis from ``start`` on; a negative step goes backwards."""
    shape, strides = list(value.shape), list(value.strides)
    offset = value.offset + (start * strides[axis] if count else 0)
    shape[axis], strides[axis] = count, strides[axis] * step
    return Plain(value.storage, tuple(shape), tuple(strides), offset)


def without(value: Plain, axis: int) -> Plain:
    """Return the value without an axis, at its first element."""
    return Plain(
        value.storage,
        value.shape[:axis] + value.shape[axis + 1 :],
        value.strides[:axis] + value.strides[axis + 1 :],
        value.offset,
    )
