"""Winograd's convolution of 8-bit numbers: exact for every value, zero point, extent, register tile and level."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from kernels.harness import check_canaries, guarded, run_desc, run_program
from kernels.test_conv_integer import convolved
from opbuild.families.epilogue import Epilogue
from opbuild.families.family import Variant
from opbuild.families.winograd import family as winograd
from opbuild.families.winograd_integer import family
from opbuild.graph.types import Graph, Node, TensorType
from opbuild.lowering import conv_weights
from opbuild.lowering.lower import lower
from opbuild.operations.expression import ACC, arg
from opbuild.program import KernelCall, Program
from opbuild.target.level import BY_NAME, Level
from opbuild.target.machine import Machine
from support.fuzzing import CAMPAIGN, SEED
from support.machines import TRIED
from support.tiers import thinned

Array = np.ndarray

AVX2 = BY_NAME["x86-64-v3"]
PADS = {"pads": (1, 1, 1, 1)}


def extremes(dtype: str, *shape: int, seed: int = 0) -> Array:
    """Return numbers most of which are at the ends of their type."""
    limits, draw = np.iinfo(dtype), np.random.default_rng(seed)
    ends = np.array([limits.min, limits.max, limits.max, limits.min + 1], dtype)
    return np.where(draw.random(shape) < 0.8, draw.choice(ends, shape), draw.integers(0, 127, shape, dtype))


def program(x: Array, w: Array, zeros: tuple[int, int], attrs: dict[str, Any], level: Level = AVX2) -> Program:
    """Lower a ConvInteger of constant weights and zero points."""
    known = {"w": w, "x_zero": np.array(zeros[0], np.uint8), "w_zero": np.array(zeros[1], w.dtype)}
    types = {name: TensorType(str(array.dtype), array.shape) for name, array in {"x": x, **known}.items()}
    types["y"] = TensorType("int32", convolved(x, w, zeros, attrs).shape)
    node = Node("ConvInteger", ("x", *known), ("y",), attrs, "node")
    return lower(Graph("one", (node,), ("x",), ("y",), types, known), level)


def families(made: Program) -> list[str]:
    """Return the families of a program's calls."""
    return [call.desc.family for call in made.calls if isinstance(call, KernelCall)]


