"""Tables for pools: how many elements each window has, and where they lie."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from opbuild.graph.types import Array
from opbuild.platform.records import NamedTuple

SPATIAL = 3
"""Spatial dimensions that kernels of plain values have; those that a node lacks have one position and one tap."""


class PooledAxis(NamedTuple):
    """One spatial dimension of a pool.

    Attributes:
        size: Positions of the input.
        out: Outputs.
        taps: Taps.
        stride: Positions from one output to the next.
        dilation: Positions from one tap to the next.
        before: Padding before the first position.
        after: Padding behind the last one, as the node says.
    """

    size: int
    out: int
    taps: int
    stride: int
    dilation: int
    before: int
    after: int

    @property
    def span(self) -> int:
        """Positions from the first tap of the first output to the last tap of the last output."""
        return (self.out - 1) * self.stride + (self.taps - 1) * self.dilation + 1

    @property
    def reach(self) -> int:
        """Positions from the first tap of the first output to the last one that is read or there."""
        return max(self.span, self.before + self.size)

    def counts(self, padded: bool) -> Array:
        """Return the number of taps of each output that lie in the input, or in its padding."""
        start = np.arange(self.out)[:, None] * self.stride + np.arange(self.taps) * self.dilation - self.before
        low, high = (-self.before, self.size + self.after) if padded else (0, self.size)
        return np.asarray(((start >= low) & (start < high)).sum(1))


def counts(axes: Sequence[Sequence[Any]], padded: bool, dtype: str) -> Array:
    """Return the number of elements that each output of three dimensions is the average of, 1 where there are none."""
    depth, height, width = (PooledAxis(*axis).counts(padded) for axis in axes)
    return np.asarray(np.maximum(depth[:, None, None] * height[:, None] * width, 1), dtype)


def places(axes: Sequence[Sequence[Any]], columns_first: bool) -> Array:
    """Return the place in its plane of each position that is read, -1 in the padding; int64."""
    known = [PooledAxis(*axis) for axis in axes]
    size = tuple(axis.size for axis in known)
    own = np.arange(prod(size)).reshape(size, order="F" if columns_first else "C")
    whole = np.full(tuple(axis.reach for axis in known), -1, np.int64)
    whole[tuple(slice(axis.before, axis.before + axis.size) for axis in known)] = own
    return whole


def starts(planes: int, plane: int) -> Array:
    """Return the place of each plane's first element; int64."""
    return np.arange(planes) * plane
