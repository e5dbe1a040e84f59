"""Gradients of convolutions' weights, beside sums over all positions in float64; every buffer between canaries."""

from __future__ import annotations

import random as drawing
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from kernels.harness import check_canaries, guarded, run_desc, run_program
from kernels.lowered import program_of, random
from kernels.one_node import assert_close
from opbuild.families.blocked import BLOCK
from opbuild.families.conv_weight_gradient import family as gradient
from opbuild.families.conv_weight_gradient_depthwise import family as depthwise
from opbuild.graph.types import Graph, Node, TensorType
from opbuild.graph.weight_layout import block_shape
from opbuild.graph.weight_layout import plain as plain_weights
from opbuild.lowering.context import Options
from opbuild.lowering.lower import lower
from opbuild.program import KernelCall
from opbuild.target.host import host_level
from opbuild.target.level import LEVELS
from support.fuzzing import CAMPAIGN, SEED
from support.machines import HERE
from support.tiers import halved, thinned
from support.without_limits import WithoutLimits

Array = npt.NDArray[Any]

LOWER = next(level for level in LEVELS if level.name == "x86-64-v3")

PLAIN = ((1, 1), (0, 0, 0, 0), (1, 1))

CASES: tuple[tuple[tuple[int, ...], int, tuple[int, ...], tuple[Sequence[int], ...]], ...] = (
    ((1, 1, 1, 1), 1, (1, 1), PLAIN),
    ((1, 16, 1, 1), 16, (3, 3), ((1, 1), (1, 1, 1, 1), (1, 1))),
    ((2, 3, 13, 11), 32, (7, 7), ((2, 2), (3, 3, 3, 3), (1, 1))),
    ((2, 4, 6, 7), 20, (3, 2), ((1, 1), (0, 1, 1, 0), (1, 1))),
    ((3, 32, 8, 7), 48, (3, 3), ((1, 1), (1, 1, 1, 1), (1, 1))),
    ((2, 20, 9, 8), 33, (3, 3), ((2, 1), (1, 0, 1, 2), (1, 1))),
    ((1, 40, 9, 10), 17, (3, 2), ((1, 2), (2, 1, 0, 3), (2, 3))),
    ((4, 64, 5, 5), 64, (1, 1), PLAIN),
    ((2, 33, 6, 6), 16, (1, 1), ((2, 2), (0, 0, 0, 0), (1, 1))),
    ((2, 7, 19), 21, (5,), ((3,), (2, 1), (2,))),
    ((1, 16, 3, 300), 16, (1, 3), ((1, 1), (0, 1, 0, 1), (1, 1))),
)
"""Shape of the data, output channels, kernel, and strides, pads and dilations."""

IN_GROUPS: tuple[tuple[tuple[int, ...], int, int, tuple[int, ...], tuple[Sequence[int], ...]], ...] = (
    ((1, 2, 1, 1), 2, 2, (1, 1), PLAIN),
    ((2, 16, 7, 6), 16, 16, (3, 3), ((1, 1), (1, 1, 1, 1), (1, 1))),
    ((3, 40, 9, 8), 40, 40, (5, 5), ((2, 2), (2, 2, 2, 2), (1, 1))),
    ((2, 33, 9, 10), 33, 33, (3, 2), ((1, 2), (2, 1, 0, 3), (2, 3))),
    ((1, 16, 9, 9), 16, 16, (7, 7), ((1, 1), (3, 3, 3, 3), (1, 1))),
    ((2, 18, 19), 18, 18, (5,), ((3,), (2, 1), (2,))),
    ((1, 16, 40, 40), 16, 16, (3, 3), ((1, 1), (1, 1, 1, 1), (1, 1))),
    ((2, 32, 5, 6), 64, 2, (3, 3), ((1, 1), (1, 1, 1, 1), (1, 1))),
    ((1, 96, 4, 4), 48, 3, (2, 3), ((2, 1), (0, 1, 1, 0), (1, 1))),
)
"""Shape of the data, output channels, groups, kernel, and strides, pads and dilations: each channel a group, or groups
of whole blocks."""


def outputs(size: Sequence[int], kernel: Sequence[int], strides: Any, pads: Any, dilations: Any) -> list[int]:
    """Return the positions of a convolution's output."""
    count = len(size)
    return [
        (size[i] + pads[i] + pads[count + i] - (kernel[i] - 1) * dilations[i] - 1) // strides[i] + 1
        for i in range(count)
    ]


