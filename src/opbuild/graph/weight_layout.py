"""Weights of convolutions in the blocks that kernels read: arrays brought there and back.

Weights ``(co, ci, kh, kw)`` lie as ``(C1 out, C1 in, kh, kw, in, out)``, of blocks of so many channels of both.
"""

from __future__ import annotations

from collections.abc import Callable

from opbuild.graph.types import Array
from opbuild.platform.arrange import arrange

Made = Callable[[tuple[int, ...]], Array]
"""Makes an array of a shape, of float32 and with any contents."""


def in_blocks(weights: Array, block: int, make: Made) -> Array:
    """Return weights in blocks, in an array that a function makes."""
    co, ci, kh, kw = weights.shape
    made = make(block_shape(weights.shape, block))
    places = made.reshape(*made.shape[:2], kh * kw, block, block).transpose(0, 4, 1, 3, 2)
    rows = weights.reshape(co // block, block, ci // block, block, kh * kw)
    arrange(rows.swapaxes(1, 2), places.swapaxes(1, 2))  # a block at a time
    return made


def plain(blocks: Array, make: Made) -> Array:
    """Return weights in blocks as they are read, in an array that a function makes."""
    made = make(plain_shape(blocks.shape))
    outer, inner, kh, kw, ci, co = blocks.shape
    places = made.reshape(outer, co, inner, ci, kh * kw)
    rows = blocks.reshape(outer, inner, kh * kw, ci, co).transpose(0, 4, 1, 3, 2)
    arrange(rows.swapaxes(1, 2), places.swapaxes(1, 2))
    return made


def block_shape(shape: tuple[int, ...], block: int) -> tuple[int, ...]:
    """Return the shape of weights in blocks."""
    co, ci, *kernel = shape
    return (co // block, ci // block, *kernel, block, block)


def plain_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of weights from that of their blocks."""
    outer, inner, *kernel, ci, co = shape
    return (outer * co, inner * ci, *kernel)
