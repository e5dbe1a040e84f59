"""Backward operators compute torch's gradients: odd shapes, strides, pads, groups, ties, empty tensors."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from opbuild.graph.gradients import movement, reduction, window
from support.gradient_runs import Array, written


def _draw(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


def _torch_gradients(function: Any, dy: Array | None, *arrays: Array) -> list[Array]:
    """Return torch's gradients for each array; ``dy`` is drawn if it is None, and stands first."""
    leaves = [torch.tensor(each, requires_grad=True) for each in arrays]
    y = function(*leaves)
    weights = torch.tensor(_draw(*y.shape, seed=9) if dy is None else dy)
    found = torch.autograd.grad(y, leaves, weights)
    return [weights.numpy(), *(each.numpy() for each in found)]


def _close(found: Array, wanted: Array, tolerance: float = 1e-10) -> None:
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


BY_TYPE = {"float64": 1e-10, "float32": 3e-5}
"""How close gradients in an element type come to torch's in float64; kernels sum some up in float32 only."""


CONVOLUTIONS = {
    "pointwise": ((2, 3, 5, 4), (4, 3, 1, 1), {}),
    "pointwise_strided": ((2, 3, 7, 6), (4, 3, 1, 1), {"stride": 2}),
    "same": ((2, 3, 5, 7), (4, 3, 3, 3), {"padding": 1}),
    "strided": ((1, 2, 8, 7), (3, 2, 3, 3), {"stride": 2, "padding": 1}),
    "wide_stride": ((1, 2, 11, 9), (3, 2, 2, 3), {"stride": (4, 3)}),
    "dilated": ((1, 2, 9, 10), (2, 2, 3, 2), {"dilation": (2, 3), "padding": (2, 1)}),
    "strided_dilated": ((1, 2, 10, 11), (2, 2, 3, 3), {"dilation": 2, "stride": 2, "padding": 1}),
    "groups": ((2, 6, 5, 5), (4, 3, 3, 2), {"groups": 2, "padding": (1, 0)}),
    "depthwise": ((2, 5, 6, 5), (5, 1, 3, 3), {"groups": 5, "padding": 1, "stride": 2}),
    "line": ((2, 3, 9), (4, 3, 3), {"stride": 2, "padding": 1}),
    "volume": ((1, 2, 4, 5, 3), (3, 2, 2, 3, 2), {"padding": (1, 1, 0)}),
    "no_images": ((0, 3, 5, 5), (2, 3, 3, 3), {}),
}


def _per_axis(value: Any, rank: int) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, tuple) else (value,) * rank


def _attributes(rank: int, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1) -> dict[str, Any]:
    return {
        "strides": _per_axis(stride, rank),
        "pads": _per_axis(padding, rank) * 2,
        "dilations": _per_axis(dilation, rank),
        "group": groups,
    }


@pytest.mark.parametrize("dtype", BY_TYPE)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_convolutions_gradients_are_those_of_torch(name: str, dtype: str) -> None:
    """Data, weights and bias, whatever the strides, pads, dilations and groups."""
    data, weights, options = CONVOLUTIONS[name]
    rank = len(data) - 2
    function = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[rank]
    x, w = _draw(*data), _draw(*weights, seed=1)
    dy, dx, dw, db = _torch_gradients(partial(function, **options), None, x, w, _draw(weights[0], seed=2))
    attrs = _attributes(rank, **options)

    def write(of: Any, dy: Any, x: Any, w: Any) -> Any:
        return (
            window.convolution_data(of, dy, w, x.shape, window.TapWindow(**attrs)),
            window.convolution_weight(of, x, dy, w.shape, window.TapWindow(**attrs)),
            window.channel_sums(of, dy),
        )

    given = (each.astype(dtype) for each in (dy, x, w))
    for found, wanted in zip(written(write, *given), (dx, dw, db), strict=True):
        _close(found, wanted, BY_TYPE[dtype])


