"""Fourier transforms for networks whose extents are opened."""

from __future__ import annotations

import numpy as np

from generated.random_networks import Maker


def short_time(m: Maker) -> None:
    """STFT of a real signal, with a window or a length or both, from a row of more than a frame."""
    length, step = m.one_of((4, 5, 8)), m.one_of((1, 2, 3))
    x = m.input("float32", (m.one_of((1, 2, 3)), length + m.one_of((2, 7, 12)), 1), exact=False)
    kind = m.one_of(("window", "length", "both"))
    window = m.constant(np.asarray(m.rng.uniform(0, 1, length), "float32")).name if kind != "length" else ""
    inputs = [x.name, m.constant(np.array(step)).name, window]
    inputs += [m.constant(np.array(length)).name] if kind != "window" else []
    onesided = m.one_of((0, 1))
    shape = (x.shape[0], (x.shape[1] - length) // step + 1, length // 2 + 1 if onesided else length, 2)
    bound = x.bound * length
    m.add("STFT", inputs, shape, low=-bound, high=bound, noise=bound * length * 2.0**-22, onesided=onesided)


def transform(m: Maker) -> None:
    """DFT along the second axis of three, whose length is given."""
    length = m.one_of((4, 7, 9))
    shape = (m.one_of((2, 3, 5)), m.one_of((3, 8)), m.one_of((1, 2)))
    x = m.input("float32", shape, exact=False)
    onesided, inverse = m.one_of((0, 1)) if shape[-1] == 1 else 0, m.one_of((0, 1))
    onesided = 0 if inverse else onesided
    inputs = [x, m.constant(np.array(length)), m.constant(np.array(1))]
    bound = x.bound * max(length, shape[1]) * 2
    result = (shape[0], length // 2 + 1 if onesided else length, 2)
    m.add("DFT", inputs, result, low=-bound, high=bound, noise=bound * length * 2.0**-22,
          onesided=onesided, inverse=inverse)  # fmt: skip
