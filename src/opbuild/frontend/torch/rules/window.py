"""Convolutions and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from opbuild.frontend.torch.promotion import category
from opbuild.frontend.torch.registry import rule
from opbuild.frontend.torch.rules.resizing import pooled
from opbuild.frontend.torch.writing import StepBuilder, Value
from opbuild.graph.extents import is_open


def spread(values: Any, count: int) -> tuple[int, ...]:
    """Return a number for each spatial dimension, where one may stand for all."""
    listed = (values,) if isinstance(values, int) else tuple(values)
    return listed * count if len(listed) == 1 else listed


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
    if len(x.shape) != len(weight.shape):
        of.refuse("an image without a batch")
    if category(x.dtype) < 2:
        of.refuse("convolutions of integers")
    attrs: dict[str, Any] = {
        "kernel_shape": weight.shape[2:],
        "strides": spread(strides, count),
        "pads": spread(padding, count) * 2,
        "dilations": spread(dilations, count),
        "group": groups,
    }
    kind = of.step.types[0]
    if kind is not None and 0 in kind.shape:
        of.refuse("an empty result")
    if transposed:
        attrs["output_padding"] = spread(output_padding, count)
    return of("ConvTranspose" if transposed else "Conv", x, weight, bias, **attrs)


@rule("max_pool2d_with_indices.default", "max_pool3d_with_indices.default")
def max_pool(
    of: StepBuilder, x: Value, kernel: Any, strides: Any = (), padding: Any = 0, dilations: Any = 1, ceil: bool = False
) -> tuple[Value, Value | None]:
    """The greatest element of each window, and where it stands in its image if that is asked for."""
    count = 3 if "3d" in of.step.target else 2
    if len(x.shape) != count + 2:
        of.refuse("an image without a batch")
    if category(x.dtype) < 2:
        of.refuse("pooling of integers")
    kernel = spread(kernel, count)
    attrs: dict[str, Any] = {
        "kernel_shape": kernel,
        "strides": spread(strides, count) if strides else kernel,
        "pads": spread(padding, count) * 2,
        "dilations": spread(dilations, count),
        "ceil_mode": int(ceil),
    }
    if not of.is_read(1):
        return of("MaxPool", x, **attrs), None
    found, places = of.several("MaxPool", 2, x, **attrs)
    size = prod(x.shape[2:])
    if is_open([size]):
        of.refuse("where elements stand in images of open sizes")
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
    count = int(of.step.target.split("avg_pool")[1][0])
    if len(x.shape) != count + 2:
        of.refuse("an image without a batch")
    if category(x.dtype) < 2 or divisor is not None:
        of.refuse("another divisor, or integers")
    kernel = spread(kernel, count)
    return of(
        "AveragePool",
        x,
        kernel_shape=kernel,
        strides=spread(strides, count) if strides else kernel,
        pads=spread(padding, count) * 2,
        ceil_mode=int(ceil),
        count_include_pad=int(count_padding),
    )


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