@pytest.mark.parametrize("options", [{}, {"stride": 2, "padding": 1, "output_padding": 1}, {"groups": 2, "stride": 3}])
@pytest.mark.parametrize("dtype", BY_TYPE)
def test_a_transposed_convolutions_gradients_are_those_of_torch(options: dict[str, Any], dtype: str) -> None:
    """Data and weights."""
    x, w = _draw(2, 4, 5, 3), _draw(4, 3, 3, 2, seed=1)
    dy, dx, dw = _torch_gradients(lambda x, w: F.conv_transpose2d(x, w, **options), None, x, w)
    attrs = _attributes(2, **{key: value for key, value in options.items() if key != "output_padding"})

    def write(of: Any, dy: Any, x: Any, w: Any) -> Any:
        return (
            window.transposed_data(of, dy, w, x.shape, window.TapWindow(**attrs)),
            window.convolution_weight(of, dy, x, w.shape, window.TapWindow(**attrs)),
        )

    given = (each.astype(dtype) for each in (dy, x, w))
    for found, wanted in zip(written(write, *given), (dx, dw), strict=True):
        _close(found, wanted, BY_TYPE[dtype])


@pytest.mark.parametrize("options", [
    {"kernel_size": 2}, {"kernel_size": 3, "stride": 2, "padding": 1}, {"kernel_size": 3, "stride": 1, "dilation": 2},
    {"kernel_size": (3, 2), "stride": (2, 3), "ceil_mode": True},
])  # fmt: skip
def test_a_max_pool_gives_each_window_to_the_first_of_its_greatest(options: dict[str, Any]) -> None:
    """Small integers are full of ties; places counted in planes, as torch has them, or in the whole tensor."""
    x = np.random.default_rng(3).integers(0, 3, (2, 3, 8, 7)).astype(np.float64)
    dy, dx = _torch_gradients(lambda x: F.max_pool2d(x, **options), None, x)
    _, places = F.max_pool2d(torch.tensor(x), return_indices=True, **options)
    planes = places.numpy()
    whole = planes + (np.arange(6) * 56).reshape(2, 3, 1, 1)

    def write(of: Any, dy: Any, planes: Any, whole: Any) -> Any:
        return (
            window.max_pool_data(of, dy, planes, x.shape, 2),
            window.max_pool_data(of, dy, whole, x.shape),
        )

    for found in written(write, dy, planes, whole):
        _close(found, dx)


