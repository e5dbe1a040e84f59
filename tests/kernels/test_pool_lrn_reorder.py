"""Pools, global pools, local response normalization, and the way into blocks and out of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernels.harness import check_canaries, guarded, run_desc
from kernels.one_node import assert_close, run_node
from opbuild.families.from_blocked.lowering import from_blocked
from opbuild.families.to_blocked.lowering import to_blocked
from opbuild.program import View
from support.machines import choose_here
from support.tiers import halved


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    """Return normally distributed numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def pool(
    x: np.ndarray,
    kind: str,
    out: tuple[int, int],
    kernel: tuple[int, int],
    strides: tuple[int, int] = (1, 1),
    dilations: tuple[int, int] = (1, 1),
    pads: tuple[int, ...] = (0, 0, 0, 0),
    counted: bool = False,
) -> np.ndarray:
    """Return a pool in float64, window by window, as ONNX defines it."""
    n, c, height, width = x.shape
    result = np.zeros((n, c, *out))
    for oy in range(out[0]):
        for ox in range(out[1]):
            rows = [oy * strides[0] + k * dilations[0] - pads[0] for k in range(kernel[0])]
            columns = [ox * strides[1] + k * dilations[1] - pads[1] for k in range(kernel[1])]
            inside = [(r, q) for r in rows for q in columns if 0 <= r < height and 0 <= q < width]
            values = np.stack([x[:, :, r, q].astype(np.float64) for r, q in inside])
            within = sum(r < height + pads[2] for r in rows) * sum(q < width + pads[3] for q in columns)
            total = within if counted else len(inside)
            result[:, :, oy, ox] = values.max(0) if kind == "MaxPool" else values.sum(0) / total
    return result


@halved
@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize(
    ("data", "out", "attrs"),
    [
        ((1, 20, 13, 15), (7, 8), {"kernel": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}),
        ((2, 16, 13, 15), (6, 7), {"kernel": (3, 3), "strides": (2, 2)}),
        ((1, 16, 6, 6), (3, 3), {"kernel": (2, 2), "strides": (2, 2)}),
        ((1, 33, 13, 15), (13, 8), {"kernel": (3, 3), "strides": (1, 2), "dilations": (2, 2), "pads": (2, 2, 2, 2)}),
        ((1, 16, 14, 14), (7, 7), {"kernel": (3, 3), "strides": (2, 2), "pads": (0, 0, 1, 1)}),
        ((1, 16, 1, 9), (1, 4), {"kernel": (1, 3), "strides": (1, 2)}),
        ((1, 16, 7, 7), (1, 1), {"kernel": (7, 7)}),
        ((1, 16, 1, 1), (1, 1), {"kernel": (3, 3), "pads": (1, 1, 1, 1)}),
    ],
)
def test_pool_equals_its_definition(
    kind: str, data: tuple[int, ...], out: tuple[int, int], attrs: dict[str, Any]
) -> None:
    """Windows inside the input, over its edges, with gaps, and over all of it."""
    x = numbers(*data) - 3  # a maximum of negative numbers must not be the padding's zero
    expected = pool(x, kind, out, **attrs)
    onnx = {"kernel_shape" if name == "kernel" else name: value for name, value in attrs.items()}
    assert_close(run_node(kind, [x], [], expected.shape, **onnx), expected)


def test_average_counts_padding_where_asked() -> None:
    """With count_include_pad the divisor has the padding, but not what lies beyond it in ceil mode."""
    x = numbers(1, 48, 40, 41)
    attrs: dict[str, Any] = {"strides": (2, 2), "pads": (1, 1, 1, 0)}
    expected = pool(x, "AveragePool", (21, 21), (3, 2), counted=True, **attrs)
    actual = run_node(
        "AveragePool", [x], [], expected.shape, kernel_shape=(3, 2), ceil_mode=1, count_include_pad=1, **attrs
    )
    assert_close(actual, expected)


def test_nan_in_a_window_gives_nan() -> None:
    """A maximum or average over a NaN is NaN, as numpy has it; infinities come through."""
    x = numbers(1, 16, 8, 8)
    x[0, 1, 2, 2], x[0, 2, 0, 0], x[0, 3, 7, 7] = np.nan, np.inf, -np.inf
    for kind in ("MaxPool", "AveragePool"):
        for pads in ((0, 0, 0, 0), (1, 1, 1, 1)):
            extent = 3 + sum(pads) // 4
            expected = pool(x, kind, (extent, extent), (3, 3), (2, 2), pads=pads)
            actual = run_node(kind, [x], [], expected.shape, kernel_shape=(3, 3), strides=(2, 2), pads=pads)
            assert_close(actual, expected)


