"""Direct convolution: every geometry, every register tile, epilogues, and the first layer.

Tiles are those of every level that this machine runs. A campaign runs every level with every tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import pytest

from kernels.harness import TASKS, check_canaries, guarded, run_desc, run_program
from kernels.one_node import assert_close, convolve, lower_node, run_node, variants
from opbuild.backend.host.evaluate import evaluate
from opbuild.dtypes import numpy_dtype
from opbuild.families.blocked import BLOCK
from opbuild.families.conv import family as direct
from opbuild.families.conv_first import family as first_layer
from opbuild.families.epilogue import Epilogue
from opbuild.graph.passes.pipeline import optimize
from opbuild.graph.types import Graph, Node, TensorType
from opbuild.kernel.opdesc import OpDesc
from opbuild.lowering import conv_weights as packing
from opbuild.lowering.context import Options
from opbuild.lowering.lower import lower
from opbuild.operations.expression import ACC, arg
from opbuild.target.level import LEVELS, Level
from opbuild.target.machine import Machine
from support.fuzzing import CAMPAIGN, SEED
from support.machines import RUNNABLE, TRIED
from support.tiers import halved, thinned

RELU = ("relu", ACC)
RESIDUAL = ("relu", ("add", arg(0), ACC))


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    """Return normally distributed numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


GEOMETRIES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((1, 32, 9, 11), (48, 32, 1, 1), {}),
    ((2, 20, 9, 11), (37, 20, 3, 3), {"pads": (1, 1, 1, 1), "strides": (2, 2)}),
    ((1, 17, 13, 15), (33, 17, 3, 2), {"pads": (1, 0, 2, 1), "dilations": (2, 3)}),
    ((1, 16, 6, 5), (16, 16, 5, 7), {"pads": (2, 3, 2, 3)}),
    ((1, 40, 8, 8), (16, 40, 1, 1), {"strides": (3, 2)}),
    ((1, 16, 1, 1), (16, 16, 1, 1), {}),
    ((1, 16, 1, 3), (1, 16, 1, 3), {}),
    ((1, 16, 3, 2), (20, 16, 3, 2), {}),
    ((1, 9, 40, 2), (70, 9, 5, 1), {"strides": (4, 1)}),
]


@pytest.mark.parametrize(("data", "weights", "attrs"), GEOMETRIES)
def test_convolution_equals_numpy(data: tuple[int, ...], weights: tuple[int, ...], attrs: dict[str, Any]) -> None:
    """Odd extents, rectangular kernels, strides, dilations, asymmetric padding and batches give numpy's result."""
    x, w, bias = numbers(*data), numbers(*weights, seed=1), numbers(weights[0], seed=2)
    expected = convolve(x, w, bias, **attrs)
    assert_close(run_node("Conv", [x], [w, bias], expected.shape, **attrs), expected)


def test_auto_pad_same_splits_the_padding_as_onnx_says() -> None:
    """SAME_UPPER puts the odd element after the data, SAME_LOWER before it."""
    x, w = numbers(1, 16, 8, 8), numbers(16, 16, 2, 2, seed=1)
    for mode, pads in (("SAME_UPPER", (0, 0, 1, 1)), ("SAME_LOWER", (1, 1, 0, 0))):
        expected = convolve(x, w, pads=pads)
        assert_close(run_node("Conv", [x], [w], expected.shape, auto_pad=mode), expected)


def test_one_dimensional_convolution_is_a_row() -> None:
    """A Conv over one dimension is the two-dimensional one with height 1."""
    x, w = numbers(2, 40, 50), numbers(33, 40, 3, seed=1)
    expected = convolve(x[:, :, None], w[:, :, None], pads=(0, 1, 0, 2), strides=(1, 2))[:, :, 0]
    assert_close(run_node("Conv", [x], [w], expected.shape, pads=(1, 2), strides=(2,)), expected)


