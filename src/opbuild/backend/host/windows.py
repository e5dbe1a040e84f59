"""Windows over any number of spatial dimensions, in numpy: the shared part of convolutions and pools."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np

from opbuild.graph.shape_rules import ShapeCall
from opbuild.graph.shape_rules_window import slide, window_pads
from opbuild.graph.types import Array, Node, TensorType
from opbuild.platform.records import dataclass, replace


@dataclass(frozen=True)
class HostWindow:
    """A sliding window; each tuple has one number for each spatial dimension, outermost first.

    Attributes:
        kernel: Taps.
        strides: Input positions from one output to the next.
        dilations: Input positions from one tap to the next.
        before: Padding before the first position; negative where positions are left out.
        after: Padding after the last position.
        size: Extents of the input.
        out: Extents of the output.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    size: tuple[int, ...]
    out: tuple[int, ...]

    @property
    def span(self) -> tuple[int, ...]:
        """Positions from the first tap of the first output to the last tap of the last output."""
        return tuple(
            (out - 1) * stride + (taps - 1) * dilation + 1 if out else 0
            for out, stride, taps, dilation in zip(self.out, self.strides, self.kernel, self.dilations, strict=True)
        )

    def taps(self, x: Array, fill: Any) -> Array:
        """Return a view of shape ``(N, C, *out, *kernel)``: the element that each tap of each output reads.

        Args:
            x: The input.
            fill: What taps outside the input read.
        """
        padded = _framed(x, tuple(-before for before in self.before), self.span, fill)
        steps = padded.strides[2:]
        strides = (
            *padded.strides[:2],
            *(step * stride for step, stride in zip(steps, self.strides, strict=True)),
            *(step * dilation for step, dilation in zip(steps, self.dilations, strict=True)),
        )
        shape = (*x.shape[:2], *self.out, *self.kernel)
        view: Array = np.lib.stride_tricks.as_strided(padded, shape=shape, strides=strides)
        return view

    def inside(self, padded: bool) -> Array:
        """Return a mask of each output's taps inside the input, or inside its padding, shape ``(*out, *kernel)``."""
        before, extents = self.before, self.size
        if padded:
            extents = tuple(sum(each) for each in zip(before, self.after, extents, strict=True))
            before = (0,) * len(extents)
        taps = replace(self, before=before, size=extents).taps(np.ones((1, 1, *extents), bool), False)
        return taps.reshape(taps.shape[2:])


def window_of(node: Node, x: Array, kernel: Sequence[int]) -> HostWindow:
    """Return the window of a convolution or pooling node over an input of shape ``(N, C, ...)``."""
    call = ShapeCall(node, [TensorType(str(x.dtype), x.shape)], [None])
    kernel, size = tuple(int(taps) for taps in kernel), x.shape[2:]
    pads = window_pads(call, size, kernel)
    strides, dilations = (tuple(node.attrs.get(name) or (1,) * len(size)) for name in ("strides", "dilations"))
    count = len(size)
    return HostWindow(kernel, strides, dilations, pads[:count], pads[count:], size, slide(call, size, kernel))


def _framed(x: Array, start: Sequence[int], extents: Sequence[int], fill: Any) -> Array:
    """Return the positions from ``start`` on of each spatial dimension; those outside ``x`` hold ``fill``."""
    found = np.full((*x.shape[:2], *extents), fill, x.dtype)
    source, target = [slice(None)] * 2, [slice(None)] * 2
    for first, extent, size in zip(start, extents, x.shape[2:], strict=True):
        low, high = max(first, 0), min(first + extent, size)
        source.append(slice(low, max(high, low)))
        target.append(slice(low - first, max(high, low) - first))
    found[tuple(target)] = x[tuple(source)]
    return found


def convolve(x: Array, weights: Array, groups: int, window: HostWindow) -> Array:
    """Return a convolution in the operands' element type.

    Args:
        x: Shape ``(N, C, ...)``.
        weights: Shape ``(M, C / groups, *kernel)``.
        groups: Into how many groups the channels divide.
        window: The geometry.
    """
    images, channels = x.shape[:2]
    outs, positions = weights.shape[0], prod(window.out)
    taps = window.taps(x, 0)
    columns = weights.reshape(groups, outs // groups, channels // groups, prod(window.kernel)).transpose(3, 0, 1, 2)
    found = np.zeros((images, groups, outs // groups, positions), x.dtype)
    for column, tap in zip(columns, product(*map(range, window.kernel)), strict=True):
        place: list[Any] = [..., *tap]
        read = taps[tuple(place)].reshape(images, groups, channels // groups, positions)
        found += np.matmul(column, read)
    return found.reshape(images, outs, *window.out)


def weight_gradient(x: Array, dy: Array, groups: int, window: HostWindow) -> Array:
    """Return the gradient of a convolution's weights, ``(M, C / groups, *kernel)``, in the operands' element type.

    Args:
        x: Its data, ``(N, C, ...)``.
        dy: The gradient of its output, ``(N, M, ...)``.
        groups: Into how many groups the channels divide.
        window: The geometry; its outputs are the positions of ``dy``.
    """
    images, outs, inner, positions = x.shape[0], dy.shape[1], x.shape[1] // groups, prod(window.out)
    taps, rows = window.taps(x, 0), dy.reshape(images, groups, -1, positions)
    found = np.zeros((outs, inner, *window.kernel), x.dtype)
    for tap in product(*map(range, window.kernel)):
        place: list[Any] = [..., *tap]
        read = taps[tuple(place)].reshape(images, groups, inner, positions)
        found[tuple(place)] = np.matmul(rows, read.transpose(0, 1, 3, 2)).sum(0).reshape(outs, inner)
    return found


def convolve_transposed(
    x: Array,
    weights: Array,
    groups: int,
    strides: Sequence[int],
    dilations: Sequence[int],
    start: Sequence[int],
    out: Sequence[int],
) -> Array:
    """Return a transposed convolution in the operands' element type.

    Args:
        x: Shape ``(N, C, ...)``.
        weights: Shape ``(C, M / groups, *kernel)``.
        groups: Into how many groups the channels divide.
        strides: Output positions from one input to the next.
        dilations: Output positions from one tap to the next.
        start: Position of the whole result at which the output begins; may be negative.
        out: Extents of the output.
    """
    images, channels, *size = x.shape
    _, outs, *kernel = weights.shape
    whole = [
        max((extent - 1) * stride + (taps - 1) * dilation + 1, 0)
        for extent, stride, taps, dilation in zip(size, strides, kernel, dilations, strict=True)
    ]
    result = np.zeros((images, groups * outs, *whole), x.dtype)
    points = x.reshape(images, groups, channels // groups, prod(size))
    factors = weights.reshape(groups, channels // groups, outs, prod(kernel)).transpose(3, 0, 2, 1)
    for factor, tap in zip(factors, product(*map(range, kernel)), strict=True):
        places: list[Any] = [slice(None)] * 2
        for index, dilation, extent, stride in zip(tap, dilations, size, strides, strict=True):
            places.append(slice(index * dilation, index * dilation + (extent - 1) * stride + 1, stride))
        result[tuple(places)] += np.matmul(factor, points).reshape(images, groups * outs, *size)
    return _framed(result, start, out, 0)