@pytest.mark.parametrize("options", [
    {"kernel_size": 2}, {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": 3, "stride": 2, "padding": 1, "count_include_pad": False},
    {"kernel_size": (3, 2), "stride": (2, 3), "ceil_mode": True, "count_include_pad": False},
    {"kernel_size": 3, "stride": 1, "divisor_override": 5}, {"kernel_size": 1, "stride": 3},
])  # fmt: skip
def test_an_average_pools_gradient_is_that_of_torch(options: dict[str, Any]) -> None:
    """With padding that counts or not, windows that hang over, gaps between windows, and another divisor."""
    x = _draw(2, 3, 8, 7)
    dy, dx = _torch_gradients(lambda x: F.avg_pool2d(x, **options), None, x)
    kernel = _per_axis(options["kernel_size"], 2)
    steps, pads = _per_axis(options.get("stride", kernel), 2), _per_axis(options.get("padding", 0), 2) * 2
    sliding = window.TapWindow(steps, pads, (1, 1))
    counts, divisor = options.get("count_include_pad", True), options.get("divisor_override")

    def write(of: Any, dy: Any) -> Any:
        return window.average_pool_data(of, dy, x.shape, kernel, sliding, count_include_pad=counts, divisor=divisor)

    _close(written(write, dy)[0], dx)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_the_gradients_of_softmaxes_are_those_of_torch(axis: int) -> None:
    """Along any axis, from what was computed."""
    x = _draw(3, 4, 5)
    for function, backward in (
        (torch.softmax, reduction.softmax_data),
        (torch.log_softmax, reduction.log_softmax_data),
    ):
        dy, dx = _torch_gradients(partial(function, dim=axis), None, x)
        y = function(torch.tensor(x), axis).numpy()
        _close(written(lambda of, dy, y, backward=backward: backward(of, dy, y, axis), dy, y)[0], dx)


def test_a_layer_normalizations_gradients_are_those_of_torch() -> None:
    """Over the last two axes, with scale and bias."""
    x, scale = _draw(3, 2, 4, 5), _draw(4, 5, seed=1)
    wanted = _torch_gradients(lambda x, s, b: F.layer_norm(x, (4, 5), s, b, 1e-3), None, x, scale, _draw(4, 5, seed=2))
    mean = x.mean((2, 3), keepdims=True)
    rstd = 1 / np.sqrt(x.var((2, 3), keepdims=True) + 1e-3)

    def write(of: Any, dy: Any, *values: Any) -> Any:
        return reduction.layer_norm_gradients(of, dy, *values, (2, 3))

    for found, each in zip(written(write, wanted[0], x, scale, mean, rstd), wanted[1:], strict=True):
        _close(found, each)


@pytest.mark.parametrize("training", [True, False])
def test_a_batch_normalizations_gradients_are_those_of_torch(training: bool) -> None:
    """With the statistics of the batch, or with given ones, through which nothing flows."""
    x, scale, mean, variance = _draw(3, 4, 2, 5), _draw(4, seed=1), _draw(4, seed=3), _draw(4, seed=4) ** 2

    def forward(x: Any, s: Any, b: Any) -> Any:
        return F.batch_norm(x, torch.tensor(mean), torch.tensor(variance), s, b, training, 0.1, 1e-3)

    used = (x.mean((0, 2, 3)), x.var((0, 2, 3))) if training else (mean.copy(), variance.copy())
    wanted = _torch_gradients(forward, None, x, scale, _draw(4, seed=2))

    def write(of: Any, dy: Any, *values: Any) -> Any:
        return reduction.batch_norm_gradients(of, dy, *values, training)

    for found, each in zip(
        written(write, wanted[0], x, scale, used[0], 1 / np.sqrt(used[1] + 1e-3)), wanted[1:], strict=True
    ):
        _close(found, each)


def test_a_group_normalizations_gradients_are_those_of_torch() -> None:
    """With a scale a channel."""
    x, scale = _draw(3, 6, 2, 5), _draw(6, seed=1)
    wanted = _torch_gradients(lambda x, s, b: F.group_norm(x, 2, s, b, 1e-3), None, x, scale, _draw(6, seed=2))
    parts = x.reshape(3, 2, -1)

    def write(of: Any, dy: Any, *values: Any) -> Any:
        return reduction.group_norm_gradients(of, dy, *values, 2)

    used = parts.mean(-1), 1 / np.sqrt(parts.var(-1) + 1e-3)
    for found, each in zip(written(write, wanted[0], x, scale, *used), wanted[1:], strict=True):
        _close(found, each)


@pytest.mark.parametrize("padding", [None, 2])
def test_an_embeddings_gradient_adds_up_what_was_looked_up_twice(padding: int | None) -> None:
    """Indices repeat; the padding's row gets nothing."""
    table, indices = _draw(5, 3), np.array([[0, 2, 2, 4], [4, 4, 1, 2]])
    dy, dw = _torch_gradients(lambda w: F.embedding(torch.tensor(indices), w, padding), None, table)
    found = written(lambda of, dy, i: movement.embedding_weight(of, dy, i, 5, padding), dy, indices)
    _close(found[0], dw)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_what_was_picked_along_an_axis_is_added_up(axis: int) -> None:
    """Slices (``Gather``) and single elements (``GatherElements``)."""
    x, places = _draw(3, 4, 5), np.array([0, 2, 0])
    dy, dx = _torch_gradients(lambda x: x.index_select(axis, torch.tensor(places)), None, x)
    _close(written(lambda of, dy, i: movement.index_sum(of, dy, i, x.shape, axis), dy, places)[0], dx)
    single = np.random.default_rng(5).integers(0, 3, (3, 4, 5))
    dy, dx = _torch_gradients(lambda x: x.gather(axis, torch.tensor(single)), None, x)
    _close(written(lambda of, dy, i: movement.elements_sum(of, dy, i, x.shape, axis), dy, single)[0], dx)
