"""Convolutions whose weights are given to the call: packed by copies, then computed by the same kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from kernels.one_operator import check, model_of, program_of, random
from opbuild.program import KernelCall

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
    ((1, 20, 4, 5), (20, 1, 5, 3), {"group": 20, "strides": [2, 1], "pads": [2, 1, 2, 1]}),
    ((1, 5, 4, 4), (5, 3, 2, 2), {"dilations": [2, 2]}),
)


BY_KERNELS: tuple[tuple[str, Sequence[int], Sequence[int], dict[str, Any], set[str]], ...] = (
    ("Conv", (2, 32, 5, 6), (48, 32, 3, 2), {}, {"conv"}),
    ("Conv", (1, 16, 5, 6), (32, 16, 1, 1), {"strides": [2, 2]}, {"conv"}),
    ("Conv", (2, 32, 9), (16, 32, 3), {}, {"conv"}),
    ("Conv", (2, 16, 23, 25), (32, 16, 3, 3), {"pads": [1, 1, 1, 1]}, {"winograd"}),
    ("Conv", (9, 128, 7, 8), (128, 128, 3, 3), {"pads": [1, 1, 1, 1]}, {"winograd"}),
    ("ConvTranspose", (2, 48, 5, 6), (48, 32, 3, 2), {"pads": [1, 0, 1, 0]}, {"conv"}),
    ("ConvTranspose", (2, 16, 9), (16, 32, 3), {}, {"conv"}),
    ("ConvTranspose", (2, 48, 22, 17), (48, 16, 3, 3), {"pads": [1, 1, 1, 1]}, {"winograd"}),
    ("ConvTranspose", (2, 16, 17, 19), (16, 32, 3, 3), {"pads": [0, 2, 1, 0]}, {"winograd"}),
)
"""Operator, data, weights whose channels are whole blocks, attributes, and the family that reads them."""


@pytest.mark.parametrize(("op_type", "shape", "weights", "attrs", "families"), BY_KERNELS)
def test_whole_blocks_of_weights_are_brought_there_by_a_kernel(
    op_type: str, shape: Sequence[int], weights: Sequence[int], attrs: dict[str, Any], families: set[str]
) -> None:
    """As they are, turned, or transformed as Winograd's algorithm reads them."""
    inputs = [random(*shape), random(*weights, seed=1)]
    program = program_of(model_of(op_type, inputs, **attrs)[0])
    called = {call.desc.family for call in program.calls if isinstance(call, KernelCall)}
    assert called >= families | {"weight_blocks"}
    check(op_type, inputs, **attrs)


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


@pytest.mark.parametrize("epilogue", [False, True])
def test_outputs_that_no_tap_reaches_are_the_bias(epilogue: bool) -> None:
    """A stride beyond the taps, with weights that are known and that are not, with a bias and without."""
    inputs = [random(2, 20, 4, 5), random(20, 18, 1, 2, seed=1), *([random(18, seed=2)] if epilogue else [])]
    for known in ((), (1,)):
        (found,) = check("ConvTranspose", inputs, known, strides=[2, 3], output_padding=[1, 0])
        expected = inputs[2] if epilogue else np.zeros(18, np.float32)
        np.testing.assert_array_equal(found[:, :, 1], np.broadcast_to(expected[:, None], (2, 18, found.shape[3])))