def expected(
    x: Array, dy: Array, kernel: Sequence[int], strides: Any, pads: Any, dilations: Any, groups: int = 1
) -> Array:
    """Return the gradient in float64: for each tap the sum of what it has seen times what came back."""
    if groups > 1:
        parts = zip(np.split(x, groups, 1), np.split(dy, groups, 1), strict=True)
        return np.concatenate([expected(*each, kernel, strides, pads, dilations) for each in parts])
    count = len(kernel)
    sides = [(0, 0), (0, 0), *((pads[i], pads[count + i]) for i in range(count))]
    padded = np.pad(x.astype(np.float64), sides)
    found = np.zeros((dy.shape[1], x.shape[1], *kernel))
    for tap in product(*map(range, kernel)):
        places = [
            slice(tap[i] * dilations[i], tap[i] * dilations[i] + (dy.shape[2 + i] - 1) * strides[i] + 1, strides[i])
            for i in range(count)
        ]
        seen = padded[(slice(None), slice(None), *places)]
        with np.errstate(invalid="ignore"):
            axes = (0, *range(2, 2 + count))
            found[(..., *tap)] = np.tensordot(dy.astype(np.float64), seen, (axes, axes))
    return found


def graph_of(
    x: Array, dy: Array, kernel: Sequence[int], strides: Any, pads: Any, dilations: Any, groups: int = 1
) -> Graph:
    """Return a graph of one gradient."""
    attrs = {"kernel_shape": tuple(kernel), "strides": strides, "pads": pads, "dilations": dilations}
    attrs |= {"group": groups} if groups > 1 else {}
    node = Node("ConvWeightGradient", ("x", "dy"), ("dw",), attrs, "node", "opbuild")
    types = {"x": x, "dy": dy, "dw": np.empty((dy.shape[1], x.shape[1] // groups, *kernel), np.float32)}
    known = {name: TensorType(str(each.dtype), each.shape) for name, each in types.items()}
    return Graph("gradient", (node,), ("x", "dy"), ("dw",), known, {}, 21)


def made(shape: Sequence[int], channels: int, kernel: Sequence[int], geometry: Any) -> tuple[Array, Array]:
    """Return data and what comes back for them."""
    positions = outputs(shape[2:], kernel, *geometry)
    return random(*shape), random(shape[0], channels, *positions, seed=1)


@pytest.mark.parametrize(("shape", "channels", "kernel", "geometry"), CASES)
def test_gradients_are_those_of_all_positions(
    shape: Sequence[int], channels: int, kernel: Sequence[int], geometry: Any
) -> None:
    """Strides, pads and dilations; one channel, channels that fill their blocks or do not; one position, one image."""
    x, dy = made(shape, channels, kernel, geometry)
    program = lower(graph_of(x, dy, kernel, *geometry), host_level())
    families = {call.desc.family for call in program.calls if isinstance(call, KernelCall)}
    assert "conv_weight_gradient" in families
    assert_close(run_program(program, {"x": x, "dy": dy})["dw"], expected(x, dy, kernel, *geometry))


@pytest.mark.parametrize(("shape", "channels", "groups", "kernel", "geometry"), IN_GROUPS)
def test_gradients_of_groups_are_those_of_each_group(
    shape: Sequence[int], channels: int, groups: int, kernel: Sequence[int], geometry: Any
) -> None:
    """Each channel is a group, by one call, or each group has whole blocks, by a call a group; nothing is copied."""
    x, dy = made(shape, channels, kernel, geometry)
    program = lower(graph_of(x, dy, kernel, *geometry, groups), host_level())
    families = [call.desc.family for call in program.calls if isinstance(call, KernelCall)]
    calls = (1, "conv_weight_gradient_depthwise") if groups == channels else (groups, "conv_weight_gradient")
    assert families.count(calls[1]) == calls[0]
    assert families.count("copy") == (groups == channels and channels % BLOCK > 0)
    assert_close(run_program(program, {"x": x, "dy": dy})["dw"], expected(x, dy, kernel, *geometry, groups))


def test_groups_that_end_inside_blocks_are_left_to_the_host() -> None:
    """No kernel sums up products of a part of a block."""
    x, dy = made((2, 12, 5, 5), 6, (3, 3), PLAIN)
    program = lower(graph_of(x, dy, (3, 3), *PLAIN, 3), host_level())
    assert not any(isinstance(call, KernelCall) for call in program.calls)


@pytest.mark.parametrize("single", [False, True])
def test_random_gradients_are_right(single: bool) -> None:
    """Any geometry that fits its data, in any number of tasks."""
    draw = drawing.Random(f"{SEED} weight gradients {single}")
    for _ in range(CAMPAIGN + 4):
        kernel = draw.choice(((1, 1), (3, 3), (2, 3), (5, 1)))
        strides, dilations = ([draw.randint(1, 3) for _ in range(2)] for _ in range(2))
        pads = [draw.randint(0, 2) for _ in range(4)]
        least = [(kernel[i] - 1) * dilations[i] + 1 for i in range(2)]
        size = [max(least[i] - pads[i] - pads[2 + i], 1) + draw.randint(0, 9) for i in range(2)]
        inputs = draw.randint(2, 40)
        wide, groups = (inputs, inputs) if single else (draw.randint(1, 70), 1)
        geometry = (strides, pads, dilations)
        x, dy = made((draw.randint(1, 4), inputs, *size), wide, kernel, geometry)
        program = lower(graph_of(x, dy, kernel, *geometry, groups), host_level())
        found = run_program(program, {"x": x, "dy": dy}, (1, draw.randint(2, 64)))["dw"]
        assert_close(found, expected(x, dy, kernel, *geometry, groups))


@pytest.mark.parametrize("inputs", [3, 32])
def test_every_variant_gives_the_same_sums(inputs: int) -> None:
    """Each register tile that a machine may use, partial sums of images and of rows in memory or not."""
    out, images, channels, taps = (9, 8), 3, 64, 3
    block = gradient.FEW_INPUTS if inputs <= gradient.FEW_INPUTS else 16
    x = random(images, -(-inputs // 16), 10, 11, 16)
    dy = random(images, channels // 16, *out[::-1], 16, seed=1)
    steps = x.strides
    read = np.lib.stride_tricks.as_strided(
        x, (images, x.shape[1], taps, taps, *out[::-1], 16), (*steps[:2], *steps[2:4], *steps[2:])
    )
    wanted = np.einsum("nbyxo,nckKyxi->bocikK", dy.astype(np.float64), read.astype(np.float64))
    wanted = wanted[:, :, :, :block].reshape(channels, -1)
    tried = gradient.candidates(out, images, inputs, channels, HERE)
    assert {each["held"] for each in tried} == {0, 1} or len(tried) > 2
    for variant in thinned(tried, 2):
        written = guarded(wanted.shape)
        run_desc(gradient.describe((taps, taps), inputs, variant), dy, read, written)
        check_canaries(written)
        assert_close(written.view, wanted)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [(3, 3), (5, 5), (7, 1)])
def test_every_variant_for_single_channels_gives_the_same_sums(kernel: tuple[int, int]) -> None:
    """All taps, a row or a column of them or one in registers, partial sums of images and of rows in memory or not."""
    out, images, count = (64, 3), 2, 3
    (across, down), (width, height) = kernel, out
    x = random(images, count, height + down - 1, width + across - 1, 16)
    dy = random(images, count, height, width, 16, seed=1)
    steps = x.strides
    read = np.lib.stride_tricks.as_strided(
        x, (images, count, down, across, height, width, 16), (*steps[:2], *steps[2:4], *steps[2:])
    )
    wanted = np.einsum("nbyxo,nbkKyxo->bokK", dy.astype(np.float64), read.astype(np.float64))
    wanted = wanted.reshape(count * 16, -1)
    tried = depthwise.candidates(out, images, kernel, HERE)
    assert {each["held"] for each in tried} == {0, 1, 2}
    assert {(each["across"], each["down"]) for each in tried} >= {(1, down), (1, 1)}
    for variant in thinned(tried, 2):
        written = guarded(wanted.shape)
        run_desc(depthwise.describe(kernel, variant), dy, read, written)
        check_canaries(written)
        assert_close(written.view, wanted)


@pytest.mark.slow
def test_few_kernels_serve_every_extent_without_limits() -> None:
    """What is asked for at some extents serves others."""
    asked = WithoutLimits()
    for inputs, channels in ((32, 64), (20, 17)):
        x, dy = made((2, inputs, 8, 8), channels, (3, 3), PLAIN)
        lower(graph_of(x, dy, (3, 3), *PLAIN), host_level(), Options(chooser=asked))
    assert sum(desc.family == "conv_weight_gradient" for desc in asked.descs) == 1
    known = {*asked.descs}
    for shape, channels in (((1, 17, 3, 3), 1), ((3, 40, 4, 9), 33), ((4, 48, 5, 5), 48)):
        x, dy = made(shape, channels, (3, 3), PLAIN)
        program = lower(graph_of(x, dy, (3, 3), *PLAIN), host_level(), Options(chooser=asked))
        assert_close(run_program(program, {"x": x, "dy": dy})["dw"], expected(x, dy, (3, 3), *PLAIN))
    assert {desc for desc in asked.descs if desc.family == "conv_weight_gradient"} <= known


@pytest.mark.slow
@pytest.mark.skipif(LOWER not in LEVELS[: LEVELS.index(host_level())], reason="runs no code for AVX2")
@pytest.mark.parametrize(("channels", "groups"), [(33, 1), (20, 20)])
def test_code_for_a_lower_level_is_right(channels: int, groups: int) -> None:
    """Tiles for AVX2's registers, where the machine has larger ones too."""
    geometry = ((1, 1), (1, 1, 1, 1), (1, 1))
    x, dy = made((2, 20, 8, 7), channels, (3, 3), geometry)
    program = lower(graph_of(x, dy, (3, 3), *geometry, groups), LOWER)
    found = run_program(program, {"x": x, "dy": dy}, level=LOWER)["dw"]
    assert_close(found, expected(x, dy, (3, 3), *geometry, groups))


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_what_is_no_number_spoils_only_its_own_channels(number: float) -> None:
    """A channel of data its column, one of what comes back its row; lanes beyond the channels spoil nothing."""
    x, dy = made((2, 20, 5, 5), 18, (3, 3), PLAIN)
    x[1, 19, 2, 2] = number
    program = program_of(graph_of(x, dy, (3, 3), *PLAIN).nodes, {"x": x, "dy": dy}, {"dw": ("float32", (18, 20, 3, 3))})
    found = run_program(program, {"x": x, "dy": dy})["dw"]
    assert np.isfinite(found[:, :19]).all()
    assert not np.isfinite(found[:, 19]).all(axis=(1, 2)).any()
    x[1, 19, 2, 2], dy[0, 17, 1, 1] = 0, number
    found = run_program(program, {"x": x, "dy": dy})["dw"]
    assert np.isfinite(found[:17]).all()
    assert not np.isfinite(found[17]).all(axis=(1, 2)).any()


@pytest.mark.slow
def test_what_is_no_number_spoils_only_its_own_tap_of_single_channels() -> None:
    """A channel's NaN spoils no other channel, nor do lanes beyond the channels."""
    x, dy = made((2, 20, 5, 5), 20, (3, 3), PLAIN)
    x[1, 19, 4, 4] = np.nan  # what the last tap of the last output alone has read
    program = lower(graph_of(x, dy, (3, 3), *PLAIN, 20), host_level())
    found = run_program(program, {"x": x, "dy": dy})["dw"]
    assert np.isfinite(found[:19]).all()
    assert np.isnan(found[19, 0, 2, 2])
    assert np.isfinite(found[19, 0].ravel()[:8]).all()


@pytest.mark.slow
@halved
@pytest.mark.parametrize("kernel", [(3, 3), (1, 1), (3, 2)])
def test_gradients_in_blocks_have_the_same_bits(kernel: Sequence[int]) -> None:
    """Written there by the kernel."""
    geometry = ((1, 1), (1, 1, 0, 0), (1, 1))
    x, dy = made((3, 32, 8, 7), 64, kernel, geometry)
    graph = graph_of(x, dy, kernel, *geometry)
    plain = lower(graph, host_level())
    (node,) = graph.nodes
    shape = block_shape(graph.types["dw"].shape, 16)
    blocked = graph.with_(
        nodes=(node.with_(attrs={**node.attrs, "block": 16}),),
        types={**graph.types, "dw": TensorType("float32", shape)},
    )
    program = lower(blocked, host_level())
    assert any(call.desc.attrs.get("blocked") for call in program.calls if isinstance(call, KernelCall))
    found = run_program(program, {"x": x, "dy": dy})["dw"]
    np.testing.assert_array_equal(
        plain_weights(found, lambda shape: np.empty(shape, np.float32)), run_program(plain, {"x": x, "dy": dy})["dw"]
    )
