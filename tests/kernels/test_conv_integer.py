"""Integer convolutions: exact for every value, zero point, level and group of channels."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import pytest

from kernels.harness import check_canaries, guarded, run_desc, run_program
from kernels.hostile import Case, image
from opbuild.families.conv_integer import family
from opbuild.families.conv_integer.family import MOST_HALF
from opbuild.families.epilogue import Epilogue
from opbuild.families.family import Variant
from opbuild.families.tiles import Pair
from opbuild.graph.types import Graph, Node, TensorType
from opbuild.lowering.conv_weights import WeightSlice, pack_dense
from opbuild.lowering.lower import lower
from opbuild.operations.expression import ACC, arg
from opbuild.program import KernelCall, Program
from opbuild.target.host import host_level
from opbuild.target.level import BY_NAME, LEVELS, Level
from opbuild.target.machine import Machine
from support.fuzzing import CAMPAIGN, SEED
from support.machines import TRIED
from support.tiers import halved, thinned

Array = np.ndarray

_RNG = np.random.default_rng(0)
_ANY = {"dtype": "uint8", "result": "int32", "least": 1}


def _weights(*shape: int, dtype: str = "int8") -> Array:
    limits = np.iinfo(dtype)
    return _RNG.integers(limits.min, limits.max, shape, dtype, endpoint=True)


_DENSE, _FIRST, _DEPTHWISE = _weights(48, 32, 3, 3), _weights(20, 3, 3, 3), _weights(20, 1, 3, 3)
_ZERO, _PADS = np.array(3, np.uint8), {"pads": [1, 1, 1, 1]}

HOSTILE = {
    "conv_integer": Case("ConvInteger", image(32), lambda _: [_DENSE, _ZERO], _PADS, **_ANY),
    "conv_integer channels": Case(
        "ConvInteger", lambda n: (1, 16 * n, 3, 4), lambda n: [_weights(16 * n, 16 * n, 1, 1)], **_ANY
    ),
    "conv_integer first": Case("ConvInteger", image(3), lambda _: [_FIRST, _ZERO], _PADS, **_ANY),
    "conv_integer_depthwise": Case(
        "ConvInteger", image(20), lambda _: [_DEPTHWISE, _ZERO], {"group": 20, **_PADS}, **_ANY
    ),
    "pool bytes": Case(
        "MaxPool",
        image(20),
        attrs={"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "dilations": [2, 1]},
        least=3,
        dtype="int8",
        result="int8",
    ),
}

LEVELS_HERE = [level for level in LEVELS if level.runs_on(host_level()) and level.name != "x86-64"]


def convolved(x: Array, w: Array, zeros: tuple[int, Any], attrs: dict[str, Any]) -> Array:
    """Return a two-dimensional convolution of numbers less their zero points, added up in int64."""
    (top, left, bottom, right), group = attrs.get("pads", (0, 0, 0, 0)), attrs.get("group", 1)
    (sy, sx), (dy, dx) = attrs.get("strides", (1, 1)), attrs.get("dilations", (1, 1))
    x = np.pad(x.astype(np.int64) - zeros[0], ((0, 0), (0, 0), (top, bottom), (left, right)))
    w = w.astype(np.int64) - np.asarray(zeros[1], np.int64).reshape(-1, 1, 1, 1)
    (count, inputs, kh, kw), outputs = w.shape, len(w) // group
    height, width = (x.shape[2] - (kh - 1) * dy - 1) // sy + 1, (x.shape[3] - (kw - 1) * dx - 1) // sx + 1
    found = np.zeros((len(x), count, height, width), np.int64)
    for ky, kx in np.ndindex(kh, kw):
        taps = x[:, :, ky * dy :: sy, kx * dx :: sx][:, :, :height, :width]
        for g in range(group):
            rows = slice(g * outputs, (g + 1) * outputs)
            found[:, rows] += np.einsum("nchw,oc->nohw", taps[:, g * inputs : (g + 1) * inputs], w[rows, :, ky, kx])
    return found


def program(
    x: Array, w: Array, zeros: tuple[int, Any], shape: Sequence[int], attrs: dict[str, Any], level: Level | None = None
) -> Program:
    """Lower a ConvInteger of constant weights and zero points."""
    known = {"w": w, "x_zero": np.array(zeros[0], np.uint8), "w_zero": np.asarray(zeros[1], w.dtype)}
    types = {name: TensorType(str(array.dtype), array.shape) for name, array in {"x": x, **known}.items()}
    types["y"] = TensorType("int32", tuple(shape))
    node = Node("ConvInteger", ("x", "w", "x_zero", "w_zero"), ("y",), attrs, "node")
    return lower(Graph("one", (node,), ("x",), ("y",), types, known), level or host_level())


GEOMETRIES: dict[str, tuple[int, tuple[int, ...], dict[str, Any]]] = {
    "one row": (20, (33, 20, 1, 3), {"pads": (0, 2, 0, 1), "strides": (1, 2)}),
    "dilated": (3, (5, 3, 3, 2), {"dilations": (2, 3), "pads": (2, 3, 2, 3), "strides": (2, 1)}),
    "groups of 4": (24, (24, 4, 3, 3), {"group": 6, "pads": (1, 1, 1, 1)}),
    "groups of blocks": (64, (32, 32, 1, 1), {"group": 2}),
    "odd groups": (15, (9, 5, 2, 2), {"group": 3, "pads": (0, 1, 1, 0)}),
    "depthwise": (19, (19, 1, 3, 3), {"group": 19, "pads": (1, 1, 1, 1)}),
    "depthwise with a multiplier": (10, (20, 1, 3, 1), {"group": 10}),
}


@halved
@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.parametrize(
    ("dtype", "zeros"), [("int8", (0, 0)), ("int8", (255, -128)), ("uint8", (128, 0)), ("uint8", (1, 131))]
)
def test_sums_of_extreme_values_are_exact(name: str, dtype: str, zeros: tuple[int, int]) -> None:
    """Values whose sums of two or four products leave 16 bits, in padding of the zero point."""
    channels, shape, attrs = GEOMETRIES[name]
    limits = np.iinfo(dtype)
    x = _RNG.choice(np.uint8([0, 254, 255]), (2, channels, 9, 11))
    w = _RNG.choice(np.array([limits.min, limits.max, limits.max - 1], dtype), shape)
    expected = convolved(x, w, zeros, attrs)
    found = run_program(program(x, w, zeros, expected.shape, attrs), {"x": x})["y"]
    np.testing.assert_array_equal(found, expected)


def test_each_output_channel_may_have_a_zero_point() -> None:
    """One for each, some of which leave int8 and some of which do not."""
    x, w = _weights(1, 6, 5, 5, dtype="uint8"), _weights(7, 6, 3, 3, dtype="uint8")
    zeros = (9, np.uint8([0, 255, 128, 1, 77, 200, 31]))
    expected = convolved(x, w, zeros, {})
    np.testing.assert_array_equal(run_program(program(x, w, zeros, expected.shape, {}), {"x": x})["y"], expected)


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS_HERE, ids=str)
def test_code_for_every_level_is_exact(level: Any) -> None:
    """With instructions for four products, for two, and with registers of each size."""
    x, w = np.full((1, 20, 6, 15), 255, np.uint8), np.full((33, 20, 3, 3), -128, np.int8)
    known = {"w": w, "zero": np.array(7, np.uint8)}
    types = {name: TensorType(str(array.dtype), array.shape) for name, array in {"x": x, **known}.items()}
    expected = convolved(x, w, (7, 0), {"pads": (1, 1, 1, 1)})
    types["y"] = TensorType("int32", expected.shape)
    node = Node("ConvInteger", ("x", "w", "zero"), ("y",), {"pads": (1, 1, 1, 1)}, "node")
    made = lower(Graph("one", (node,), ("x",), ("y",), types, known), level)
    np.testing.assert_array_equal(run_program(made, {"x": x}, level=level)["y"], expected)


SMALL = {
    "1 x 1": (40, (33, 40, 1, 1), {}),
    "3 x 3": (19, (20, 19, 3, 3), {"pads": (1, 1, 1, 1), "strides": (2, 2)}),
    "few channels": (3, (35, 3, 7, 7), {"pads": (3, 3, 3, 3), "strides": (2, 2)}),
    "odd groups": (15, (9, 5, 2, 2), {"group": 3, "pads": (0, 1, 1, 0)}),
}


@halved
@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("limit", [MOST_HALF, MOST_HALF + 1])
def test_sums_of_two_products_in_16_bits_are_exact(name: str, limit: int) -> None:
    """The largest weights whose products fit, of either sign, and larger ones, whose products would saturate."""
    level = BY_NAME["x86-64-v3"]
    channels, shape, attrs = SMALL[name]
    x = _RNG.choice(np.uint8([0, 255, 255, 254]), (1, channels, 9, 11))
    w = _RNG.choice(np.int8([-limit, limit, limit, -limit + 1]), shape)
    expected = convolved(x, w, (255, 0), attrs)
    made = program(x, w, (255, 0), expected.shape, attrs, level)
    (desc,) = (call.desc for call in made.calls if isinstance(call, KernelCall) and call.desc.family == "conv_integer")
    assert bool(desc.attrs.get("halves")) is (limit == MOST_HALF)
    np.testing.assert_array_equal(run_program(made, {"x": x}, level=level)["y"], expected)


@halved
@pytest.mark.parametrize("width", [1, 2, 4, 5, 6, 7, 13])
@pytest.mark.parametrize("limit", [MOST_HALF, 127])
def test_every_width_of_a_row_is_exact_at_avx2(width: int, limit: int) -> None:
    """Rows of less than a tile, of one, and of more; more rows than are widened together, and blocks of outputs."""
    level = BY_NAME["x86-64-v3"]
    x = _RNG.choice(np.uint8([0, 255, 255, 254]), (1, 36, 300 // width, width))
    w = _RNG.choice(np.int8([-limit, limit]), (49, 36, 1, 1))
    expected = convolved(x, w, (3, 0), {})
    made = program(x, w, (3, 0), expected.shape, {}, level)
    np.testing.assert_array_equal(run_program(made, {"x": x}, level=level)["y"], expected)


PAIRS = [level for level in TRIED if Machine.of(level).dot == 2]
"""Levels whose tiles cross rows."""

TILES = [(level, *tile[:2]) for level in PAIRS for tile in family.tiles(Machine.of(level))]
"""Levels with their register tiles."""


@pytest.mark.parametrize(("level", "width", "blocks"), thinned(TILES, 3))
def test_tiles_that_cross_rows_write_their_output_and_nothing_else(level: Level, width: int, blocks: int) -> None:
    """Of any window, with a residual, with more positions than are copied together or fewer than a tile has."""
    draw, halves = Random(f"{SEED} {level} {width} {blocks}"), Machine.of(level).halves
    for _ in range(CAMPAIGN // 20 if CAMPAIGN else 2):
        size = (draw.randint(1, 16), draw.choice([1, 2, 5, 80]))
        kernel, stride = draw.choice([(1, 1), (1, 1), (3, 2)]), draw.choice([(1, 1), (2, 1)][: size[0]])
        count = (draw.randint(1, 3), draw.randint(blocks, 2 * blocks + 1))
        _check({"width": width, "blocks": blocks}, size, kernel, stride, count, level, halves and draw.random() < 0.5)


def _check(variant: Variant, size: Pair, kernel: Pair, stride: Pair, count: Pair, level: Level, halves: bool) -> None:
    """Run a variant on blocks of channels ``count`` (in, out) and ``size`` (x, y) outputs, between canaries."""
    (columns, rows), (kx, ky), (sx, sy), (inputs, outputs) = size, kernel, stride, count
    limit, adjacent = MOST_HALF if halves else 127, 4 if halves else 2
    image = _RNG.choice(np.uint8([0, 255, 254]), (1, 16 * inputs, (rows - 1) * sy + ky, (columns - 1) * sx + kx))
    w = _RNG.choice(np.int16([-limit, limit, limit - 1]), (16 * outputs, 16 * inputs, ky, kx))
    x = np.ascontiguousarray(image[0].reshape(inputs, 16, *image.shape[2:]).transpose(0, 2, 3, 1))
    block, row, column, lane = x.strides
    taps = np.lib.stride_tricks.as_strided(
        x, (inputs, ky, kx, rows, columns, 16), (block, row, column, sy * row, sx * column, lane)
    )
    whole = WeightSlice(0, 1, (0, 16 * inputs), (0, 16 * outputs))
    packed = pack_dense(w, whole, adjacent, 16 // adjacent, "int8")
    bias, residual = _weights(outputs, 16, dtype="int32") >> 4, _weights(outputs, rows, columns, 16, dtype="uint8")
    epilogue = Epilogue(("sub", ACC, ("cast", "int32", arg(0))), (("residual", "r"),), dtypes=("uint8",))
    form = ("int8", adjacent, 16 // adjacent)
    desc = family.describe(kernel, stride, (1, 1), form, halves, epilogue, "int32", variant)
    out = guarded((outputs, rows, columns, 16), "int32")
    run_desc(desc, taps, packed, bias, residual, out, level=level, tasks=(1, 2, 3, 16))
    check_canaries(out)
    expected = convolved(image, w, (0, 0), {"strides": (sy, sx)})[0].reshape(outputs, 16, rows, columns)
    expected = expected.transpose(0, 2, 3, 1) + bias[:, None, None] - residual
    np.testing.assert_array_equal(out.view, expected)


@pytest.mark.slow
def test_a_value_read_in_two_paddings_keeps_both_apart() -> None:
    """Two convolutions read one value with different zero points: neither sees the other's padding."""
    x, w = _weights(1, 16, 4, 4, dtype="uint8"), _weights(16, 16, 3, 3)
    known = {"w": w, "zero": np.array(7, np.uint8), "none": np.array(0, np.uint8)}
    types = {name: TensorType(str(array.dtype), array.shape) for name, array in {"x": x, **known}.items()}
    types |= {name: TensorType("int32", (1, 16, 4, 4)) for name in ("first", "second", "third")}
    attrs = {"pads": (1, 1, 1, 1)}
    nodes = tuple(
        Node("ConvInteger", ("x", "w", zero), (name,), attrs, name)
        for name, zero in (("first", "none"), ("second", "zero"), ("third", "none"))
    )
    graph = Graph("three", nodes, ("x",), ("first", "second", "third"), types, known)
    found = run_program(lower(graph, host_level()), {"x": x})
    for name, zero in (("first", 0), ("second", 7), ("third", 0)):
        np.testing.assert_array_equal(found[name], convolved(x, w, (zero, 0), attrs))


def test_a_padding_of_zeros_is_not_written() -> None:
    """Zeros are in memory from the beginning; any other zero point costs a call for each side."""
    x, w = _weights(1, 16, 4, 4, dtype="uint8"), _weights(16, 16, 3, 3)
    attrs = {"pads": (1, 1, 1, 1)}
    counts = [
        sum(isinstance(call, KernelCall) and call.desc.family == "copy" for call in made.calls)
        for made in (program(x, w, (zero, 0), (1, 16, 4, 4), attrs) for zero in (0, 1))
    ]
    assert counts == [0, 4]