FIRST_LAYERS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((1, 3, 37, 41), (24, 3, 7, 7), {"pads": (3, 3, 3, 3), "strides": (2, 2)}),
    ((2, 1, 5, 3), (16, 1, 3, 3), {"pads": (1, 1, 1, 1)}),
    ((1, 4, 20, 20), (40, 4, 3, 3), {"dilations": (2, 2)}),
    ((1, 3, 1, 1), (8, 3, 1, 1), {}),
    ((1, 2, 9, 30), (16, 2, 4, 3), {"pads": (0, 2, 3, 1), "strides": (1, 3)}),
]


@pytest.mark.parametrize("layer", FIRST_LAYERS)
def test_first_layer_reads_a_plain_image(layer: tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]) -> None:
    """Few channels are read as they lie, padding included."""
    data, weights, attrs = layer
    x, w, bias = numbers(*data), numbers(*weights, seed=1), numbers(weights[0], seed=2)
    expected = convolve(x, w, bias, **attrs)
    program = lower_node("Conv", [x], [w, bias], expected.shape, **attrs)
    assert len(variants(program, "conv_first")) == data[0]
    assert_close(run_node("Conv", [x], [w, bias], expected.shape, **attrs), expected)


TILES = [(level, *tile[:2]) for level in TRIED for tile in direct.tiles(Machine.of(level))]
"""Levels with their register tiles."""

FIRST_TILES = [(level, *tile[:2]) for level in TRIED for tile in first_layer.tiles(Machine.of(level))]


@pytest.mark.parametrize(("level", "width", "blocks"), thinned(TILES, 3))
def test_every_tile_writes_its_output_and_nothing_else(level: Level, width: int, blocks: int) -> None:
    """At the least extents of a tile, and where it does not divide them, nothing outside the output changes.

    There are extents of which ranges are rows, and some of which they are blocks or both.
    """
    tile = {"width": width, "blocks": blocks, "chunked": False}
    desc = direct.describe((1, 1), (1, 1), (1, 1), Epilogue(RELU), tile)
    several = (
        (width + 1, 3, blocks + 1),
        (2 * width - 1, 2, 2 * blocks - 1),
        (width, 6, blocks),
        (width, 2, 6 * blocks),
    )
    for columns, rows, count in ((width, 1, blocks), *several):
        _check_direct(desc, (columns, rows), 1, count, 1, level)


BRAIN = numpy_dtype("bfloat16")
PAIRS = next(level for level in LEVELS if Machine.of(level).pairs)
runs_pairs = pytest.mark.skipif(PAIRS not in RUNNABLE, reason="this machine has no dot product of bfloat16")


def packed_pairs(weights: np.ndarray) -> np.ndarray:
    """Return weights as the operand of pairs has them."""
    packed = packing.pack_pairs(weights)
    return packed.reshape(*packed.shape[:5], 32)


@runs_pairs
@pytest.mark.parametrize(("width", "blocks"), thinned([tile[:2] for tile in direct.tiles(Machine.of(PAIRS))], 3))
def test_every_tile_of_pairs_writes_its_output_and_nothing_else(width: int, blocks: int) -> None:
    """Products of bfloat16 in pairs have the sums of float64, in ranges of rows and of blocks."""
    kernel, tile = 3 if (width, blocks) in ((14, 2), (1, 1)) else 1, {"width": width, "blocks": blocks}
    desc = direct.describe((kernel, kernel), (1, 1), (1, 1), Epilogue(RELU), {**tile, "chunked": False}, pairs=True)
    for columns, rows, count in ((width, 1, blocks), (2 * width - 1, 6, 2 * blocks - 1), (width + 1, 2, 6 * blocks)):
        _check_direct(desc, (columns, rows), 2, count, kernel, PAIRS)


PAIRED: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((1, 32, 9, 11), (48, 32, 1, 1), {}),
    ((2, 20, 9, 11), (37, 20, 3, 3), {"pads": (1, 1, 1, 1), "strides": (2, 2)}),
    ((1, 41, 8, 8), (42, 41, 1, 1), {"strides": (3, 2)}),
]


