"""Convolutions whose weights are given to the call: packed by copies, then computed by the same kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from kernels.one_operator import check, random

CONVOLUTIONS: tuple[tuple[Sequence[int], Sequence[int], dict[str, Any]], ...] = (
    ((1, 1, 5, 5), (1, 1, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((2, 20, 9, 8), (33, 20, 3, 3), {"pads": [1, 0, 1, 2], "strides": [2, 1]}),
    ((1, 32, 7, 7), (16, 32, 3, 3), {"dilations": [2, 2]}),
    ((2, 40, 6), (7, 40, 3), {}),
    ((1, 20, 6, 6), (20, 1, 3, 3), {"group": 20, "pads": [1, 1, 1, 1]}),
    ((1, 24, 6, 6), (36, 6, 3, 2), {"group": 4}),
    ((1, 3, 8, 8), (5, 3, 1, 1), {"auto_pad": "SAME_UPPER"}),
)

TRANSPOSED: tuple[tuple[Sequence[int], Sequence[int], dict[str, Any]], ...] = (
    ((1, 1, 3, 3), (1, 2, 3, 3), {}),
    ((2, 20, 4, 5), (20, 18, 3, 2), {"strides": [3, 2], "pads": [1, 0, 0, 1]}),
    ((1, 6, 5), (6, 17, 3), {"strides": [2]}),
    ((1, 8, 4, 4), (8, 3, 3, 3), {"group": 4, "strides": [2, 2], "dilations": [1, 1]}),
    ((1, 5, 4, 4), (5, 3, 2, 2), {"dilations": [2, 2]}),
)


@pytest.mark.parametrize(("shape", "weights", "attrs"), CONVOLUTIONS)
@pytest.mark.parametrize("biased", [False, True])
def test_convolutions(shape: Sequence[int], weights: Sequence[int], attrs: dict[str, Any], biased: bool) -> None:
    """Dense, depthwise and grouped, in one dimension and in two; channels that fill their blocks or do not."""
    inputs = [random(*shape), random(*weights, seed=1), *([random(weights[0], seed=2)] if biased else [])]
    check("Conv", inputs, **attrs)


@pytest.mark.parametrize(("shape", "weights", "attrs"), TRANSPOSED)
@pytest.mark.parametrize("biased", [False, True])
def test_transposed_convolutions(
    shape: Sequence[int], weights: Sequence[int], attrs: dict[str, Any], biased: bool
) -> None:
    """Each phase takes its own taps, in reverse."""
    channels = weights[1] * attrs.get("group", 1)
    inputs = [random(*shape), random(*weights, seed=1), *([random(channels, seed=2)] if biased else [])]
    check("ConvTranspose", inputs, **attrs)


def test_known_weights_may_have_a_bias_that_is_not() -> None:
    """Each is packed on its own way."""
    inputs = [random(1, 20, 6, 6), random(18, 20, 3, 3, seed=1), random(18, seed=2)]
    check("Conv", inputs, (1,))
    check("Conv", inputs, (2,))


def test_an_infinite_weight_spoils_only_its_own_channel() -> None:
    """Lanes beyond the channels hold zeros, whatever memory had before."""
    x, weights = random(1, 5, 4, 4), random(3, 5, 1, 1, seed=1)
    weights[1, 2] = np.inf
    (found,) = check("Conv", [x, weights])
    assert np.isfinite(found[:, [0, 2]]).all()
