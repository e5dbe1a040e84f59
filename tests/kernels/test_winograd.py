"""Winograd's convolution: all chunkings, extents that tiles do not divide, residuals, special values.

A campaign runs each case with one thread and with two.
"""

from __future__ import annotations

from random import Random

import halide as hl
import numpy as np
import pytest

from kernels.harness import check_canaries, guarded, run_desc
from kernels.one_node import assert_close, convolve, lower_node, run_node, variants
from opbuild.families.blocked import blocks
from opbuild.families.epilogue import Epilogue
from opbuild.families.family import Variant
from opbuild.families.winograd import family as winograd
from opbuild.families.winograd.halide import division
from opbuild.lowering import conv_weights
from opbuild.operations.expression import ACC, arg
from opbuild.target.level import LEVELS, Level
from opbuild.target.machine import Machine
from support.fuzzing import CAMPAIGN, SEED
from support.machines import TRIED
from support.tiers import halved, thinned

TOLERANCE = 2e-5
"""F(4 x 4) multiplies by up to 8 in its transforms; its rounding error is several times that of the direct sum."""

PADS = (1, 1, 1, 1)


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    """Return normally distributed numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


CASES = [
    ((1, 32, 28, 30), 32),
    ((1, 32, 30, 57), 24),
    ((2, 16, 14, 14), 80),
    ((1, 20, 12, 13), 128),
    ((1, 32, 11, 11), 144),
    ((1, 32, 9, 10), 130),
    ((1, 32, 7, 7), 130),
    ((1, 16, 56, 12), 16),
    ((1, 16, 13, 113), 17),
]


@pytest.mark.parametrize("case", CASES)
def test_winograd_equals_the_direct_sum(case: tuple[tuple[int, ...], int]) -> None:
    """Extents that tiles and chunks do not divide give numpy's result, and the halo stays zero."""
    data, outputs = case
    x, w, bias = numbers(*data), numbers(outputs, data[1], 3, 3, seed=1), numbers(outputs, seed=2)
    expected = convolve(x, w, bias, pads=PADS)
    program = lower_node("Conv", [x], [w, bias], expected.shape, pads=PADS)
    assert len(variants(program, "winograd")) == data[0]
    assert_close(run_node("Conv", [x], [w, bias], expected.shape, pads=PADS), expected, TOLERANCE)


@pytest.mark.parametrize("pads", [(0, 0, 0, 0), (2, 1, 0, 3)])
def test_any_padding_is_served(pads: tuple[int, ...]) -> None:
    """The window begins where the padding says, at the edge of the data or further outside."""
    x, w = numbers(1, 16, 18, 17), numbers(16, 16, 3, 3, seed=1)
    expected = convolve(x, w, pads=pads)
    assert variants(lower_node("Conv", [x], [w], expected.shape, pads=pads), "winograd")
    assert_close(run_node("Conv", [x], [w], expected.shape, pads=pads), expected, TOLERANCE)


@pytest.mark.parametrize("extent", [13, 30])
def test_residual_is_read_only_where_it_exists(extent: int) -> None:
    """The output is rounded up to whole tiles; a residual is not, and what lies beyond it does not matter."""
    x, w = numbers(1, 16, extent, extent + 1), numbers(40, 16, 3, 3, seed=1)
    expected = np.maximum(convolve(x, w, pads=PADS) + (residual := numbers(1, 40, extent, extent + 1, seed=3)), 0)
    epilogue = ("relu", ("add", ACC, arg(0)))
    actual = run_node("Conv", [x, residual], [w, None], expected.shape, pads=PADS, epilogue=epilogue)
    assert_close(actual, expected, TOLERANCE)


def test_epilogue_that_maps_zero_to_something_leaves_the_halo_zero() -> None:
    """What lies beyond the valid extents is zero whatever the bias and the epilogue are: the next layer reads it."""
    x, w, bias = numbers(1, 16, 13, 14), numbers(16, 16, 3, 3, seed=1), np.full(16, 5, np.float32)
    expected = np.exp(np.minimum(convolve(x, w, bias, pads=PADS), 3))
    epilogue = ("exp", ("min", ACC, ("const", "float32", "3.0")))
    assert_close(run_node("Conv", [x], [w, bias], expected.shape, pads=PADS, epilogue=epilogue), expected, 1e-4)


