"""Images: patches and blocks, mirrored borders, sampling at points, colors; boxes of detections."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from opbuild.graph.types import Array
from opbuild.mindspore import names
from opbuild.mindspore.arguments import ArgumentValueError, TensorShapeError, integers, of_rank, one_of
from opbuild.mindspore.execution import array_of, cast, emit, on_data
from opbuild.mindspore.ops.arithmetic import abs as absolute
from opbuild.mindspore.ops.arithmetic import (
    add,
    addn,
    clamp,
    div,
    exp,
    floor,
    greater,
    greater_equal,
    less_equal,
    log,
    logical_and,
    maximum,
    minimum,
    mul,
    sub,
    where,
)
from opbuild.mindspore.ops.arithmetic import floor_mod as modulo
from opbuild.mindspore.ops.arithmetic import round as rounded
from opbuild.mindspore.ops.arranging import along
from opbuild.mindspore.ops.declaration import formula, need_tensor, primitive, spelled
from opbuild.mindspore.ops.pooling import interpolate
from opbuild.mindspore.ops.reduction import all as all_of
from opbuild.mindspore.ops.reduction import matmul
from opbuild.mindspore.ops.shaping import (
    broadcast_to,
    cut,
    expand_dims,
    gather,
    gather_elements,
    pad,
    reshaped,
    squeeze,
    stack,
    swapaxes,
    transpose,
    unstack,
)
from opbuild.mindspore.tensor import Tensor

depth_to_space = formula("blocks of channels as larger images: channels of one place are next to each other last",
    lambda x, block_size:
        emit("DepthToSpace", need_tensor(x, "DepthToSpace"), blocksize=block_size, mode="DCR"))  # fmt: skip
space_to_depth = formula("blocks of images as channels",
    lambda x, block_size: emit("SpaceToDepth", need_tensor(x, "SpaceToDepth"), blocksize=block_size))  # fmt: skip


def _pair(value: Any, what: str) -> tuple[int, ...]:
    return integers(value.tolist() if isinstance(value, Tensor) else value, 2, what)


def _windows(
    size: tuple[int, ...], kernel: tuple[int, ...], dilation: tuple[int, ...], stride: tuple[int, ...]
) -> Array:
    """Return, for each place under a window (rows) and each window (columns), the index in the flattened image."""
    axes = []
    for extent, width, gap, step in zip(size, kernel, dilation, stride, strict=True):
        starts = np.arange(0, extent - gap * (width - 1), step)
        axes.append(np.add.outer(np.arange(width) * gap, starts))
    rows, columns = axes
    places = rows[:, None, :, None] * size[1] + columns[None, :, None, :]
    return np.ascontiguousarray(places.reshape(prod(kernel), -1))


def unfold(input: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Tensor:
    """Return the patches under a window as columns, for each sample (N, C * window, windows)."""
    parts = im2col(input, kernel_size, stride, dilation, padding)
    return reshaped(parts, (parts.shape[0], parts.shape[1] * parts.shape[2], parts.shape[3]))


def im2col(input: Any, ksizes: Any, strides: Any = 1, dilations: Any = 1, pads: Any = 0) -> Tensor:
    """Return the patches under a window as columns, for each channel (N, C, window, windows)."""
    kernel, dilated = _pair(ksizes, "the kernel_size"), _pair(dilations, "the dilation")
    border, step = _pair(pads, "the padding"), _pair(strides, "the stride")
    tensor = need_tensor(input, "unfold")
    tensor = pad(tensor, (border[1], border[1], border[0], border[0]))
    batch, channels, height, width = tensor.shape
    places = _windows((height, width), kernel, dilated, step)
    return gather(reshaped(tensor, (batch, channels, height * width)), Tensor.of(places), 2)


def fold(
    input: Any, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Tensor:
    """Return images made of patches, which are columns; where they overlap they are summed."""
    tensor = need_tensor(input, "fold")
    kernel = _pair(kernel_size, "the kernel_size")
    batched = tensor if tensor.ndim == 3 else expand_dims(tensor, 0)
    batch, rows, columns = batched.shape
    parts = reshaped(batched, (batch, rows // prod(kernel), prod(kernel), columns))
    result = _folded(parts, _pair(output_size, "the output_size"), kernel, _pair(dilation, "the dilation"),
                     _pair(padding, "the padding"), _pair(stride, "the stride"))  # fmt: skip
    return result if tensor.ndim == 3 else squeeze(result, 0)


def col2im(input_x: Any, output_size: Any, kernel_size: Any, dilation: Any, padding_value: Any, stride: Any) -> Tensor:
    """Return images made of patches (N, C, window, windows); where they overlap they are summed."""
    given = (output_size, kernel_size, dilation, padding_value, stride)
    pairs = [_pair(each, "an argument of col2im") for each in given]
    return _folded(need_tensor(input_x, "col2im"), *pairs)


def _folded(parts: Tensor, size: tuple[int, ...], kernel: tuple[int, ...], dilation: tuple[int, ...],
            border: tuple[int, ...], stride: tuple[int, ...]) -> Tensor:  # fmt: skip
    height, width = (extent + 2 * more for extent, more in zip(size, border, strict=True))
    places = _windows((height, width), kernel, dilation, stride)
    batch, channels = parts.shape[:2]
    if parts.shape[2:] != places.shape:
        raise TensorShapeError(f"fold of patches {parts.shape[2:]} into images of {size}", f"it needs {places.shape}")
    zeros = Tensor.of(np.zeros((batch, channels, height * width), parts.type.dtype))
    flat = along(zeros, 2, places.reshape(-1).tolist(), reshaped(parts, (batch, channels, places.size)), "add", "fold")
    images = reshaped(flat, (batch, channels, height, width))
    starts, ends = list(border), [more + extent for extent, more in zip(size, border, strict=True)]
    return cut(images, starts, ends, [2, 3], [1, 1])


def mirror_pad(input_x: Any, paddings: Any, mode: str = "REFLECT") -> Tensor:
    """Return the tensor with its elements mirrored at the borders: without (REFLECT) or with the last (SYMMETRIC)."""
    one_of(mode, ("REFLECT", "SYMMETRIC"), "the mode of MirrorPad")
    tensor = need_tensor(input_x, "MirrorPad")
    for axis, (before, after) in enumerate(array_of(paddings)):
        if before or after:
            extent = np.arange(tensor.shape[axis])
            places = np.pad(extent, (before, after), "reflect" if mode == "REFLECT" else "symmetric")
            tensor = gather(tensor, Tensor.of(places), axis)
    return tensor


def padding(x: Any, pad_dim_size: int = 8) -> Tensor:
    """Return the tensor with its last axis, of extent 1, filled up with zeros."""
    tensor = need_tensor(x, "Padding")
    if tensor.shape[-1] != 1:
        raise ArgumentValueError(f"Padding of shape {tensor.shape}", "the last dimension must be 1")
    return pad(tensor, (0, pad_dim_size - 1))


def affine_grid(theta: Any, size: Any, align_corners: bool = False) -> Tensor:
    """Return the points, for ``grid_sample``, that an affine map of each sample takes the places of an image from."""
    matrix = need_tensor(theta, "affine_grid")
    spatial = tuple(size)[2:]
    axes = []
    for extent in spatial:
        line = np.linspace(-1, 1, extent) if extent > 1 else np.zeros(1)
        axes.append(line if align_corners else line * (extent - 1) / extent)
    grids = [*reversed(np.meshgrid(*axes, indexing="ij")), np.ones(spatial)]
    base = np.stack(grids, -1).reshape(1, -1, len(spatial) + 1).astype(matrix.type.dtype)
    points = matmul(Tensor.of(base), swapaxes(matrix, 1, 2))
    return reshaped(points, (matrix.shape[0], *spatial, len(spatial)))


def grid_sample(input: Any, grid: Any, mode: str = "bilinear", padding_mode: str = "zeros",
                align_corners: bool | None = False) -> Tensor:  # fmt: skip
    """Return images sampled at the points of ``grid``, whose last axis holds (x, y) from -1 to 1.

    Args:
        input: Images (N, C, H, W).
        grid: Points (N, height, width, 2).
        mode: ``bilinear`` or ``nearest``.
        padding_mode: What is beyond the image: ``zeros``, ``border`` or ``reflection``.
        align_corners: Whether -1 and 1 are the centres of the outer elements, or their outer borders.
    """
    images, points = need_tensor(input, "grid_sample"), need_tensor(grid, "grid_sample")
    one_of(mode, ("bilinear", "nearest"), "the mode of grid_sample")
    one_of(padding_mode, ("zeros", "border", "reflection"), "the padding_mode of grid_sample")
    for each in (images, points):
        of_rank(each, (4,), "grid_sample")
    height, width = images.shape[2:]
    places = [
        _inside(_pixel(squeeze(cut(points, [index], [index + 1], [3], [1]), 3), extent, bool(align_corners)),
                extent, padding_mode, bool(align_corners))
        for index, extent in enumerate((width, height))
    ]  # fmt: skip
    if mode == "nearest":
        return _picked(images, rounded(places[0]), rounded(places[1]))
    left, top = floor(places[0]), floor(places[1])
    right_share, low_share = sub(places[0], left), sub(places[1], top)
    parts = []
    for dx, share_x in ((0.0, sub(1.0, right_share)), (1.0, right_share)):
        for dy, share_y in ((0.0, sub(1.0, low_share)), (1.0, low_share)):
            parts.append(mul(_picked(images, add(left, dx), add(top, dy)), expand_dims(mul(share_x, share_y), 1)))
    return addn(parts)


def _pixel(points: Tensor, extent: int, corners: bool) -> Tensor:
    if corners:
        return mul(add(points, 1.0), (extent - 1) / 2)
    return sub(mul(add(points, 1.0), extent / 2), 0.5)


def _inside(places: Tensor, extent: int, padding_mode: str, corners: bool) -> Tensor:
    if padding_mode == "zeros":
        return places
    if padding_mode == "reflection":
        low, span = (0.0, extent - 1.0) if corners else (-0.5, float(extent))
        away = absolute(sub(places, low))
        turned = modulo(away, 2 * span) if span else mul(away, 0.0)
        places = add(where(greater(turned, span), sub(2 * span, turned), turned), low)
    return clamp(places, 0.0, extent - 1.0)


def _picked(images: Tensor, columns: Tensor, rows: Tensor) -> Tensor:
    """Return the elements at whole places, 0 beyond the image."""
    batch, channels, height, width = images.shape
    there = logical_and(*(logical_and(greater_equal(places, 0), less_equal(places, extent - 1))
                          for places, extent in ((columns, width), (rows, height))))  # fmt: skip
    column, row = clamp(columns, 0.0, width - 1.0), clamp(rows, 0.0, height - 1.0)
    flat = cast(add(mul(row, float(width)), column), "int64")
    index = reshaped(flat, (batch, 1, flat.size // batch))
    pixels = reshaped(images, (batch, channels, height * width))
    found = gather_elements(pixels, 2, broadcast_to(index, (batch, channels, index.shape[2])))
    picked = reshaped(found, (batch, channels, *columns.shape[1:]))
    return mul(picked, expand_dims(cast(there, images.type.dtype), 1))


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
    """Return blocks of images as channels: the inverse of ``pixel_shuffle``."""
    tensor = need_tensor(input, "pixel_unshuffle")
    *front, channels, height, width = tensor.shape
    factor, n = downscale_factor, len(front)
    parts = reshaped(tensor, (*front, channels, height // factor, factor, width // factor, factor))
    moved = transpose(parts, (*np.arange(n + 1).tolist(), n + 2, n + 4, n + 1, n + 3))
    return reshaped(moved, (*front, channels * factor**2, height // factor, width // factor))


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
    shape = (batch, *kept[1:], *(e * b for e, b in zip(spatial, blocks, strict=True)))
    whole = reshaped(transpose(parts, order), shape)
    axes = list(np.arange(len(kept), whole.ndim).tolist())
    ends = [whole.shape[axis] - crop[1] for axis, crop in zip(axes, crops, strict=True)]
    return cut(whole, [crop[0] for crop in crops], ends, axes, [1] * rank)


def iou(anchor_boxes: Any, gt_boxes: Any, mode: str = "iou") -> Tensor:
    """Return the overlap of each box of ``gt_boxes`` (rows) with each of ``anchor_boxes``.

    Boxes are (x0, y0, x1, y1). It is divided by the union, or with mode ``iof`` by the area of the box of ``gt_boxes``.
    """
    one_of(mode, ("iou", "iof"), "the mode of iou")
    first = [expand_dims(item, 0) for item in unstack(need_tensor(anchor_boxes, "iou"), 1)]
    second = [expand_dims(item, 1) for item in unstack(need_tensor(gt_boxes, "iou"), 1)]
    width = sub(minimum(first[2], second[2]), maximum(first[0], second[0]))
    height = sub(minimum(first[3], second[3]), maximum(first[1], second[1]))
    common = mul(maximum(add(width, 1.0), 0.0), maximum(add(height, 1.0), 0.0))
    areas = [mul(add(sub(each[2], each[0]), 1.0), add(sub(each[3], each[1]), 1.0)) for each in (first, second)]
    return div(common, sub(add(*areas), common) if mode == "iou" else areas[1])


def _centred(boxes: Tensor) -> list[Tensor]:
    left, top, right, bottom = unstack(boxes, 1)
    return [
        mul(add(left, right), 0.5), mul(add(top, bottom), 0.5), add(sub(right, left), 1.0), add(sub(bottom, top), 1.0),
    ]  # fmt: skip


def bounding_box_encode(anchor_box: Any, groundtruth_box: Any, means: Any = (0.0, 0.0, 0.0, 0.0),
                        stds: Any = (1.0, 1.0, 1.0, 1.0)) -> Tensor:  # fmt: skip
    """Return the differences of boxes from anchors: moves as shares of the size, and logarithms of sizes' quotients."""
    anchor, box = _centred(need_tensor(anchor_box, "encode")), _centred(need_tensor(groundtruth_box, "encode"))
    parts = [div(sub(box[k], anchor[k]), anchor[k + 2]) for k in (0, 1)]
    parts += [log(div(box[k], anchor[k])) for k in (2, 3)]
    return stack([div(sub(part, mean), std) for part, mean, std in zip(parts, means, stds, strict=True)], 1)


