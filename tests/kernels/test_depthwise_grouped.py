"""Depthwise and grouped convolution: any division of channels into groups.

Tiles are those of every level that this machine runs. A campaign runs every level with every tile.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernels.combinations import crossed
from kernels.harness import check_canaries, guarded, run_desc
from kernels.one_node import assert_close, convolve, lower_node, run_node, variants
from opbuild.families.conv_depthwise import family as depthwise
from opbuild.families.conv_grouped import family as grouped
from opbuild.families.epilogue import Epilogue
from opbuild.lowering import conv_weights as packing
from opbuild.operations.expression import ACC
from opbuild.target.level import Level
from opbuild.target.machine import Machine
from support.machines import TRIED
from support.tiers import spread, thinned


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    """Return normally distributed numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    ("data", "kernel", "attrs"),
    [
        ((1, 20, 14, 14), (3, 3), {"pads": (1, 1, 1, 1)}),
        ((2, 48, 9, 7), (5, 5), {"pads": (2, 2, 2, 2), "strides": (2, 2)}),
        ((1, 16, 1, 1), (1, 1), {}),
        ((1, 17, 4, 3), (3, 2), {"dilations": (1, 2)}),
        ((1, 32, 30, 31), (7, 7), {"pads": (3, 3, 3, 3)}),
        ((1, 16, 5, 40), (1, 27), {"pads": (0, 13, 0, 13)}),
    ],
)
def test_depthwise_equals_numpy(data: tuple[int, ...], kernel: tuple[int, int], attrs: dict[str, Any]) -> None:
    """Each channel is convolved with its own kernel."""
    channels = data[1]
    x, w, bias = numbers(*data), numbers(channels, 1, *kernel, seed=1), numbers(channels, seed=2)
    expected = convolve(x, w, bias, group=channels, **attrs)
    program = lower_node("Conv", [x], [w, bias], expected.shape, group=channels, **attrs)
    assert len(variants(program, "conv_depthwise")) == data[0]
    assert_close(run_node("Conv", [x], [w, bias], expected.shape, group=channels, **attrs), expected)


DEPTHWISE, GROUPED_TILES = (
    [(level, tile[0]) for level in TRIED for tile in family.tiles(Machine.of(level))] for family in (depthwise, grouped)
)
TASKS = (1, 2, 3, 16, 64)


@pytest.mark.parametrize(("level", "width"), thinned(DEPTHWISE, 3))
def test_every_depthwise_tile_writes_its_output_and_nothing_else(level: Level, width: int) -> None:
    """At the least extent of a tile, and where it does not divide the row, nothing outside the output changes."""
    epilogue = Epilogue(("clip", ACC, ("const", "float32", "0.0"), ("const", "float32", "6.0")))
    desc = depthwise.describe((3, 3), (1, 1), (1, 1), epilogue, {"width": width})
    for columns, rows, count in ((width, 1, 1), (width + 1, 3, 2), (2 * width - 1, 0, 2), (width, 5, 4)):
        x, w = numbers(count, rows + 2, columns + 2, 16), numbers(count, 3, 3, 16, seed=1)
        out = guarded((count, rows, columns, 16))
        run_desc(desc, x, w, np.zeros((count, 16), np.float32), out, level=level, tasks=TASKS)
        check_canaries(out)
        expected = sum(
            x[:, j : j + rows, i : i + columns].astype(np.float64) * w[:, j, i][:, None, None]
            for j in range(3)
            for i in range(3)
        )
        assert_close(out.view, np.clip(expected, 0, 6))


@pytest.mark.parametrize(("tile", "groups"), thinned(spread(GROUPED_TILES, (1, 2, 5)), 2))
def test_every_grouped_tile_writes_its_output_and_nothing_else(tile: tuple[Level, int], groups: int) -> None:
    """For groups of a block and of parts of blocks, channels in any order, nothing outside the output changes."""
    level, width = tile
    outputs, inputs = 48 if groups == 1 else 40, 10 * groups
    masked = outputs // groups % 16 != 0
    desc = grouped.describe((1, 1), (1, 1), (1, 1), Epilogue(), {"width": width}, masked)
    lanes, segments = packing.group_lanes(outputs, groups)
    order = np.random.default_rng(2).permutation(inputs).astype(np.int32)
    weights = numbers(outputs, inputs // groups, 1, 1, seed=1)
    for columns, rows in ((width, 1), (width + 1, 3), (2 * width - 1, 0)):
        x = numbers(-(-inputs // 16), rows, columns, 16)
        out = guarded((3, rows, columns, 16))
        bias = np.zeros((3, 16), np.float32)
        tables = (order, lanes, segments)
        run_desc(desc, x, packing.pack_grouped(weights), bias, *tables, out, level=level, tasks=TASKS)
        check_canaries(out)
        plain = x.transpose(0, 3, 1, 2).reshape(len(x) * 16, rows, columns)[order]
        result = out.view.transpose(0, 3, 1, 2).reshape(48, rows, columns)
        if rows:
            assert_close(result[None, :outputs], convolve(plain[None], weights, group=groups))


GROUPED = [
    (112, 112, 4),
    (24, 112, 4),
    (96, 256, 2),
    (128, 128, 32),
    (64, 64, 8),
    (60, 20, 20),
    (12, 36, 3),
    (30, 30, 3),
    (8, 16, 8),
]


@pytest.mark.parametrize(("channels", "kernel"), crossed(2, GROUPED, (1, 3)))
def test_grouped_equals_numpy(channels: tuple[int, int, int], kernel: int) -> None:
    """Groups of any number of channels, blocks or parts of blocks."""
    inputs, outputs, groups = channels
    pads = (kernel // 2,) * 4
    x, w = numbers(1, inputs, 6, 9), numbers(outputs, inputs // groups, kernel, kernel, seed=1)
    expected = convolve(x, w, pads=pads, group=groups)
    program = lower_node("Conv", [x], [w], expected.shape, group=groups, pads=pads)
    assert len(variants(program, "conv_grouped")) == 1
    assert_close(run_node("Conv", [x], [w], expected.shape, group=groups, pads=pads), expected)


def test_infinity_never_reaches_another_group() -> None:
    """Groups share channel blocks, but an infinity or NaN of one group leaves the others alone."""
    x, w = numbers(1, 30, 4, 8), numbers(30, 10, 1, 1, seed=1)
    w[3, 2] = -0.0  # a weight of minus zero is a weight: its product with infinity is NaN
    x[0, 2, 1, 1], x[0, 25, 2, 5] = np.inf, np.nan
    expected = convolve(x, w, group=3)
    assert np.isfinite(expected[0, 10:20]).all()
    assert_close(run_node("Conv", [x], [w], expected.shape, group=3), expected)


def test_lanes_of_a_block_belong_to_as_many_groups_as_it_has_segments() -> None:
    """Groups of a block follow each other; lanes beyond the channels belong to none."""
    for outputs, groups in ((48, 3), (20, 20), (68, 4), (34, 17), (16, 1)):
        lanes, segments = packing.group_lanes(outputs, groups)
        assert lanes.reshape(-1)[:outputs].tolist() == [channel * groups // outputs for channel in range(outputs)]
        assert (lanes.reshape(-1)[outputs:] == -1).all()
        for row, count in zip(lanes, segments, strict=True):
            assert sorted(set(row[row >= 0].tolist())) == list(range(row[0], row[0] + count))