def brain_graph(x: np.ndarray, w: np.ndarray, attrs: dict[str, Any], shape: Sequence[int]) -> Graph:
    """Return a convolution of bfloat16 as models have it."""
    types = {"x": TensorType("bfloat16", x.shape), "w": TensorType("bfloat16", w.shape)}
    types["y"] = TensorType("bfloat16", tuple(shape))
    node = Node("Conv", ("x", "w"), ("y",), attrs, "node")
    return Graph("brain", (node,), ("x",), ("y",), types, {"w": w}, 22)


@runs_pairs
@halved
@pytest.mark.parametrize(("data", "weights", "attrs"), PAIRED)
@pytest.mark.parametrize("special", [False, True])
def test_convolutions_of_bfloat16_are_added_up_in_pairs(
    data: tuple[int, ...], weights: tuple[int, ...], attrs: dict[str, Any], special: bool
) -> None:
    """Channels beyond a block, strides and padding; NaN and infinity reach the sums that read them, and no other."""
    x, w = numbers(*data).astype(BRAIN), numbers(*weights, seed=1).astype(BRAIN)
    if special:
        x[0, 3, 0, 0], x[0, 7, 4, 6], x[-1, -1, 6, 3], x[0, 0, 2, 2] = np.nan, np.inf, -np.inf, 3e38
    expected = convolve(x, w, **attrs)
    program = lower(optimize(brain_graph(x, w, attrs, expected.shape), evaluate), PAIRS)
    (desc,) = (desc for desc in program.descriptors() if desc.family == "conv")
    assert desc.attrs["pairs"]
    actual = run_program(program, {"x": x}, level=PAIRS)["y"].astype(np.float32)
    np.testing.assert_array_equal(np.isnan(actual), np.isnan(expected))
    with np.errstate(over="ignore"):
        rounded = expected.astype(np.float32).astype(BRAIN).astype(np.float32)
    np.testing.assert_allclose(actual, rounded, rtol=2.0**-7, atol=1e-5)


@pytest.mark.parametrize("level", LEVELS, ids=str)
def test_pairs_are_for_levels_with_an_instruction_for_them(level: Level) -> None:
    """Elsewhere, in high precision, in float16, and for few outputs, weights are float32."""
    cases = [((1, 1), {}, "bfloat16", "high_performance", True), ((1, 1), {}, "bfloat16", "high_precision", False)]
    cases += [((1, 1), {}, "float16", "high_performance", False)]
    cases += [((3, 3), {"strides": (2, 2)}, "bfloat16", "high_performance", True)]
    cases += [((3, 3), {"dilations": (2, 2)}, "bfloat16", "high_performance", True)]
    for kernel, attrs, dtype, mode, pairs in cases:
        x, w = numbers(1, 32, 9, 9), numbers(40, 32, *kernel, seed=1).astype(numpy_dtype(dtype))
        graph = brain_graph(x, w, attrs, convolve(x, w, **attrs).shape)
        types = {name: TensorType(dtype, kind.shape) for name, kind in graph.types.items()}
        program = lower(optimize(graph.with_(types=types), evaluate), level, Options(impl_mode=mode))
        found = [desc.attrs.get("pairs", False) for desc in program.descriptors() if desc.family == "conv"]
        assert found == [pairs and Machine.of(level).pairs]
    assert not direct.worth_pairs(16, Machine.of(level))


@halved
@pytest.mark.parametrize("level", TRIED, ids=str)
@pytest.mark.parametrize("kernel", [1, 3])
def test_chunks_of_input_channels_add_up(kernel: int, level: Level) -> None:
    """Several chunks or one, more rows than pass over a chunk at once, and blocks beyond a tile."""
    width, blocks = (4, 2) if Machine.of(level).lanes == 16 else (2, 1)
    tile = {"width": width, "blocks": blocks, "chunked": True}
    desc = direct.describe((kernel, kernel), (1, 1), (1, 1), Epilogue(RELU), tile)
    for columns, rows, inputs, count in ((1, 1, 1, 2), (2, 9, 5, 3), (3, 17, 4, 5), (1, 18, 2, 2)):
        _check_direct(desc, (columns * width, rows), inputs, count, kernel, level)
    assert desc.outputs[0].dims[1].problem(width + 1, 16) is not None