def bounding_box_decode(anchor_box: Any, deltas: Any, max_shape: Any, means: Any = (0.0, 0.0, 0.0, 0.0),
                        stds: Any = (1.0, 1.0, 1.0, 1.0), wh_ratio_clip: float = 0.016) -> Tensor:  # fmt: skip
    """Return the boxes that ``bounding_box_encode`` describes, inside an image of ``max_shape``."""
    parts = unstack(need_tensor(deltas, "decode"), 1)
    moves = [add(mul(part, std), mean) for part, mean, std in zip(parts, means, stds, strict=True)]
    anchor = _centred(need_tensor(anchor_box, "decode"))
    most = float(abs(np.log(wh_ratio_clip)))
    sizes = [mul(anchor[k], exp(clamp(moves[k], -most, most))) for k in (2, 3)]
    centres = [add(anchor[k], mul(anchor[k + 2], moves[k])) for k in (0, 1)]
    limits = (float(max_shape[1]), float(max_shape[0]))
    low = [clamp(add(sub(centres[k], mul(sizes[k], 0.5)), 0.5), 0.0, limits[k]) for k in (0, 1)]
    high = [clamp(sub(add(centres[k], mul(sizes[k], 0.5)), 0.5), 0.0, limits[k]) for k in (0, 1)]
    return stack([*low, *high], 1)