CASES = [
    ((1, 32, 28, 30), 32, (0, 0), "int8"),
    ((2, 40, 13, 57), 33, (255, 0), "int8"),
    ((1, 64, 7, 7), 130, (7, -128), "int8"),
    ((1, 32, 4, 5), 48, (128, 131), "uint8"),
    ((1, 48, 17, 14), 32, (1, 0), "uint8"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_sums_of_extreme_values_are_exact(case: tuple[Any, ...]) -> None:
    """Extents that tiles do not divide, in padding of the zero point; weights that leave int8 less theirs."""
    data, outputs, zeros, dtype = case
    x, w = extremes("uint8", *data), extremes(dtype, outputs, data[1], 3, 3, seed=1)
    made = program(x, w, zeros, PADS)
    assert "winograd_integer" in families(made)
    np.testing.assert_array_equal(run_program(made, {"x": x}, level=AVX2)["y"], convolved(x, w, zeros, PADS))


@pytest.mark.parametrize("value", [0, 255])
def test_the_most_inputs_that_are_taken_leave_int32_alone(value: int) -> None:
    """Four times the greatest sum that there is, of either sign, with weights of nine bits."""
    x = np.full((1, family.MOST_INPUTS, 6, 6), 255, np.uint8)
    w, zeros = np.full((32, family.MOST_INPUTS, 3, 3), value, np.uint8), (0, 255 - value)
    made = program(x, w, zeros, {})
    assert "winograd_integer" in families(made)
    np.testing.assert_array_equal(run_program(made, {"x": x}, level=AVX2)["y"], convolved(x, w, zeros, {}))
    more = np.zeros((32, family.MOST_INPUTS + 1, 3, 3), np.uint8)
    assert "winograd_integer" not in families(program(np.zeros((1, more.shape[1], 6, 6), np.uint8), more, zeros, {}))


@pytest.mark.parametrize("attrs", [{"pads": (0, 0, 0, 0)}, {"pads": (2, 1, 0, 3)}], ids=str)
def test_any_padding_is_served(attrs: dict[str, Any]) -> None:
    """The window begins where the padding says, at the edge of the data or further outside."""
    x, w = extremes("uint8", 1, 32, 18, 17), extremes("int8", 32, 32, 3, 3, seed=1)
    made = program(x, w, (9, 0), attrs)
    assert "winograd_integer" in families(made)
    np.testing.assert_array_equal(run_program(made, {"x": x}, level=AVX2)["y"], convolved(x, w, (9, 0), attrs))


@pytest.mark.parametrize("attrs", [{"strides": (2, 1)}, {"dilations": (1, 2)}, {"group": 2}], ids=str)
def test_other_geometries_are_left_to_the_direct_sum(attrs: dict[str, Any]) -> None:
    """Strides, dilations and groups."""
    x, w = extremes("uint8", 1, 64, 12, 12), extremes("int8", 32, 64 // attrs.get("group", 1), 3, 3, seed=1)
    assert "winograd_integer" not in families(program(x, w, (0, 0), attrs))


def test_where_four_products_are_added_up_at_once_it_is_no_gain() -> None:
    """With VNNI kernels are those of the direct sum."""
    x, w = extremes("uint8", 1, 64, 12, 12), extremes("int8", 64, 64, 3, 3, seed=1)
    assert "winograd_integer" not in families(program(x, w, (0, 0), PADS, BY_NAME["x86-64-v4-bf16"]))


LEVELS = [level for level in TRIED if Machine.of(level).dot == 2]
"""Levels that choose it."""

TILES = [(level, *tile[:2]) for level in LEVELS for tile in family.tiles(Machine.of(level))]
"""Levels with their register tiles."""


@pytest.mark.parametrize(("level", "width", "blocks"), thinned(TILES, 3))
def test_every_tile_writes_its_output_and_nothing_else(level: Level, width: int, blocks: int) -> None:
    """In the least chunk that holds the tile, or in one that it does not divide, of the least blocks or of more."""
    cases = (((-(-width // 2), 2), blocks), ((width + 1, 3), 2 * blocks + 1))
    for chunk, count in cases if CAMPAIGN else (cases[TILES.index((level, width, blocks)) % 2],):
        variant = {"tile": 2, "chunk_x": chunk[0], "chunk_y": chunk[1], "width": width, "blocks": blocks}
        _check(variant, (2 * chunk[0] + 1, 2 * chunk[1]), 1, count, level, (1, 2, 3, 16))


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS, ids=str)
def test_any_shape_in_any_number_of_tasks_writes_its_output_and_nothing_else(level: Level) -> None:
    """The variant that is chosen for an output at random is right in any number of tasks, more than rows and blocks."""
    draw, machine = Random(f"{SEED} {level}"), Machine.of(level)
    for _ in range(CAMPAIGN // 10 if CAMPAIGN else 3):
        size, inputs, count = (draw.randint(4, 40), draw.randint(4, 40)), draw.randint(2, 4), draw.randint(2, 11)
        variant = family.choose(size, 16 * inputs, 16 * count, machine)
        assert variant is not None
        _check(variant, size, inputs, count, level, (1, 2, 3, 5, 16, 64))


def _check(
    variant: Variant, size: tuple[int, int], inputs: int, count: int, level: Level, tasks: tuple[int, ...]
) -> None:
    """Run a variant with a residual on blocks of channels and ``size`` (x, y) outputs, between canaries."""
    (columns, rows), (width, height) = size, winograd.rounded(variant, size)
    image, w = extremes("uint8", 1, 16 * inputs, rows + 2, columns + 2), extremes("int8", 16 * count, 16 * inputs, 3, 3)
    x = extremes("uint8", inputs, height + 2, width + 2, 16)
    x[:, : rows + 2, : columns + 2] = image[0].reshape(inputs, 16, rows + 2, columns + 2).transpose(0, 2, 3, 1)
    u = conv_weights.pack_integer_winograd(w.astype(np.int16))
    out = guarded((count, height, width, 16), "int32")
    bias, residual = extremes("int16", count, 16).astype(np.int32), extremes("uint8", count, height, width, 16)
    epilogue = Epilogue(("sub", ACC, ("cast", "int32", arg(0))), (("residual", "r"),), dtypes=("uint8",))
    desc = family.describe(epilogue, "int32", variant)
    run_desc(desc, x[:, : rows + 2, : columns + 2], u, bias, residual, out, level=level, tasks=tasks)
    check_canaries(out)
    expected = convolved(image, w, (0, 0), {})[0].reshape(count, 16, rows, columns).transpose(0, 2, 3, 1)
    expected = expected + bias[:, None, None] - residual[:, :rows, :columns]
    np.testing.assert_array_equal(out.view[:, :rows, :columns], expected)
    assert not out.view[:, rows:].any()
    assert not out.view[:, :, columns:].any()