JOINING = [
    (level, *tile[:2])
    for level in TRIED
    for tile in direct.tiles(Machine.of(level))
    if Machine.of(level).vectors(BLOCK) in direct.JOINING and tile[0] > 1
]


@pytest.mark.parametrize(("level", "width", "blocks"), JOINING)
def test_tiles_that_pass_over_the_ends_of_rows_write_the_output_and_nothing_else(
    level: Level, width: int, blocks: int
) -> None:
    """Tiles pass over the ends of rows of any length, as long as a tile too, read residuals there, and skip halos."""
    tile = {"width": width, "blocks": blocks, "chunked": False, "joined": True}
    desc = direct.describe((1, 1), (2, 1), (1, 1), Epilogue(RESIDUAL, (("residual", "r"),)), tile)
    for columns, rows, count in ((width, 1, blocks), (width, 5, blocks + 1), (width + 1, 4, 5 * blocks)):
        image, w = numbers(1, 32, rows, 2 * columns), numbers(16 * count, 32, 1, 1, seed=1)
        residual = numbers(count, rows, columns, 16, seed=2)
        out = guarded((count, rows, columns, 16), strides=(rows * (columns + 2) * 16, (columns + 2) * 16, 16, 1))
        blocked = np.ascontiguousarray(image[0].reshape(2, 16, rows, -1).transpose(0, 2, 3, 1))[:, :, ::2]
        x, bias = blocked[:, None, None], np.zeros((count, 16), np.float32)
        run_desc(desc, x, packing.pack_direct(w), bias, residual, out, level=level)
        check_canaries(out)
        sums = convolve(image, w, strides=(1, 2))[0].reshape(count, 16, rows, columns).transpose(0, 2, 3, 1)
        assert_close(out.view, np.maximum(sums + residual, 0))


