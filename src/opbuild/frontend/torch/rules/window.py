"""Convolutions, pooling, and images in other sizes: interpolation, sampling, pads."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from opbuild.frontend.torch.builder import RULES, StepBuilder, Value, category, rule
from opbuild.frontend.torch.rules.movement import slice_
from opbuild.graph.extents import is_open
from opbuild.graph.tables import resized
from opbuild.graph.types import Array, Node

_SPATIAL = re.compile(r"(\d)d")

_MOST_WINDOWS = 32
"""Windows of a dimension that are written one by one."""


def _nearest_rule(of: StepBuilder, x: Value, sizes: Any, factors: Sequence[float | None]) -> Value:
    space, wanted = x.shape[2:], _extents(x, sizes, factors)
    if is_open((*space, *wanted)):
        if not factors or any(factor is None or factor != int(factor) for factor in factors):
            of.refuse("sizes that are open, by a factor that is not whole")
        return _resized(of, x, sizes, factors, "nearest", "asymmetric", nearest_mode="floor")
    axes = list(zip(space, wanted, factors or (None,) * len(space), strict=True))
    by_factors = bool(factors) and all(factors)
    picked = [_picked_elements(*axis, is_image=len(space) == 2) for axis in axes]
    if all(map(np.array_equal, picked, (_picked_by_onnx(*axis, by_factors) for axis in axes))):
        return _resized(of, x, sizes, factors, "nearest", "asymmetric", nearest_mode="floor")
    for axis, places in enumerate(picked, 2):
        x = of("Gather", x, of.constant(places, "int64"), axis=axis)
    return x


def _picked_elements(extent: int, wanted: int, factor: float | None, *, is_image: bool) -> Array:
    """Return the elements that torch picks: it multiplies by the reciprocal of a factor, in float32.

    Of images it picks all, or each twice, where that gives as many, whatever the factor.
    """
    if is_image and wanted in (extent, 2 * extent):
        return np.arange(wanted) * extent // wanted
    step = np.float32(1 / factor) if factor else np.float32(extent) / np.float32(wanted)
    return np.asarray(np.minimum(np.floor(np.arange(wanted, dtype=np.float32) * step), extent - 1))


def _picked_by_onnx(extent: int, wanted: int, factor: float | None, by_factors: bool) -> Array:
    """Return the elements that a Resize picks, given factors or sizes."""
    ratio = float(np.float32(factor)).as_integer_ratio() if by_factors and factor else (wanted, extent)
    return resized(("nearest", "asymmetric", "floor", 0.0, False, False), extent, wanted, *ratio)[0][:, 0]


def _smooth(of: StepBuilder, x: Value, sizes: Any, corners: bool, factors: Sequence[float | None]) -> Value:
    mode = "linear" if "bilinear" in of.step.target else "cubic"
    wanted = _extents(x, sizes, factors)
    if corners:  # the size of the result counts, which a factor gives rounded down
        return _resized(of, x, wanted, (), mode, "align_corners", cubic_coeff_a=-0.75)
    if mode == "linear" and factors and not is_open((*x.shape, *wanted)):  # what keeps its extent stays as it is
        factors = [1.0 if own == new else each for own, new, each in zip(x.shape[2:], wanted, factors, strict=True)]
    return _resized(of, x, sizes, factors, mode, "half_pixel", cubic_coeff_a=-0.75)


def _extents(x: Value, sizes: Any, factors: Sequence[float | None]) -> Sequence[Any]:
    """Return the extents of a result, which a factor gives rounded down."""
    return sizes or [int(extent * factor) for extent, factor in zip(x.shape[2:], factors, strict=True) if factor]


def _resized(
    of: StepBuilder, x: Value, sizes: Any, factors: Sequence[float | None], mode: str, transform: str, **attrs: Any
) -> Value:
    attrs |= {"mode": mode, "coordinate_transformation_mode": transform}
    if not factors or not all(factors):
        return of("Resize", x, None, None, of.ints(*x.shape[:2], *sizes), **attrs)
    found = of("Resize", x, None, of.constant([1.0, 1.0, *factors], "float32"), **attrs)
    of.refuse_if(sizes and found.shape[2:] != tuple(sizes), "a factor beside another size")
    return found


def _grid_attributes(mode: int, padding: int, corners: bool) -> dict[str, Any]:
    return {
        "mode": ("linear", "nearest", "cubic")[mode],
        "padding_mode": ("zeros", "border", "reflection")[padding],
        "align_corners": int(corners),
    }


@rule("grid_sampler_2d_backward.default", "grid_sampler_3d_backward.default")
def grid_sampler_backward(
    of: StepBuilder, dy: Value, x: Value, grid: Value, mode: int, padding: int, corners: bool, wanted: Sequence[bool]
) -> tuple[Value | None, ...]:
    """The gradients of the elements, and of the grid."""
    from opbuild.graph.gradients.registry import Backward
    from opbuild.graph.gradients.sampling import grid_sample

    of.refuse_if(is_open((*x.shape, *grid.shape)), "sizes that are open")
    node = Node("GridSample", (x.name, grid.name), ("",), _grid_attributes(mode, padding, corners), of.name)
    return (*grid_sample(Backward(f"{of.name}/gradient", of.scope, node, (dy,), wanted)), None)[:2]


@rule(*(f"{kind}_pad{rank}d.default" for kind in ("reflection", "replication") for rank in (1, 2, 3)))
def pad(of: StepBuilder, x: Value, pads: Sequence[Any]) -> Value:
    """Elements around that mirror the inner ones, or are those of the border; a negative number takes some away."""
    of.refuse_if(is_open(pads), "pads that are open")
    begins, ends = _sides(x, pads)
    sides = [max(each, 0) for each in (*begins, *ends)]
    x = of("Pad", x, of.ints(*sides), mode=_repetition(of)) if any(sides) else x
    for axis, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        if begin < 0 or end < 0:
            x = slice_(of, x, axis, max(-begin, 0), x.shape[axis] + min(end, 0))
    return x


def _sides(x: Value, pads: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the padding before and behind each dimension; torch counts from the last one."""
    rank, count = len(x.shape), len(pads) // 2
    first, second = (
        (0,) * (rank - count) + tuple(pads[2 * axis + side] for axis in reversed(range(count))) for side in (0, 1)
    )
    return first, second