def check_valid(bboxes: Any, img_metas: Any) -> Tensor:
    """Return whether boxes are inside an image of which height, width and scale are given."""
    height, width, scale = (float(item) for item in need_tensor(img_metas, "check_valid").asnumpy().tolist())
    boxes = need_tensor(bboxes, "check_valid")
    most = Tensor(np.array([width * scale, height * scale] * 2) - 1, boxes.dtype)
    return logical_and(all_of(greater_equal(boxes, 0), 1), all_of(less_equal(boxes, most), 1))


@on_data
def nms_with_mask(bboxes: Any, iou_threshold: float = 0.5) -> Any:
    """Return boxes in the order of their scores, their places in it, and which no better one overlaps."""
    order = np.argsort(-bboxes[:, 4], kind="stable")
    boxes = bboxes[order]
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    kept = np.ones(len(boxes), bool)
    for k in range(len(boxes)):
        if kept[k]:
            low = np.maximum(boxes[k, :2], boxes[k + 1 :, :2])
            size = np.maximum(np.minimum(boxes[k, 2:4], boxes[k + 1 :, 2:4]) - low, 0)
            common = size.prod(-1)
            kept[k + 1 :] &= common / (area[k] + area[k + 1 :] - common) <= iou_threshold
    return boxes, np.arange(len(boxes), dtype=np.int32), kept


