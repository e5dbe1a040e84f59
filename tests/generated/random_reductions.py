"""Operators of random networks that reduce rows: sums, greatest elements, normalizations."""

from __future__ import annotations

import math

from generated.random_networks import EPSILON, Maker, NotPossibleError, Value
from generated.random_products import spatial


def reduction(m: Maker) -> None:
    """Apply a reduction over some axes, all, or none."""
    name = m.one_of(
        ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum",
         "ReduceLogSumExp", "ReduceSumSquare"]
    )  # fmt: skip
    if m.special and name in ("ReduceMax", "ReduceMin", "ReduceLogSumExp"):
        raise NotPossibleError  # ONNX Runtime finds NaN or not, depending on where it lies
    smooth = name in ("ReduceMean", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp")
    x = m.tensor(("float32", "float32", "float64") if smooth else ("float32", "float64", "int32", "int64", "float32"))
    if not math.prod(x.shape):
        raise NotPossibleError
    axes = sorted({int(axis) for axis in m.rng.integers(0, x.rank, 2)}) if x.rank else []
    if m.chance(0.2):
        axes = list(range(x.rank))
    terms = math.prod(x.shape[axis] for axis in axes) if axes else math.prod(x.shape)
    if name == "ReduceLogSum":
        x = m.within(x, 0.25, 4)
    elif name == "ReduceLogSumExp":
        x = m.within(x, -4, 4)
    elif name == "ReduceL2":
        x = m.within(x, 0.25, 4)
    elif name == "ReduceProd" and terms > 8:
        raise NotPossibleError
    bound = {
        "ReduceSum": x.bound * terms, "ReduceL1": x.bound * terms, "ReduceL2": x.bound * math.sqrt(terms),
        "ReduceSumSquare": x.bound**2 * terms, "ReduceProd": max(1, x.bound) ** min(terms, 8),
        "ReduceLogSum": 4 + math.log(terms), "ReduceLogSumExp": 5 + math.log(terms),
    }.get(name, x.bound)  # fmt: skip
    if not x.floating and bound > 2**30:
        raise NotPossibleError
    slope = {"ReduceSum": terms, "ReduceL1": terms, "ReduceL2": math.sqrt(terms), "ReduceLogSum": 4,
             "ReduceSumSquare": 2 * x.bound * terms, "ReduceProd": 8 * max(1, x.bound) ** 8}.get(name, 1)  # fmt: skip
    noise = x.noise * slope
    if (noise or smooth or bound > 2**22) and x.floating and name not in ("ReduceMax", "ReduceMin"):
        noise += 16 * bound * EPSILON[x.dtype]
    keep = int(m.chance(0.5))
    inputs: list[str | Value] = [x]
    signed = [axis - x.rank if m.chance(0.3) else axis for axis in axes]
    if (axes and len(axes) < x.rank) or (axes and m.chance(0.5)):
        inputs.append(m.constants_of(signed))
        left = set(axes)
    else:
        left = set(range(x.rank))
        if not left and math.prod(x.shape) != terms:
            raise NotPossibleError
    shape = [1 if axis in left else extent for axis, extent in enumerate(x.shape) if keep or axis not in left]
    m.add(name, inputs, shape, like=x, low=-bound, high=bound, noise=noise, keepdims=keep)


def arg_reduction(m: Maker) -> None:
    """Apply ArgMax or ArgMin."""
    x = m.tensor(("float32", "int32", "float64", "int8", "uint8"), ranks=(1, 2, 3, 4), exact=True)
    axis = int(m.rng.integers(-x.rank, x.rank))
    if not x.shape[axis]:
        raise NotPossibleError
    keep = int(m.chance(0.5))
    shape = [1 if at == axis % x.rank else extent for at, extent in enumerate(x.shape) if keep or at != axis % x.rank]
    high = x.shape[axis]
    attrs = {"axis": axis, "keepdims": keep, "select_last_index": int(m.chance(0.3))}
    m.add(m.one_of(["ArgMax", "ArgMin"]), [x], shape, dtype="int64", low=0, high=high, **attrs)


def softmax(m: Maker) -> None:
    """Apply Softmax or LogSoftmax along any axis."""
    x = m.tensor(("float32", "float32", "float16", "float64"), ranks=(1, 2, 3, 4))
    x = m.within(x, -8, 8)
    name = m.one_of(["Softmax", "Softmax", "LogSoftmax"])
    noise = 2 * x.noise + 32 * EPSILON[x.dtype]
    low, high = (0, 1) if name == "Softmax" else (-30, 0)
    m.add(name, [x], x.shape, like=x, low=low, high=high, noise=noise * max(1, abs(low)),
          axis=int(m.rng.integers(-x.rank, x.rank)))  # fmt: skip


def normalization(m: Maker) -> None:
    """Apply a normalization over the last axes, or over each channel or group of channels."""
    name = m.one_of(["LayerNormalization", "InstanceNormalization", "GroupNormalization", "BatchNormalization"])
    epsilon = 0.5  # else a row of equal elements, which is 0 apart from rounding, becomes anything
    if name == "LayerNormalization":
        x = m.tensor(("float32",), ranks=(2, 3, 4))
        axis = int(m.rng.integers(1, x.rank))
        shape = x.shape[axis:]
        inputs = [x, m.draw("float32", shape)] + ([m.draw("float32", shape)] if m.chance(0.6) else [])
        attrs = {"axis": axis - x.rank if m.chance(0.5) else axis}
    else:
        x = spatial(m)
        channels = x.shape[1]
        inputs, attrs = [x, m.draw("float32", (channels,)), m.draw("float32", (channels,))], {}
        if name == "BatchNormalization":
            inputs += [m.constant(*m.contents("float32", (channels,), True)),
                       m.constant(m.rng.uniform(0.5, 2, channels).astype("f4"))]  # fmt: skip
        if name == "GroupNormalization":
            attrs = {"num_groups": m.one_of([g for g in range(1, channels + 1) if channels % g == 0])}
    if not math.prod(x.shape):
        raise NotPossibleError
    bound = 3 * (x.bound + 3) / epsilon**0.5 + 3
    noise = 12 * x.noise + 64 * max(x.bound, 1) ** 2 * EPSILON["float32"]
    m.add(name, inputs, x.shape, low=-bound, high=bound, noise=noise, epsilon=epsilon, **attrs)
