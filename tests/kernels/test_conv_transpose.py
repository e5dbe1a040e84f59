"""Transposed convolution: the phases together give what scattering gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernels.one_node import assert_close, lower_node, run_node
from opbuild.kernel.opdesc import OpDesc
from opbuild.operations.expression import ACC, arg
from opbuild.program import HostCall, Program


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    """Return normally distributed numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def scatter(
    x: np.ndarray,
    w: np.ndarray,
    strides: tuple[int, int] = (1, 1),
    dilations: tuple[int, int] = (1, 1),
    pads: tuple[int, ...] = (0, 0, 0, 0),
    output_padding: tuple[int, int] = (0, 0),
    group: int = 1,
) -> np.ndarray:
    """Return the transposed convolution in float64, input by input."""
    n, ci, height, width = x.shape
    _, outs, kh, kw = w.shape
    full_h = (height - 1) * strides[0] + (kh - 1) * dilations[0] + 1
    full_w = (width - 1) * strides[1] + (kw - 1) * dilations[1] + 1
    full = np.zeros((n, outs * group, full_h + output_padding[0], full_w + output_padding[1]))
    ins = ci // group
    for g in range(group):
        part = slice(g * ins, (g + 1) * ins)
        for ky in range(kh):
            for kx in range(kw):
                y0, x0 = ky * dilations[0], kx * dilations[1]
                full[
                    :,
                    g * outs : (g + 1) * outs,
                    y0 : y0 + (height - 1) * strides[0] + 1 : strides[0],
                    x0 : x0 + (width - 1) * strides[1] + 1 : strides[1],
                ] += np.einsum("nchw,co->nohw", x[:, part].astype(np.float64), w[part, :, ky, kx])
    top, left, bottom, right = pads
    return full[:, :, top : full.shape[2] - bottom, left : full.shape[3] - right]


@pytest.mark.parametrize(
    ("data", "weights", "attrs"),
    [
        ((1, 20, 5, 6), (20, 33, 3, 3), {"strides": (2, 2), "pads": (1, 1, 1, 1), "output_padding": (1, 1)}),
        ((2, 16, 4, 4), (16, 16, 2, 2), {"strides": (2, 2)}),
        ((1, 20, 5, 6), (20, 12, 4, 3), {"strides": (3, 2), "dilations": (1, 1), "group": 2}),
        ((1, 16, 3, 9), (16, 8, 3, 3), {"dilations": (2, 3)}),
        ((1, 16, 1, 1), (16, 5, 4, 4), {"strides": (4, 4)}),
        ((1, 32, 3, 2), (32, 16, 5, 5), {"strides": (2, 3), "pads": (2, 0, 1, 2)}),
        ((2, 20, 5, 6), (20, 1, 3, 3), {"strides": (2, 2), "pads": (1, 1, 1, 1), "group": 20}),
        ((1, 32, 4, 7), (32, 1, 5, 3), {"strides": (1, 1), "pads": (2, 1, 2, 1), "dilations": (1, 2), "group": 32}),
    ],
)
def test_transposed_equals_scattering(data: tuple[int, ...], weights: tuple[int, ...], attrs: dict[str, Any]) -> None:
    """Strides, dilations, padding, output padding and groups give what adding each input's share gives."""
    x, w = numbers(*data), numbers(*weights, seed=1)
    expected = scatter(x, w, **attrs)
    assert_close(run_node("ConvTranspose", [x], [w], expected.shape, **attrs), expected)


def test_residual_is_read_at_the_phase_that_is_written() -> None:
    """An epilogue's tensor has the output's extents; each phase reads its own positions of it."""
    x, w, residual = numbers(1, 16, 5, 4), numbers(16, 20, 2, 2, seed=1), numbers(1, 20, 10, 8, seed=2)
    expected = np.maximum(scatter(x, w, strides=(2, 2)) + residual, 0)
    epilogue = ("relu", ("add", arg(0), ACC))
    actual = run_node("ConvTranspose", [x, residual], [w, None], expected.shape, strides=(2, 2), epilogue=epilogue)
    assert_close(actual, expected)


@pytest.mark.slow
def test_output_shape_decides_the_padding() -> None:
    """With ``output_shape``, ONNX puts the larger half of what is cut at the beginning, with SAME_UPPER at the end."""
    x, w = numbers(1, 16, 4, 4), numbers(16, 16, 3, 3, seed=1)
    full = scatter(x, w, strides=(2, 2))
    attrs: dict[str, Any] = {"strides": (2, 2), "output_shape": (8, 8)}
    assert_close(run_node("ConvTranspose", [x], [w], (1, 16, 8, 8), **attrs), full[:, :, 1:9, 1:9])
    attrs["auto_pad"] = "SAME_UPPER"
    assert_close(run_node("ConvTranspose", [x], [w], (1, 16, 8, 8), **attrs), full[:, :, 0:8, 0:8])


def test_outputs_of_groups_that_no_tap_reaches_are_left_to_the_host() -> None:
    """A stride beyond the kernel leaves outputs that are only bias; kernels of groups have no other way to write."""
    x, w = numbers(1, 16, 3, 3), numbers(16, 1, 1, 1, seed=1)
    program = lower_node("ConvTranspose", [x], [w], (1, 16, 5, 5), strides=(2, 2), group=16)
    assert any(isinstance(call, HostCall) for call in program.calls)
    assert "no tap reaches" in program.notes["node"]


@pytest.mark.parametrize(("group", "outputs"), [(1, 16), (16, 1), (2, 8)])
def test_a_phase_without_steps_is_a_convolution_s_kernel(group: int, outputs: int) -> None:
    """Of stride 1 it calls the very kernel that a Conv does; of stride 2 it writes every second position."""
    x, taps = numbers(1, 16, 6, 6), (3, 3)
    (conv,) = kernels(lower_node("Conv", [x], [numbers(16, 16 // group, *taps)], (1, 16, 4, 4), group=group))
    turned = numbers(16, outputs, *taps)
    pads = {"pads": (2, 2, 2, 2), "group": group}
    assert kernels(lower_node("ConvTranspose", [x], [turned], (1, 16, 4, 4), **pads)) == {conv}
    of_steps = kernels(lower_node("ConvTranspose", [x], [turned], (1, 16, 9, 9), strides=(2, 2), **pads))
    assert {desc.op_types for desc in of_steps} == {("ConvTranspose",)}


def kernels(program: Program) -> set[OpDesc]:
    """Return the kernels of convolutions that a program calls."""
    return {desc for desc in program.descriptors() if desc.family.startswith("conv")}
