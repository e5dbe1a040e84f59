"""Operators of random networks that move elements."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from generated.random_networks import EPSILON, Maker, NotPossibleError, Value
from generated.random_products import spatial


def reshape(m: Maker) -> None:
    """Apply Reshape, Flatten, Squeeze or Unsqueeze."""
    x = m.tensor()
    name = m.one_of(["Reshape", "Reshape", "Flatten", "Squeeze", "Unsqueeze"])
    if name == "Flatten":
        axis = int(m.rng.integers(0, x.rank + 1))
        m.add(name, [x], (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])), like=x, axis=axis)
    elif name == "Squeeze":
        axes = [axis for axis, extent in enumerate(x.shape) if extent == 1 and m.chance(0.7)]
        if not axes:
            raise NotPossibleError
        shape = [extent for axis, extent in enumerate(x.shape) if axis not in axes]
        m.add(name, [x, m.constants_of(axes)], shape, like=x)
    elif name == "Unsqueeze":
        if x.rank > 4:
            raise NotPossibleError
        axis = int(m.rng.integers(0, x.rank + 1))
        m.add(name, [x, m.constants_of([axis])], [*x.shape[:axis], 1, *x.shape[axis:]], like=x)
    else:
        shape = factors(m, math.prod(x.shape))
        asked = list(shape)
        if asked and math.prod(shape) and m.chance(0.4):
            asked[int(m.rng.integers(len(asked)))] = -1
        m.add(name, [x, m.constants_of(asked)], shape, like=x, allowzero=int(0 in shape))


def factors(m: Maker, size: int) -> list[int]:
    """Return a random shape of so many elements."""
    if not size:
        return [0, int(m.rng.integers(1, 4))]
    shape, left = [], size
    for _ in range(int(m.rng.integers(0, 4))):
        divisors = [d for d in range(1, min(left, 64) + 1) if left % d == 0]
        shape.append(m.one_of(divisors))
        left //= shape[-1]
    return [*shape, left]


def transpose(m: Maker) -> None:
    """Apply Transpose."""
    x = m.tensor(ranks=(1, 2, 3, 4, 5))
    perm = [int(axis) for axis in m.rng.permutation(x.rank)]
    m.add("Transpose", [x], [x.shape[axis] for axis in perm], like=x, perm=perm)


def expand(m: Maker) -> None:
    """Apply Expand or Tile."""
    x = m.tensor(ranks=(0, 1, 2, 3, 4))
    if m.chance(0.5):
        shape = [int(m.rng.integers(2, 5)) if extent == 1 and m.chance(0.6) else extent for extent in x.shape]
        if m.chance(0.3) and len(shape) < 5:
            shape = [int(m.rng.integers(1, 4)), *shape]
        if shape:
            m.add("Expand", [x, m.constants_of(shape)], shape, like=x)
        return
    repeats = [int(m.one_of([1, 1, 2, 3])) for _ in x.shape]
    if repeats:
        shape = [extent * times for extent, times in zip(x.shape, repeats, strict=True)]
        m.add("Tile", [x, m.constants_of(repeats)], shape, like=x)


def slice_(m: Maker) -> None:
    """Apply Slice with steps of both signs."""
    x = m.tensor(ranks=(1, 2, 3, 4))
    axes = sorted({int(axis) for axis in m.rng.integers(0, x.rank, 2)})
    starts, ends, strides = [], [], []
    picked = list(x.shape)
    for axis in axes:
        extent = x.shape[axis]
        start, end = sorted(int(at) for at in m.rng.integers(-extent - 1, extent + 2, 2))
        stride = int(m.one_of([1, 1, 2, 3, -1, -2]))
        if stride < 0:
            start, end = end, start
        if m.chance(0.1):
            end = 2**31 - 1 if stride > 0 else -(2**31)
        starts.append(start), ends.append(end), strides.append(stride)
        if stride < 0:  # clamped as the standard says
            first = min(max(start + extent if start < 0 else start, 0), extent - 1)
            last = min(max(end + extent if end < 0 else end, -1), extent - 1)
        else:
            first = min(max(start + extent if start < 0 else start, 0), extent)
            last = min(max(end + extent if end < 0 else end, 0), extent)
        picked[axis] = max(0, -(-(last - first) // stride)) if extent else 0
    inputs = [x, m.constants_of(starts), m.constants_of(ends), m.constants_of(axes), m.constants_of(strides)]
    m.add("Slice", inputs, picked, like=x)


def split(m: Maker) -> None:
    """Apply Split in equal or other parts."""
    x = m.tensor(ranks=(1, 2, 3, 4))
    axis = int(m.rng.integers(x.rank))
    extent = x.shape[axis]
    if extent < 2:
        raise NotPossibleError
    cut = int(m.rng.integers(1, extent))
    parts = [cut, extent - cut]
    names = m.emit("Split", [x, m.constants_of(parts)], 2, axis=axis)
    for name, part in zip(names, parts, strict=True):
        shape = (*x.shape[:axis], part, *x.shape[axis + 1 :])
        m.values.append(Value(name, x.dtype, shape, x.low, x.high, x.noise))


def concat(m: Maker) -> None:
    """Apply Concat to values that are there and new ones."""
    x = m.tensor(ranks=(1, 2, 3, 4))
    axis = int(m.rng.integers(x.rank))
    values = [x]
    for _ in range(int(m.rng.integers(1, 4))):
        rest = (*x.shape[:axis], *x.shape[axis + 1 :])
        fits = [v for v in m.values if v.dtype == x.dtype and v.rank == x.rank
                and (*v.shape[:axis], *v.shape[axis + 1 :]) == rest]  # fmt: skip
        if m.chance(0.6) and fits:
            values.append(m.one_of(fits))
        else:
            shape = (*x.shape[:axis], int(m.one_of([1, 2, 3, 16, 17])), *x.shape[axis + 1 :])
            values.append(m.draw(x.dtype, shape, x.exact))
    m.rng.shuffle(values)
    extent = sum(value.shape[axis] for value in values)
    low, high = min(value.low for value in values), max(value.high for value in values)
    noise = max(value.noise for value in values)
    shape = (*x.shape[:axis], extent, *x.shape[axis + 1 :])
    m.add("Concat", values, shape, like=x, low=low, high=high, noise=noise,
          axis=axis - x.rank if m.chance(0.3) else axis)  # fmt: skip


def pad(m: Maker) -> None:
    """Apply Pad in its modes, also with negative pads."""
    x = m.tensor(("float32", "float64", "int32", "int64", "uint8", "float32"), ranks=(1, 2, 3, 4))
    mode = m.one_of(["constant", "constant", "reflect", "edge", "wrap"])
    begins, ends = [], []
    for extent in x.shape:
        most = {"reflect": min(3, extent - 1), "wrap": min(3, extent)}.get(mode, 3)
        least = -1 if mode == "constant" and extent > 3 and m.chance(0.2) else 0
        begins.append(int(m.rng.integers(least, max(most, 0) + 1)))
        ends.append(int(m.rng.integers(least, max(most, 0) + 1)))
    if mode != "constant" and not math.prod(x.shape):
        raise NotPossibleError
    inputs: list[str | Value] = [x, m.constants_of([*begins, *ends])]
    if mode == "constant" and m.chance(0.5):
        inputs.append(m.constant(np.array(2, x.dtype)))
    shape = [extent + begin + end for extent, begin, end in zip(x.shape, begins, ends, strict=True)]
    m.add("Pad", inputs, shape, like=x, low=min(x.low, 0), high=max(x.high, 2), mode=mode)


def depth_to_space(m: Maker) -> None:
    """Apply DepthToSpace or SpaceToDepth."""
    x = spatial(m, 4)
    n, c, h, w = x.shape
    if m.chance(0.5) and c % 4 == 0:
        m.add("DepthToSpace", [x], (n, c // 4, h * 2, w * 2), like=x, blocksize=2, mode=m.one_of(["DCR", "CRD"]))
    elif h % 2 == 0 and w % 2 == 0:
        m.add("SpaceToDepth", [x], (n, c * 4, h // 2, w // 2), like=x, blocksize=2)


def gather(m: Maker) -> None:
    """Apply Gather, GatherElements or GatherND with constant and given indices, negative ones too."""
    x = m.tensor(ranks=(1, 2, 3, 4))
    axis = int(m.rng.integers(x.rank))
    extent = x.shape[axis]
    if not math.prod(x.shape):
        raise NotPossibleError
    kind = m.one_of(["int64", "int32"])
    name = m.one_of(["Gather", "Gather", "GatherElements", "GatherND"])

    def indices(shape: Sequence[int], least: int, most: int) -> Value:
        array = m.rng.integers(least, most, tuple(shape)).astype(kind)
        return m.feed(array, least, most) if m.chance(0.4) else m.constant(array)

    if name == "Gather":
        shape = m.one_of([(), (1,), (3,), (2, 5), (17,)])
        at = indices(shape, -extent, extent)
        m.add(name, [x, at], (*x.shape[:axis], *shape, *x.shape[axis + 1 :]), like=x, axis=axis)
    elif name == "GatherElements":
        shape = [*x.shape[:axis], int(m.rng.integers(1, 6)), *x.shape[axis + 1 :]]
        m.add(name, [x, indices(shape, -extent, extent)], shape, like=x, axis=axis)
    else:
        kind = "int64"
        last = int(m.rng.integers(1, x.rank + 1))
        count = int(m.rng.integers(1, 6))
        array = np.stack([m.rng.integers(-x.shape[at], x.shape[at], count) for at in range(last)], 1).astype(kind)
        at = m.feed(array, -64, 64) if m.chance(0.4) else m.constant(array)
        m.add(name, [x, at], (count, *x.shape[last:]), like=x)


def resize(m: Maker) -> None:
    """Apply Resize to the spatial extents."""
    x = spatial(m, 4)
    if not math.prod(x.shape):
        raise NotPossibleError
    mode = m.one_of(["nearest", "nearest", "linear", "cubic"])
    sizes = [int(m.one_of([size, 2 * size, size + 3, max(1, size // 2)])) for size in x.shape[2:]]
    transformation = m.one_of(["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"])
    attrs = {"mode": mode, "coordinate_transformation_mode": transformation}
    if mode == "nearest":
        attrs["nearest_mode"] = m.one_of(["round_prefer_floor", "floor", "ceil", "round_prefer_ceil"])
        if transformation == "align_corners":
            attrs["coordinate_transformation_mode"] = "asymmetric"
    noise = x.noise if mode == "nearest" else 2 * x.noise + 32 * x.bound * EPSILON["float32"]
    bound = x.bound * (1 if mode != "cubic" else 2)
    inputs: list[str | Value] = [x, "", "", m.constants_of([*x.shape[:2], *sizes])]
    m.add("Resize", inputs, (*x.shape[:2], *sizes), low=-bound, high=bound, noise=noise, **attrs)


def dynamic_reshape(m: Maker) -> None:
    """Flatten as exporters do: Shape, Gather, Concat, Reshape."""
    x = m.tensor(("float32",), ranks=(2, 3, 4))
    if not math.prod(x.shape):
        raise NotPossibleError
    (whole,) = m.emit("Shape", [x])
    (first,) = m.emit("Gather", [whole, m.constants_of([0])], axis=0)
    (shape,) = m.emit("Concat", [first, m.constants_of([-1])], axis=0)
    m.add("Reshape", [x, shape], (x.shape[0], math.prod(x.shape[1:])), like=x)
