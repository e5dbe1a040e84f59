"""Blocks of images as channels or as samples, and back."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from opbuild.mindspore.arguments import integers
from opbuild.mindspore.execution import emit
from opbuild.mindspore.ops.arithmetic import need_tensor
from opbuild.mindspore.ops.shaping import cut, pad, reshaped, swapaxes, transpose
from opbuild.mindspore.tensor import Tensor

__all__ = ["batch_to_space_nd", "channel_shuffle", "pixel_shuffle", "pixel_unshuffle", "space_to_batch_nd"]


def pixel_shuffle(input: Any, upscale_factor: int) -> Tensor:
    """Return blocks of channels as larger images, as ONNX's DepthToSpace of mode CRD."""
    tensor = need_tensor(input, "pixel_shuffle")
    *front, channels, height, width = tensor.shape
    factor = upscale_factor
    parts = reshaped(tensor, (*front, channels // factor**2, factor, factor, height, width))
    n = len(front)
    moved = transpose(parts, (*np.arange(n + 1).tolist(), n + 3, n + 1, n + 4, n + 2))
    return reshaped(moved, (*front, channels // factor**2, height * factor, width * factor))


def pixel_unshuffle(input: Any, downscale_factor: int) -> Tensor:
    """Return blocks of images as channels: what undoes ``pixel_shuffle``."""
    tensor = need_tensor(input, "pixel_unshuffle")
    *front, channels, height, width = tensor.shape
    factor, n = downscale_factor, len(front)
    parts = reshaped(tensor, (*front, channels, height // factor, factor, width // factor, factor))
    moved = transpose(parts, (*np.arange(n + 1).tolist(), n + 2, n + 4, n + 1, n + 3))
    return reshaped(moved, (*front, channels * factor**2, height // factor, width // factor))


def depth_to_space(x: Any, block_size: int) -> Tensor:
    """Return blocks of channels as larger images: channels of one place are next to each other last."""
    return emit("DepthToSpace", need_tensor(x, "DepthToSpace"), blocksize=block_size, mode="DCR")


def space_to_depth(x: Any, block_size: int) -> Tensor:
    """Return blocks of images as channels."""
    return emit("SpaceToDepth", need_tensor(x, "SpaceToDepth"), blocksize=block_size)


def channel_shuffle(x: Any, groups: int) -> Tensor:
    """Return the channels (axis 1) with those of each group apart."""
    tensor = need_tensor(x, "channel_shuffle")
    batch, channels, *rest = tensor.shape
    parts = swapaxes(reshaped(tensor, (batch, groups, channels // groups, *rest)), 1, 2)
    return reshaped(parts, tensor.shape)


def space_to_batch_nd(input_x: Any, block_size: Any, paddings: Any) -> Tensor:
    """Return blocks of the last axes as samples of the batch, after padding with zeros."""
    tensor = need_tensor(input_x, "space_to_batch_nd")
    rank = len(paddings)
    blocks = integers(block_size if isinstance(block_size, int) else tuple(block_size), rank, "block_size")
    tensor = pad(tensor, [amount for pair in reversed(list(paddings)) for amount in pair])
    kept, spatial = tensor.shape[: tensor.ndim - rank], tensor.shape[tensor.ndim - rank :]
    pieces = [part for extent, block in zip(spatial, blocks, strict=True) for part in (extent // block, block)]
    parts = reshaped(tensor, (*kept, *pieces))
    first = len(kept)
    inner, outer = np.arange(first + 1, parts.ndim, 2).tolist(), np.arange(first, parts.ndim, 2).tolist()
    moved = transpose(parts, (*inner, *np.arange(first).tolist(), *outer))
    return reshaped(moved, (prod(blocks) * kept[0], *kept[1:], *(e // b for e, b in zip(spatial, blocks, strict=True))))


def batch_to_space_nd(input_x: Any, block_shape: Any, crops: Any) -> Tensor:
    """Return samples of the batch as blocks of the last axes, without the elements cropped."""
    tensor = need_tensor(input_x, "batch_to_space_nd")
    rank = len(crops)
    blocks = integers(block_shape if isinstance(block_shape, int) else tuple(block_shape), rank, "block_shape")
    kept, spatial = tensor.shape[: tensor.ndim - rank], tensor.shape[tensor.ndim - rank :]
    batch = kept[0] // prod(blocks)
    parts = reshaped(tensor, (*blocks, batch, *kept[1:], *spatial))
    first = rank + len(kept)
    order = [*np.arange(rank, first).tolist()]
    for index in np.arange(rank).tolist():
        order += [first + index, index]
    whole = reshaped(
        transpose(parts, order), (batch, *kept[1:], *(e * b for e, b in zip(spatial, blocks, strict=True)))
    )
    axes = list(np.arange(len(kept), whole.ndim).tolist())
    ends = [whole.shape[axis] - crop[1] for axis, crop in zip(axes, crops, strict=True)]
    return cut(whole, [crop[0] for crop in crops], ends, axes, [1] * rank)
