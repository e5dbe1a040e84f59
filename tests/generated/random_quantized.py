"""Operators of random networks on quantised numbers, and recurrent ones.

Scales are powers of two and values are halves, so that quantised numbers are the same whoever computes them.
"""

from __future__ import annotations

import math

import numpy as np

from generated.random_networks import EPSILON, Maker, NotPossibleError, Value

BYTES = ("uint8", "int8")


def _zero_point(m: Maker, dtype: str) -> Value:
    low = 0 if dtype == "uint8" else -9
    return m.constant(np.array(int(m.rng.integers(low, 10)), dtype))


def _range(dtype: str) -> tuple[int, int]:
    limits = np.iinfo(dtype)
    return int(limits.min), int(limits.max)


def quantize(m: Maker) -> None:
    """Apply QuantizeLinear."""
    x = m.tensor(("float32",), exact=True)
    dtype = m.one_of(BYTES)
    scale = m.constant(np.array(m.one_of([0.25, 0.5, 2.0]), np.float32))
    low, high = _range(dtype)
    m.add("QuantizeLinear", [x, scale, _zero_point(m, dtype)], x.shape, dtype=dtype, low=low, high=high)


def _bytes(m: Maker, shape: tuple[int, ...] | None = None, ranks: tuple[int, ...] = (1, 2, 3, 4)) -> Value:
    """Return a value of 8-bit numbers: one that there is, or an input with all of their values."""

    def make() -> Value:
        dtype = m.one_of(BYTES)
        low, high = _range(dtype)
        extents = m.shape(m.one_of(ranks)) if shape is None else shape
        return m.feed(np.asarray(m.rng.integers(low, high + 1, extents), dtype), low, high)

    if shape is not None:
        return make()
    return m.pick(lambda v: v.dtype in BYTES and v.rank in ranks, make)


def dequantize(m: Maker) -> None:
    """Apply DequantizeLinear."""
    x = _bytes(m)
    scale = float(m.one_of([0.25, 0.5, 1.0]))
    inputs: list[str | Value] = [x, m.constant(np.array(scale, np.float32)), _zero_point(m, x.dtype)]
    m.add("DequantizeLinear", inputs, x.shape, low=-265 * scale, high=265 * scale)


def matmul_integer(m: Maker) -> None:
    """Apply MatMulInteger; ONNX Runtime multiplies signed by signed only where the right operand is constant."""
    x = _bytes(m, ranks=(2, 3))
    terms, columns = x.shape[-1], int(m.one_of([1, 3, 8, 16, 33]))
    dtype = m.one_of(BYTES) if x.dtype == "uint8" else "int8"
    low, high = _range(dtype)
    w = m.constant(np.asarray(m.rng.integers(low, high + 1, (terms, columns)), dtype), low, high)
    inputs: list[str | Value] = [x, w]
    if m.chance(0.6):
        inputs.append(_zero_point(m, x.dtype))
        if m.chance(0.5):
            inputs.append(_zero_point(m, dtype))
    bound = 265 * 265 * max(terms, 1)
    m.add("MatMulInteger", inputs, (*x.shape[:-1], columns), dtype="int32", low=-bound, high=bound)


def conv_integer(m: Maker) -> None:
    """Apply ConvInteger, with a halo that holds the zero point."""
    channels, size = int(m.one_of([1, 3, 4, 16, 17])), int(m.one_of([3, 5, 8]))
    x = _bytes(m, (1, channels, size, size))
    if x.dtype == "int8":
        raise NotPossibleError  # ONNX Runtime has no kernel
    kernel, outputs = int(m.one_of([1, 2, 3])), int(m.one_of([1, 4, 16, 17]))
    w = m.constant(np.asarray(m.rng.integers(0, 256, (outputs, channels, kernel, kernel)), np.uint8))
    pad, stride = int(m.rng.integers(0, kernel)), int(m.one_of([1, 2]))
    out = (size + 2 * pad - kernel) // stride + 1
    bound = 265 * 265 * channels * kernel**2
    inputs: list[str | Value] = [x, w, _zero_point(m, "uint8"), _zero_point(m, "uint8")]
    m.add("ConvInteger", inputs, (1, outputs, out, out), dtype="int32", low=-bound, high=bound, pads=[pad] * 4,
          strides=[stride] * 2)  # fmt: skip


GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def recurrent(m: Maker) -> None:
    """Apply RNN, GRU or LSTM; all outputs are values of the network."""
    kind = m.one_of(list(GATES))
    x = m.tensor(("float32",), ranks=(3,))
    if not math.prod(x.shape) or x.shape[0] > 20:
        raise NotPossibleError
    x = m.within(x, -4, 4)
    steps, batch, size = x.shape
    direction = m.one_of(["forward", "reverse", "bidirectional"])
    count = 2 if direction == "bidirectional" else 1
    hidden = int(m.one_of([1, 3, 8, 16, 19]))
    rows = GATES[kind] * hidden
    sizes = ((count, rows, size), (count, rows, hidden), (count, 2 * rows))
    inputs: list[str | Value] = [x, *(m.constant(m.rng.uniform(-0.3, 0.3, s).astype(np.float32)) for s in sizes)]
    attrs = {"hidden_size": hidden, "direction": direction}
    if kind == "GRU":
        attrs["linear_before_reset"] = int(m.chance(0.5))
    if m.chance(0.3):
        inputs.append(m.constant(np.asarray(m.rng.integers(1, steps + 1, batch), np.int32)))
    noise = 8 * x.noise * size + 64 * steps * (size + hidden) * EPSILON["float32"]
    state = (count, batch, hidden)
    shapes = [(steps, *state), state, state][: 3 if kind == "LSTM" else 2]
    names = m.emit(kind, inputs, len(shapes), **attrs)
    for name, shape in zip(names, shapes, strict=True):
        m.values.append(Value(name, "float32", shape, -float(steps), float(steps), noise))