def test_nan_stays_within_the_tiles_that_read_it() -> None:
    """Transforms mix a tile's inputs, so an output tile that reads a NaN is NaN as a whole; other tiles are not."""
    x, w = numbers(1, 16, 32, 32), numbers(16, 16, 3, 3, seed=1)
    x[0, 2, 16, 16] = np.nan
    actual = run_node("Conv", [x], [w], x.shape, pads=PADS)
    touched = np.isnan(actual[0, 0])
    assert touched[15:18, 15:18].all()
    touched[12:20, 12:20] = False
    assert not touched.any()


def test_fewer_blocks_than_a_tile_needs_are_refused() -> None:
    """All output blocks together must hold a register tile; ranges that would not are not made."""
    tile = {"tile": 4, "chunk_x": 4, "chunk_y": 4, "width": 8, "blocks": 2}
    blocks = winograd.describe(Epilogue(), tile).outputs[0].dims[3]
    assert blocks.problem(1, 1) is not None
    assert blocks.problem(2, 1) is None


def test_extents_that_are_not_whole_chunks_are_refused() -> None:
    """The descriptor demands rounded extents: the last chunk writes all of its tiles."""
    tile = {"tile": 4, "chunk_x": 7, "chunk_y": 1, "width": 7, "blocks": 2}
    desc = winograd.describe(Epilogue(), tile)
    assert desc.outputs[0].dims[1].problem(28, 16) is None
    assert desc.outputs[0].dims[1].problem(27, 16) is not None
    assert desc.outputs[0].dims[2].problem(6, 1) is not None


@pytest.mark.slow
def test_the_variant_without_limits_takes_any_number_of_tiles() -> None:
    """A size whose tiles no chunk that is there divides is computed tile by tile, and nothing is compiled for it."""
    large = {"tile": 4, "chunk_x": 7, "chunk_y": 7, "width": 5, "blocks": 4}
    open_ = winograd.FAMILY.without_limits(winograd.describe(Epilogue(), large))
    assert open_ == winograd.describe(
        Epilogue(), {name: value if name == "tile" else 1 for name, value in large.items()}
    )
    assert all(open_.outputs[0].dims[axis].problem(4 * count, 16) is None for axis in (1, 2) for count in (1, 6, 7, 13))
    _check(open_.variant, (21, 10), 1, 2, TRIED[0], (1, 2, 16))


TILES = [(level, *tile[:2]) for level in TRIED for tile in winograd.tiles(Machine.of(level))]
"""Levels with their register tiles."""


