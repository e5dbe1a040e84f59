"""Boxes of detections (overlaps, encodings, suppression), and colors of images."""

from __future__ import annotations

from typing import Any

import numpy as np

from opbuild.graph.types import Array
from opbuild.mindspore.arguments import TensorShapeError, one_of
from opbuild.mindspore.host import on_data
from opbuild.mindspore.ops.arithmetic import add, clamp, div, exp, log, maximum, minimum, mul, sub
from opbuild.mindspore.ops.comparison import greater_equal, less_equal, logical_and
from opbuild.mindspore.ops.declaration import need_tensor
from opbuild.mindspore.ops.primitive import primitive
from opbuild.mindspore.ops.reduction import all as all_of
from opbuild.mindspore.ops.shaping import expand_dims, stack, unstack
from opbuild.mindspore.tensor import Tensor

__all__ = ["HSVToRGB", "RGBToHSV", "bounding_box_decode", "bounding_box_encode", "check_valid", "iou"]


def iou(anchor_boxes: Any, gt_boxes: Any, mode: str = "iou") -> Tensor:
    """Return the overlap of each box of ``gt_boxes`` (rows) with each of ``anchor_boxes``.

    Args:
        anchor_boxes: Boxes (x0, y0, x1, y1).
        gt_boxes: Boxes.
        mode: ``iou``: divided by the union; ``iof``: by the area of the box of ``gt_boxes``.
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
    """Return how boxes differ from anchors: moves as shares of the size, and logarithms of the sizes' quotients."""
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


RGBToHSV, HSVToRGB = primitive("RGBToHSV", _rgb_to_hsv), primitive("HSVToRGB", _hsv_to_rgb)