def _channels(images: Any, name: str) -> list[Array]:
    if images.ndim < 1 or images.shape[-1] != 3:
        raise TensorShapeError(f"{name} of shape {images.shape}", "the last axis must have 3 elements")
    return [images[..., index] for index in range(3)]


@on_data
def _rgb_to_hsv(images: Any) -> Any:
    """Return hue, saturation and value of red, green and blue, all from 0 to 1."""
    red, green, blue = _channels(images, "RGBToHSV")
    value, span = images.max(-1), np.ptp(images, -1)
    safe = np.where(span > 0, span, 1)
    sector = np.where(red == value, (green - blue) / safe,
                      np.where(green == value, 2 + (blue - red) / safe, 4 + (red - green) / safe))  # fmt: skip
    hue = np.where(span > 0, sector / 6 % 1, 0)
    saturation = np.where(value > 0, span / np.where(value > 0, value, 1), 0)
    return np.stack([hue, saturation, value], -1).astype(images.dtype)


@on_data
def _hsv_to_rgb(images: Any) -> Any:
    """Return red, green and blue of hue, saturation and value, all from 0 to 1."""
    hue, saturation, value = _channels(images, "HSVToRGB")
    shares = [np.clip(shift + sign * np.abs(hue * 6 - middle), 0, 1)
              for shift, sign, middle in ((-1, 1, 3), (2, -1, 2), (2, -1, 4))]  # fmt: skip
    return np.stack([value * (1 - saturation * (1 - share)) for share in shares], -1).astype(images.dtype)


upsample = spelled(interpolate)
RGBToHSV, HSVToRGB = primitive(_rgb_to_hsv), primitive(_hsv_to_rgb)

names.export(vars(), but="depth_to_space im2col nms_with_mask space_to_depth")