@pytest.mark.slow
@pytest.mark.parametrize(("level", "width", "blocks"), thinned(TILES, 3))
def test_every_tile_writes_its_output_and_nothing_else(level: Level, width: int, blocks: int) -> None:
    """In the least chunk that holds the tile, or in one that it does not divide, of the least blocks or of more.

    The suite takes them in turn, a campaign both.
    """
    cases = ((4, (-(-width // 2), 2), blocks), (2, (width + 1, 3), 2 * blocks + 1))
    for m, chunk, count in cases if CAMPAIGN else (cases[TILES.index((level, width, blocks)) % 2],):
        variant = {"tile": m, "chunk_x": chunk[0], "chunk_y": chunk[1], "width": width, "blocks": blocks}
        _check(variant, (m * chunk[0] + 1, m * chunk[1]), 1, count, level, (1, 2, 3, 16))


@pytest.mark.slow
@pytest.mark.parametrize("level", TRIED, ids=str)
def test_any_shape_in_any_number_of_tasks_writes_its_output_and_nothing_else(level: Level) -> None:
    """The variant that is chosen for an output at random is right in any number of tasks, more than rows and blocks."""
    draw, machine = Random(f"{SEED} {level}"), Machine.of(level)
    for _ in range(CAMPAIGN // 10 if CAMPAIGN else 4):
        size, inputs, count = (draw.randint(7, 40), draw.randint(7, 40)), draw.randint(1, 3), draw.randint(1, 11)
        variant = winograd.choose(size, 16 * inputs, 16 * count, draw.random() < 0.3, machine)
        if variant is not None:
            _check(variant, size, inputs, count, level, (1, 2, 3, 5, 16, 64))


def _check(
    variant: Variant, size: tuple[int, int], inputs: int, count: int, level: Level, tasks: tuple[int, ...]
) -> None:
    """Run a variant on ``inputs`` and ``count`` blocks of channels and ``size`` (x, y) outputs, between canaries."""
    columns, rows = size
    width, height = winograd.rounded(variant, size)
    image, w = numbers(1, 16 * inputs, rows + 2, columns + 2), numbers(16 * count, 16 * inputs, 3, 3, seed=1)
    x = np.zeros((inputs, height + 2, width + 2, 16), np.float32)
    x[:, : rows + 2, : columns + 2] = image[0].reshape(inputs, 16, rows + 2, columns + 2).transpose(0, 2, 3, 1)
    u = conv_weights.pack_winograd(w, tile=variant["tile"])
    out, bias = guarded((count, height, width, 16)), numbers(count, 16, seed=2)
    desc = winograd.describe(Epilogue(), variant)
    run_desc(desc, x[:, : rows + 2, : columns + 2], u, bias, out, level=level, tasks=tasks)
    check_canaries(out)
    expected = convolve(image, w, bias.reshape(-1))[0].reshape(count, 16, rows, columns).transpose(0, 2, 3, 1)
    assert_close(out.view[:, :rows, :columns], expected, TOLERANCE)
    assert not out.view[:, rows:].any()
    assert not out.view[:, :, columns:].any()


USUAL = (1, 2, 4, 8, 16, 32, 64)
"""Cores of most machines."""

SIZES = [(28, 128), (56, 64), (12, 384)]
"""Extents and output channels, of the networks and others."""


@halved
@pytest.mark.parametrize("level", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize(("extent", "outputs"), SIZES)
def test_tasks_of_any_number_are_about_equal(extent: int, outputs: int, level: str) -> None:
    """Cores work most of the time wherever there are three times as many parts as tasks."""
    machine = Machine.of(next(each for each in LEVELS if each.name == level))
    variant = winograd.choose((extent, extent), 64, outputs, False, machine)
    assert variant is not None
    width, height = winograd.rounded(variant, (extent, extent))
    count, down = blocks(outputs), variant["chunk_y"]
    wanted, which, function = hl.Var("wanted"), hl.Var("which"), hl.Func("function")
    found = division(variant, [hl.Expr(each) for each in (16, width, height, count)], wanted + 1)
    function[wanted, which] = hl.mux(which, [found.rows, found.part, found.blocks])
    rows = height // (variant["tile"] * down)
    parts = rows * down * (count // variant["blocks"])
    for tasks, (each, part, some) in enumerate(np.array(function.realize([64, 3])).T.tolist(), 1):
        number = -(-rows // each) * -(-down // part) * -(-count // some)
        share = rows * down * count / (tasks * -(-number // tasks) * each * part * some)
        assert number == 1 or tasks > 1
        assert some >= variant["blocks"]
        assert part * variant["chunk_x"] >= variant["width"]
        assert share >= (0.7 if tasks in USUAL else 0.5) or parts < 3 * tasks, (tasks, each, part, some)


@pytest.mark.parametrize("tile", [2, 4])
def test_uniform_weights_are_packed_as_one_number(tile: int) -> None:
    """A broadcast view packs to a broadcast view that equals what the same numbers pack to one by one."""
    view = np.broadcast_to(np.float32(0.3), (32, 16, 3, 3))
    packed = conv_weights.pack_winograd(view, tile=tile)
    np.testing.assert_allclose(packed, conv_weights.pack_winograd(view.copy(), tile=tile), rtol=1e-6, atol=1e-8)
    assert not any(packed.strides[1:])
