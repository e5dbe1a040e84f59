"""Operators of random networks that are products, or slide a window."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from generated.random_networks import EPSILON, Maker, NotPossibleError, Value


def weights(m: Maker, x: Value, shape: Sequence[int], terms: int) -> tuple[Value, float, float]:
    """Return weights for sums of products with x, the sums' largest magnitude, and their noise."""
    if x.exact and x.bound * 3 * terms < 2**22 and m.chance(0.7):
        w = m.draw(x.dtype, shape, True)
        return w, x.bound * 3 * terms, 0.0
    array = (m.rng.uniform(-1, 1, tuple(shape)) / max(1, terms) ** 0.5).astype(x.dtype)
    w = m.constant(array, -1, 1)
    bound = x.bound * max(1, terms) ** 0.5
    return w, bound, x.noise * max(1, terms) ** 0.5 + bound * EPSILON[x.dtype] * 16


def spatial(m: Maker, rank: int | None = None, channels: int | None = None) -> Value:
    """Return a float32 value of batch, channels and one to three spatial dimensions."""
    rank = rank or m.one_of([3, 4, 4, 4, 4, 5])

    def make() -> Value:
        sizes = [int(m.one_of([1, 3, 4, 5, 7, 8, 14, 17])) for _ in range(rank - 2)]
        depth = channels or int(m.one_of([1, 2, 3, 4, 8, 15, 16, 17, 24, 32, 33]))
        batch = 0 if m.chance(0.02) else int(m.one_of([1, 1, 1, 2, 3]))
        if batch * depth * math.prod(sizes) > MOST_SPATIAL:
            sizes = [min(size, 5) for size in sizes]
        return m.input("float32", (batch, depth, *sizes))

    return m.pick(
        lambda v: v.dtype == "float32" and v.rank == rank and min(v.shape[1:]) > 0 and channels in (None, v.shape[1]),
        make,
    )


MOST_SPATIAL = 8_000