@halved
@pytest.mark.parametrize("data", [(1, 32, 7, 9), (2, 30, 1, 1), (1, 16, 3, 2), (2, 64, 40, 33), (1, 5, 8)])
@pytest.mark.parametrize("kind", ["GlobalAveragePool", "GlobalMaxPool"])
def test_global_pool_equals_numpy(kind: str, data: tuple[int, ...]) -> None:
    """Planes of any extent, below and above the number of partial sums; channels that fill blocks or not."""
    x = numbers(*data) - 3
    axes = tuple(range(2, len(data)))
    reduce = np.max if kind == "GlobalMaxPool" else np.mean
    expected = reduce(x.astype(np.float64), axis=axes, keepdims=True)
    assert_close(run_node(kind, [x], [], expected.shape), expected)


@pytest.mark.parametrize(
    ("channels", "attrs"),
    [
        (30, {"size": 5, "alpha": 0.1, "beta": 0.75, "bias": 1.0}),
        (64, {"size": 7, "alpha": 0.2, "beta": 0.6, "bias": 2.0}),
        (3, {"size": 3, "beta": 0.5}),
        (40, {"size": 33, "beta": 1.0}),
        (16, {"size": 4}),
    ],
)
def test_lrn_equals_its_definition(channels: int, attrs: dict[str, Any]) -> None:
    """Windows of channels cross blocks and end at the first and the last channel."""
    x = numbers(1, channels, 5, 6) * 3
    size, alpha = attrs["size"], attrs.get("alpha", 1e-4)
    squares = np.zeros((1, channels, 5, 6))
    for channel in range(channels):
        first, last = max(0, channel - (size - 1) // 2), min(channels, channel + size // 2 + 1)
        squares[:, channel] = (x[:, first:last].astype(np.float64) ** 2).sum(1)
    expected = x / (attrs.get("bias", 1.0) + alpha / size * squares) ** attrs.get("beta", 0.75)
    assert_close(run_node("LRN", [x], [], x.shape, **attrs), expected)


@halved
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
@pytest.mark.parametrize(("width", "height", "channels"), [(1, 1, 16), (1, 1, 5), (3, 2, 33), (7, 7, 32), (17, 2, 1)])
def test_blocks_and_back_is_the_identity(width: int, height: int, channels: int, dtype: str) -> None:
    """Every element comes back to its place, lanes beyond the channels are zero, nothing else is written."""
    rng = np.random.default_rng(0)
    image = rng.integers(0, 2 if dtype == "bool" else 100, (channels, height, width)).astype(dtype)
    count = -(-channels // 16)
    blocked = guarded((count, height, width, 16), dtype)
    plain = tuple(zip(image.shape[::-1], (1, width, width * height), strict=True))
    lanes = ((16, 1), (width, 16), (height, 16 * width), (count, 16 * width * height))
    desc, views = to_blocked((View(0, 0, plain), View(1, 0, lanes)), dtype, choose_here)
    run_desc(desc, _reshaped(image, views[0]), _within(blocked, views[1]))
    check_canaries(blocked)
    back = guarded(image.shape, dtype)
    desc, views = from_blocked((View(1, 0, lanes), View(0, 0, plain)), dtype, choose_here)
    run_desc(desc, _reshaped(blocked.view, views[0]), _within(back, views[1]))
    check_canaries(back)
    np.testing.assert_array_equal(back.view, image)
    flat = blocked.view.transpose(0, 3, 1, 2).reshape(count * 16, height, width)
    assert not flat[channels:].any()


def _reshaped(array: np.ndarray, view: View) -> np.ndarray:
    return np.ascontiguousarray(array).reshape([extent for extent, _ in reversed(view.dims)])


def _within(slot: Any, view: View) -> Any:
    return type(slot)(_reshaped(slot.view, view), slot.memory, slot.around)


@halved
@pytest.mark.parametrize("channels", [32, 20])
@pytest.mark.parametrize(("width", "height", "halo"), [(32, 32, 0), (37, 19, 0), (41, 17, 1), (512, 1, 2)])
def test_large_planes_come_out_of_blocks(channels: int, width: int, height: int, halo: int) -> None:
    """Whole blocks are transposed, whether a halo lies between rows or not; others take the other way."""
    count, wide, high = -(-channels // 16), width + 2 * halo, height + 2 * halo
    blocked = numbers(count, high, wide, 16)
    inner = blocked[:, halo : halo + height, halo : halo + width]
    plain = guarded((channels, height, width))
    lanes = ((16, 1), (width, 16), (height, 16 * wide), (count, 16 * wide * high))
    places = tuple(zip((width, height, channels), (1, width, width * height), strict=True))
    desc, views = from_blocked((View(1, 0, lanes), View(0, 0, places)), "float32", choose_here)
    assert desc.family == ("copy" if channels == 32 else "from_blocked")
    source, target = (
        np.lib.stride_tricks.as_strided(
            memory, [extent for extent, _ in reversed(view.dims)], [4 * stride for _, stride in reversed(view.dims)]
        )
        for memory, view in zip((inner, plain.view), views, strict=True)
    )
    kind = desc.outputs[0].dtype  # copies see unsigned integers of the same size
    run_desc(desc, source.view(kind), type(plain)(target.view(kind), plain.memory, plain.around))
    check_canaries(plain)
    np.testing.assert_array_equal(plain.view, inner.transpose(0, 3, 1, 2).reshape(-1, height, width)[:channels])