def _repetition(of: StepBuilder) -> str:
    return "reflect" if "reflection" in of.step.target else "edge"


@rule(*(f"{kind}_pad{rank}d_backward.default" for kind in ("reflection", "replication") for rank in (1, 2, 3)))
def pad_backward(of: StepBuilder, dy: Value, x: Value, pads: Sequence[Any]) -> Value | None:
    """The gradient of padding: elements and those that repeat them add up."""
    from opbuild.graph.gradients.movement import pad
    from opbuild.graph.gradients.registry import Backward

    of.refuse_if(is_open((*x.shape, *pads)), "sizes that are open")
    begins, ends = _sides(x, pads)
    cut = [max(-each, 0) for each in (*begins, *ends)]
    dy = of("Pad", dy, of.ints(*cut)) if any(cut) else dy  # what was taken away behind the padding got nothing
    pads = of.ints(*(max(each, 0) for each in (*begins, *ends)))
    node = Node("Pad", (x.name, pads.name), ("",), {"mode": _repetition(of)}, of.name)
    return pad(Backward(f"{of.name}/gradient", of.scope, node, (dy,), (True, False)))[0]


def pooled(of: StepBuilder, op_type: str, x: Value, sizes: Sequence[Any]) -> Value:
    """Write the reduction of as many windows as are asked for, dimension by dimension."""
    first = len(x.shape) - len(sizes)
    if is_open((*x.shape[first:], *sizes)) or any(size > _MOST_WINDOWS for size in sizes) or 0 in sizes:
        of.refuse("many windows of several sizes, or sizes that are open")
    for axis, size in enumerate(sizes, first):
        extent = x.shape[axis]
        if size == extent:
            continue
        windows = [(place * extent // size, -(-(place + 1) * extent // size)) for place in range(size)]
        at, step = of.ints(axis), of.ints(1)
        parts = [of("Slice", x, of.ints(begin), of.ints(end), at, step) for begin, end in windows]
        reduced = [of(op_type, part, at, keepdims=1) for part in parts]
        x = reduced[0] if len(reduced) == 1 else of("Concat", *reduced, axis=axis)
    return x


def spatial(of: StepBuilder) -> int:
    """Return the number of spatial dimensions that an operator's name tells, such as ``avg_pool2d``."""
    return int(_SPATIAL.findall(of.step.target)[0])


def spread(values: Any, count: int) -> tuple[int, ...]:
    """Return a number for each spatial dimension, where one may stand for all."""
    listed = (values,) if isinstance(values, int) else tuple(values)
    return listed * count if len(listed) == 1 else listed


def _sliding(count: int, kernel: Sequence[Any], strides: Any, padding: Any) -> dict[str, Any]:
    """Return the attributes of a window that slides; without strides windows lie side by side."""
    steps = spread(strides, count) if strides else kernel
    return {"kernel_shape": kernel, "strides": steps, "pads": spread(padding, count) * 2}


@rule("convolution.default")
def convolution(
    of: StepBuilder,
    x: Value,
    weight: Value,
    bias: Value | None,
    strides: Sequence[int],
    padding: Sequence[int],
    dilations: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Value:
    """A convolution, or its transpose."""
    count = len(weight.shape) - 2
    of.refuse_if(len(x.shape) != len(weight.shape), "an image without a batch")
    of.refuse_if(category(x.dtype) < 2, "convolutions of integers")
    attrs = _sliding(count, weight.shape[2:], strides, padding)
    attrs |= {"dilations": spread(dilations, count), "group": groups}
    kind = of.step.types[0]
    of.refuse_if(kind is not None and 0 in kind.shape, "an empty result")
    if transposed:
        attrs["output_padding"] = spread(output_padding, count)
    return of("ConvTranspose" if transposed else "Conv", x, weight, bias, **attrs)


@rule("max_pool2d_with_indices.default", "max_pool3d_with_indices.default")
def max_pool(
    of: StepBuilder, x: Value, kernel: Any, strides: Any = (), padding: Any = 0, dilations: Any = 1, ceil: bool = False
) -> tuple[Value, Value | None]:
    """The greatest element of each window, and where it stands in its image if that is asked for."""
    count = spatial(of)
    of.refuse_if(len(x.shape) != count + 2, "an image without a batch")
    of.refuse_if(category(x.dtype) < 2, "pooling of integers")
    attrs = _sliding(count, spread(kernel, count), strides, padding)
    attrs |= {"dilations": spread(dilations, count), "ceil_mode": int(ceil)}
    if not of.is_read(1):
        return of("MaxPool", x, **attrs), None
    found, places = of.several("MaxPool", 2, x, **attrs)
    size = prod(x.shape[2:])
    of.refuse_if(is_open([size]), "where elements stand in images of open sizes")
    return found, of("Mod", places, of.constant(size, "int64"))


@rule("avg_pool1d.default", "avg_pool2d.default", "avg_pool3d.default")
def avg_pool(
    of: StepBuilder,
    x: Value,
    kernel: Any,
    strides: Any = (),
    padding: Any = 0,
    ceil: bool = False,
    count_padding: bool = True,
    divisor: int | None = None,
) -> Value:
    """The mean of each window."""
    count = spatial(of)
    of.refuse_if(len(x.shape) != count + 2, "an image without a batch")
    of.refuse_if(category(x.dtype) < 2 or divisor is not None, "another divisor, or integers")
    attrs = _sliding(count, spread(kernel, count), strides, padding)
    return of("AveragePool", x, **attrs, ceil_mode=int(ceil), count_include_pad=int(count_padding))


@rule("_adaptive_avg_pool2d.default", "adaptive_avg_pool1d.default", "_adaptive_avg_pool3d.default")
def adaptive_avg_pool(of: StepBuilder, x: Value, sizes: Sequence[Any]) -> Value:
    """Means of as many windows as are asked for."""
    space = x.shape[-len(sizes) :]
    if len(x.shape) != len(sizes) + 2 or any(s == 0 or e % s for e, s in zip(space, sizes, strict=True)):
        return pooled(of, "ReduceMean", x, sizes)
    if all(size == 1 for size in sizes):
        return of("GlobalAveragePool", x)
    kernel = tuple(e // s for e, s in zip(space, sizes, strict=True))
    return of("AveragePool", x, kernel_shape=kernel, strides=kernel)


RULES.register_all(
    {
        "upsample_nearest1d.default upsample_nearest2d.default upsample_nearest3d.default": (
            lambda of, x, sizes, *factors: _nearest_rule(of, x, sizes, factors)
        ),
        "upsample_nearest1d.vec upsample_nearest2d.vec upsample_nearest3d.vec": (
            lambda of, x, sizes, factors: _nearest_rule(of, x, sizes, factors or ())
        ),
        "upsample_bilinear2d.default upsample_bicubic2d.default": (
            lambda of, x, sizes, corners, *factors: _smooth(of, x, sizes, corners, factors)
        ),
        "upsample_bilinear2d.vec upsample_bicubic2d.vec": (
            lambda of, x, sizes, corners, factors: _smooth(of, x, sizes, corners, factors or ())
        ),
        "grid_sampler_2d.default grid_sampler_3d.default": lambda of, x, grid, mode, padding, corners: of(
            "GridSample", x, grid, **_grid_attributes(mode, padding, corners)
        ),
        "adaptive_max_pool2d.default adaptive_max_pool3d.default": (
            lambda of, x, sizes: (pooled(of, "ReduceMax", x, sizes), None)  # where elements stand is not computed
        ),
    },
    domain="aten",
)