@pytest.mark.parametrize("level", TRIED, ids=str)
def test_any_shape_in_any_number_of_tasks_writes_its_output_and_nothing_else(level: Level) -> None:
    """The variant that is chosen for an output at random is right in any number of tasks, more than rows and blocks."""
    draw, machine = Random(f"{SEED} {level}"), Machine.of(level)
    for _ in range(CAMPAIGN // 10 if CAMPAIGN else 4):
        columns, rows, inputs, count = draw.randint(1, 30), draw.randint(1, 9), draw.randint(1, 3), draw.randint(1, 9)
        kernel, depth = draw.choice((1, 1, 3)), draw.choice((inputs, 100))
        variant = direct.choose((columns, rows), 16 * depth, 16 * count, kernel * kernel, False, machine)
        desc = direct.describe((kernel, kernel), (1, 1), (1, 1), Epilogue(RELU), variant)
        tasks = (1, *(draw.choice((2, 3, 5, 16, 64)) for _ in range(2)))
        _check_direct(desc, (columns, rows), inputs, count, kernel, level, tasks)


def _check_direct(
    desc: OpDesc,
    size: tuple[int, int],
    inputs: int,
    count: int,
    kernel: int,
    level: Level | None = None,
    tasks: Sequence[int] = TASKS,
) -> None:
    """Run a descriptor on ``inputs`` and ``count`` blocks of channels and ``size`` (x, y) outputs, between canaries."""
    columns, rows = size
    image = numbers(1, 16 * inputs, rows + kernel - 1, columns + kernel - 1)
    w, pack = numbers(16 * count, 16 * inputs, kernel, kernel, seed=1), packing.pack_direct
    if desc.attrs.get("pairs"):
        image, w, pack = (*(each.astype(BRAIN).astype(np.float32) for each in (image, w)), packed_pairs)
    out = guarded((count, rows, columns, 16))
    blocked = np.ascontiguousarray(image[0].reshape(inputs, 16, *image.shape[2:]).transpose(0, 2, 3, 1))
    windows = np.lib.stride_tricks.sliding_window_view(blocked, (kernel, kernel), axis=(1, 2))
    x, bias = windows.transpose(0, 4, 5, 1, 2, 3), np.zeros((count, 16), np.float32)
    run_desc(desc, x, pack(w), bias, out, level=level, tasks=tasks)
    check_canaries(out)
    expected = np.maximum(convolve(image, w), 0)[0].reshape(count, 16, rows, columns).transpose(0, 2, 3, 1)
    assert_close(out.view, expected)


@pytest.mark.parametrize(("width", "blocks"), [(1, 1), (1, 4), (2, 2), (7, 3), (14, 2)])
def test_extents_below_a_tile_are_refused(width: int, blocks: int) -> None:
    """An extent below a tile is not legal; a tile of one position by one block has no least extent."""
    desc = direct.describe((1, 1), (1, 1), (1, 1), Epilogue(), {"width": width, "blocks": blocks, "chunked": False})

    def problem(columns: int, count: int) -> str | None:
        image = [(16, 1), (columns, 16), (1, 16 * columns), (1, 16), (1, 16), (1, 16 * columns)]
        weights = [(16, 1), (16, 16), (1, 256), (1, 256), (1, 256), (count, 256)]
        out = [(16, 1), (columns, 16), (1, 16 * columns), (count, 16 * columns)]
        return desc.problem([image, weights, [(16, 1), (count, 16)], out])

    assert problem(width, blocks) is None
    assert (problem(width - 1, blocks) is None) == (width == 1)
    assert (problem(width, blocks - 1) is None) == (blocks == 1)


def test_no_position_and_no_block_are_legal_for_the_smallest_tile() -> None:
    """Extents of 0 write nothing."""
    desc = direct.describe((1, 1), (1, 1), (1, 1), Epilogue(), {"width": 1, "blocks": 1, "chunked": False})
    for shape in ((0, 2, 3, 16), (2, 0, 3, 16), (2, 2, 0, 16)):
        out = guarded(shape)
        x = np.zeros((1, 1, 1, shape[1], shape[2], 16), np.float32)
        w = np.zeros((shape[0], 1, 1, 1, 16, 16), np.float32)
        run_desc(desc, x, w, np.zeros((shape[0], 16), np.float32), out)
        check_canaries(out)


@pytest.mark.parametrize(("level", "width", "count"), thinned(FIRST_TILES, 3))
def test_every_tile_of_a_first_layer_writes_its_output_and_nothing_else(level: Level, width: int, count: int) -> None:
    """At its least extents, with more tasks than rows and with a last group of rows that is not full."""
    tile = {"width": width, "blocks": count, "rows": 8}
    desc = first_layer.describe((3, 3), (2, 1), (1, 1), (1, 1), Epilogue(), tile)
    w = numbers(16 * count, 2, 3, 3, seed=1)
    for columns, rows in ((width, 1), (width + 1, 3), (2 * width, 21)):
        x, out = numbers(2, rows, 2 * columns), guarded((count, rows, columns, 16))
        bias = np.zeros((count, 16), np.float32)
        run_desc(desc, x, packing.pack_first(w), bias, out, level=level, tasks=(1, 2, 3, 16, 64))
        check_canaries(out)
        expected = convolve(x[None], w, strides=(1, 2), pads=(1, 1, 1, 1))
        assert_close(out.view.transpose(0, 3, 1, 2).reshape(expected.shape), expected)


def test_epilogue_reads_residuals_channels_and_scalars() -> None:
    """A fused expression is applied to each output, with operands in the order of the node."""
    x, w, bias = numbers(1, 24, 9, 10), numbers(40, 24, 1, 1, seed=1), numbers(40, seed=2)
    scale, residual = numbers(40, 1, 1, seed=3), numbers(1, 40, 9, 10, seed=4)
    epilogue = ("mul", ("relu", ("add", ("mul", arg(0), ACC), arg(2))), arg(1))
    expected = np.maximum(convolve(x, w, bias) * scale + residual, 0) * 0.5
    constants = [w, bias, scale, np.array(0.5, np.float32)]
    actual = run_node("Conv", [x, residual], constants, expected.shape, epilogue=epilogue)
    assert_close(actual, expected)


def test_order_of_a_sum_does_not_change_the_descriptor() -> None:
    """``conv + x`` and ``x + conv`` are one operator."""
    x, w, residual = numbers(1, 16, 8, 8), numbers(16, 16, 1, 1), numbers(1, 16, 8, 8)
    descs = [
        next(
            call.desc  # type: ignore[union-attr]
            for call in lower_node("Conv", [x, residual], [w, None], x.shape, epilogue=epilogue).calls
            if call.desc.family == "conv"  # type: ignore[union-attr]
        )
        for epilogue in (("add", arg(0), ACC), ("add", ACC, arg(0)))
    ]
    assert descs[0] == descs[1]


def test_lanes_beyond_the_channels_stay_finite() -> None:
    """Where an epilogue of zero is infinite, padding lanes get another bias: they never become NaN downstream."""
    x, w, bias = np.abs(numbers(1, 16, 4, 8)) + 1, np.abs(numbers(20, 16, 1, 1)), np.ones(20, np.float32)
    expected = 1 / convolve(x, w, bias)
    program = lower_node("Conv", [x], [w, bias], expected.shape, epilogue=("reciprocal", ACC))
    packed = [buffer.pack() for buffer in program.buffers if buffer.pack is not None and buffer.size == 32]
    assert [float(lanes.reshape(-1)[-1]) for lanes in packed] == [1.0]
    assert_close(run_node("Conv", [x], [w, bias], expected.shape, epilogue=("reciprocal", ACC)), expected)


def test_infinities_and_nan_come_through_as_sums_of_products_give_them() -> None:
    """A relu keeps NaN; an infinity times a weight is an infinity; padding lanes never mix in."""
    x, w = numbers(1, 20, 6, 9), numbers(20, 20, 1, 1, seed=1)
    x[0, 3, 2, 4], x[0, 19, 5, 8], x[0, 0, 0, 0] = np.nan, np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        expected = np.maximum(convolve(x, w), 0)
    assert_close(run_node("Conv", [x], [w], expected.shape, epilogue=RELU), expected)


def test_equal_geometry_of_other_extents_is_one_descriptor() -> None:
    """Channels and extents travel in the buffers: two layers of one kind need one kernel."""
    descs = []
    for channels, extent in ((64, 14), (128, 28)):
        x, w = numbers(1, channels, extent, extent), numbers(2 * channels, channels, 1, 1)
        program = lower_node("Conv", [x], [w], (1, 2 * channels, extent, extent))
        descs += [call.desc for call in program.calls if call.desc.family == "conv"]  # type: ignore[union-attr]
    assert descs[0] == descs[1]


def test_only_distances_along_a_row_are_in_the_key() -> None:
    """Strides and dilations down the image are those of the buffers; along a row they are worth 4% of the time."""
    keys = {}
    for name, attrs in {
        "plain": {},
        "down": {"strides": (3, 1), "dilations": (2, 1)},
        "across": {"strides": (1, 2)},
        "spread": {"dilations": (1, 2)},
    }.items():
        x, w = numbers(1, 16, 16, 32), numbers(16, 16, 2, 2)
        shape = convolve(x, w, **attrs).shape
        program = lower_node("Conv", [x], [w], shape, **attrs)
        keys[name] = next(call.desc for call in program.calls if call.desc.family == "conv").inputs  # type: ignore[union-attr]
    assert keys["plain"] == keys["down"]
    assert len({keys["plain"], keys["across"], keys["spread"]}) == 3


def test_dilation_of_a_single_tap_is_not_in_the_key() -> None:
    """A 1 x 1 convolution is the same operator whatever dilation it states."""
    x, w = numbers(1, 16, 8, 8), numbers(16, 16, 1, 1)
    descs = [
        next(
            call.desc  # type: ignore[union-attr]
            for call in lower_node("Conv", [x], [w], x.shape, dilations=dilations).calls
            if call.desc.family == "conv"  # type: ignore[union-attr]
        )
        for dilations in ((1, 1), (3, 2))
    ]
    assert descs[0] == descs[1]