def window(m: Maker, x: Value, most: int = 5) -> tuple[list[int], list[int], list[int], list[int], list[int]]:
    """Return kernel, strides, dilations, pads (begins, ends) and output extents of a window that fits."""
    kernel, strides, dilations, begins, ends, out = [], [], [], [], [], []
    for size in x.shape[2:]:
        k = int(m.rng.integers(1, most + 1))
        d = 2 if m.chance(0.15) else 1
        s = int(m.one_of([1, 1, 1, 2, 3]))
        reach = (k - 1) * d + 1
        begin, end = (int(m.rng.integers(0, k)) if m.chance(0.6) else 0 for _ in range(2))
        if size + begin + end < reach:
            k, d, reach = 1, 1, 1
        begin, end = min(begin, reach - 1), min(end, reach - 1)
        kernel.append(k), strides.append(s), dilations.append(d), begins.append(begin), ends.append(end)
        out.append((size + begin + end - reach) // s + 1)
    return kernel, strides, dilations, [*begins, *ends], out


def conv(m: Maker) -> None:
    """Apply Conv: groups, depthwise, strides, dilations, pads, auto_pad, with and without bias."""
    x = spatial(m)
    channels = x.shape[1]
    groups = m.one_of([g for g in range(1, channels + 1) if channels % g == 0]) if m.chance(0.35) else 1
    outputs = groups * int(m.one_of([1, 1, 2] if groups > 1 else [1, 2, 3, 8, 16, 17, 32]))
    kernel, strides, dilations, pads, out = window(m, x)
    terms = channels // groups * math.prod(kernel)
    w, bound, noise = weights(m, x, (outputs, channels // groups, *kernel), terms)
    inputs = [x, w]
    if m.chance(0.5):
        inputs.append(m.draw("float32", (outputs,), True))
        bound += 3
        noise += 3 * EPSILON["float32"] if noise else 0
    attrs = {"strides": strides, "dilations": dilations, "pads": pads, "group": groups}
    if m.chance(0.5):
        attrs["kernel_shape"] = kernel
    if m.chance(0.15) and set(dilations) == {1}:
        del attrs["pads"]
        attrs["auto_pad"] = m.one_of(["SAME_UPPER", "SAME_LOWER"])
        out = [-(-size // s) for size, s in zip(x.shape[2:], strides, strict=True)]
    m.add("Conv", inputs, (x.shape[0], outputs, *out), low=-bound, high=bound, noise=noise, **attrs)


def conv_transpose(m: Maker) -> None:
    """Apply ConvTranspose."""
    x = spatial(m)
    channels = x.shape[1]
    groups = m.one_of([g for g in range(1, channels + 1) if channels % g == 0]) if m.chance(0.3) else 1
    each = int(m.one_of([1, 2, 3, 16, 17]))
    kernel, strides, dilations, begins, ends, extra, out = [], [], [], [], [], [], []
    for size in x.shape[2:]:
        k, s = int(m.rng.integers(1, 5)), int(m.rng.integers(1, 4))
        d = 2 if m.chance(0.15) else 1
        begin, end = (int(m.rng.integers(0, k)) if m.chance(0.5) else 0 for _ in range(2))
        more = int(m.rng.integers(0, s)) if m.chance(0.3) else 0
        extent = (size - 1) * s + (k - 1) * d + 1 - begin - end + more
        if extent < 1:
            begin = end = 0
            extent = (size - 1) * s + (k - 1) * d + 1 + more
        kernel.append(k), strides.append(s), dilations.append(d), begins.append(begin), ends.append(end)
        extra.append(more), out.append(extent)
    w, bound, noise = weights(m, x, (channels, each, *kernel), channels // groups * math.prod(kernel))
    inputs = [x, w]
    if m.chance(0.5):
        inputs.append(m.draw("float32", (each * groups,), True))
        bound += 3
    attrs = {"strides": strides, "dilations": dilations, "pads": [*begins, *ends], "group": groups}
    if any(extra):
        attrs["output_padding"] = extra
    shape = (x.shape[0], each * groups, *out)
    m.add("ConvTranspose", inputs, shape, low=-bound, high=bound, noise=noise, kernel_shape=kernel, **attrs)


def matmul(m: Maker) -> None:
    """Apply MatMul: vectors, matrices, batches that broadcast."""
    dtype = "float32" if m.chance(0.8) else m.one_of(["float64", "int32", "int64", "float32"])
    x = m.tensor((dtype,), ranks=(1, 2, 3, 4))
    if not x.floating and x.bound > 2**20:
        raise NotPossibleError
    terms, outputs = x.shape[-1], int(m.one_of([1, 2, 8, 16, 17, 33]))
    shape: tuple[int, ...] = (terms,) if m.chance(0.1) else (terms, outputs)
    if len(shape) == 2 and x.rank > 2 and m.chance(0.4):
        shape = (*(1 if m.chance(0.4) else extent for extent in x.shape[:-2]), *shape)
    elif len(shape) == 2 and x.rank == 2 and m.chance(0.2):
        shape = (2, *shape)
    if x.floating:
        w, bound, noise = weights(m, x, shape, terms)
    else:
        w = m.draw(dtype, shape, True)
        bound, noise = x.bound * 5 * terms, 0.0
    made = np.matmul(np.empty(x.shape, bool), np.empty(shape, bool)).shape
    m.add("MatMul", [x, w], made, dtype=dtype, low=-bound, high=bound, noise=noise)


def gemm(m: Maker) -> None:
    """Apply Gemm: both orders of both matrices, factors, and a third operand that broadcasts."""
    x = m.tensor(("float32",), ranks=(2,))
    turned, other_turned = int(m.chance(0.3)), int(m.chance(0.5))
    rows, terms = x.shape[::-1] if turned else x.shape
    outputs = int(m.one_of([1, 2, 8, 16, 17, 33]))
    w, bound, noise = weights(m, x, (outputs, terms) if other_turned else (terms, outputs), terms)
    alpha, beta = (m.one_of([0.5, 2.0]) if m.chance(0.3) else 1.0 for _ in range(2))
    inputs = [x, w]
    if m.chance(0.6):
        inputs.append(
            m.draw("float32", m.one_of([(), (1,), (outputs,), (rows, 1), (rows, outputs), (1, outputs)]), True)
        )
    bound, noise = bound * alpha + 6, noise * alpha * 1.5
    attrs = {"alpha": alpha, "beta": beta, "transA": turned, "transB": other_turned}
    m.add("Gemm", inputs, (rows, outputs), low=-bound, high=bound, noise=noise, **attrs)


def pool(m: Maker) -> None:
    """Apply MaxPool, with and without indices, or AveragePool."""
    x = spatial(m)
    kernel, strides, dilations, pads, out = window(m, x, 4)
    name = m.one_of(["MaxPool", "MaxPool", "AveragePool"])
    attrs = {"kernel_shape": kernel, "strides": strides, "pads": pads}
    if any(dilations[axis] > 1 for axis in range(len(kernel))):
        attrs["dilations"] = dilations
    if m.chance(0.2):
        attrs["ceil_mode"] = 1
        half = len(pads) // 2
        for axis, size in enumerate(x.shape[2:]):
            reach = (kernel[axis] - 1) * dilations[axis] + 1
            begin, end = pads[axis], pads[axis + half]
            out[axis] = -(-(size + begin + end - reach) // strides[axis]) + 1
            if (out[axis] - 1) * strides[axis] >= size + begin:
                out[axis] -= 1
    shape = (*x.shape[:2], *out)
    if name == "MaxPool":
        m.add(name, [x], shape, like=x, **attrs)
        return
    attrs["count_include_pad"] = int(m.chance(0.5))
    noise = x.noise + x.bound * EPSILON["float32"] * 8
    low, high = min(x.low, 0) - noise, max(x.high, 0) + noise
    m.add(name, [x], shape, like=x, low=low, high=high, noise=noise, **attrs)


def global_pool(m: Maker) -> None:
    """Apply a global pool."""
    x = spatial(m)
    name = m.one_of(["GlobalMaxPool", "GlobalAveragePool"])
    noise = x.noise if name == "GlobalMaxPool" else x.noise + 16 * x.bound * EPSILON["float32"]
    m.add(name, [x], (*x.shape[:2], *(1 for _ in x.shape[2:])), like=x, noise=noise)


def lrn(m: Maker) -> None:
    """Apply LRN."""
    x = spatial(m, 4)
    noise = x.noise * 2 + x.bound * EPSILON["float32"] * 16
    m.add("LRN", [x], x.shape, like=x, low=-x.bound, high=x.bound, noise=noise, size=m.one_of([1, 3, 5]), alpha=0.01)
