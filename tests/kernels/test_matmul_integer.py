"""Matrix products of bytes: exact at the ends of the types, with every zero point, on every level that runs here."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from kernels.hostile import Case
from kernels.small_models import (
    Array,
    assert_as_onnxruntime,
    families_of,
    model_of,
    program_of,
    run_model,
)
from opbuild.families.conv_integer.family import MOST_HALF
from opbuild.families.matmul_integer.family import MOST_EXCESS, panel
from opbuild.target.host import host_problem
from opbuild.target.level import BY_NAME, LEVELS, Level
from opbuild.target.machine import Machine
from support.comparison import exact_weights
from support.fuzzing import CAMPAIGN, SEED
from support.tiers import halved

HERE = [level for level in LEVELS if host_problem(level) is None and level.name != "x86-64"]

BYTES = ("uint8", "int8")

HOSTILE = {
    "matmul_integer": Case(
        "MatMulInteger",
        lambda n: (n, 21),
        lambda n: [np.resize(np.int8([-128, 127, 5, -3, 0]), (21, 2 * n))],
        dtype="uint8",
        result="int32",
    ),
    "matmul_integer inner": Case(
        "MatMulInteger",
        lambda n: (5, n),
        lambda n: [np.resize(np.uint8([0, 255, 5, 130]), (n, 40)), np.int8(-7), np.uint8(131)],
        least=1,  # ONNX Runtime leaves sums of nothing as its memory was
        dtype="int8",
        result="int32",
    ),
}


def extremes(dtype: str, shape: tuple[int, ...], seed: int = 0) -> Array:
    """Return bytes of which most are at the ends of their type: their sums of pairs do not fit into 16 bits."""
    info, rng = np.iinfo(dtype), np.random.default_rng(seed)
    drawn = rng.integers(info.min, info.max, shape, dtype, endpoint=True)
    ends = rng.choice(np.array([info.min, info.max, info.max], dtype), shape)
    return np.where(rng.random(shape) < 0.8, ends, drawn)


def product(a: Array, b: Array, za: Array | int = 0, zb: Array | int = 0) -> Array:
    """Return the product as int32, which wraps."""
    wide = np.matmul(a.astype(np.int64) - za, b.astype(np.int64) - zb)
    return wide.astype(np.int32)


@halved
@pytest.mark.parametrize("level", HERE, ids=str)
@pytest.mark.parametrize("types", [(a, b) for a in BYTES for b in BYTES], ids="-".join)
def test_products_of_extreme_bytes_are_exact(types: tuple[str, str], level: Level) -> None:
    """Sums of two products exceed 16 bits, which an instruction for pairs of bytes would saturate; odd K, M and N."""
    a, b = extremes(types[0], (7, 131)), extremes(types[1], (131, 35), 1)
    node = helper.make_node("MatMulInteger", ["a", "b"], ["y"])
    model = model_of([node], {"a": a}, {"y": "int32"}, {"b": b})
    np.testing.assert_array_equal(run_model(model, {"a": a}, level)["y"], product(a, b))


@halved
@pytest.mark.parametrize("k", [0, 1, 4, 7, 64])
@pytest.mark.parametrize("shape", [(1, 1), (1, 33), (13, 32), (5, 200)], ids=str)
def test_any_number_of_products_is_summed_up(shape: tuple[int, int], k: int) -> None:
    """Groups of four along K, and what is left of them."""
    a, b = extremes("uint8", (shape[0], k)), extremes("int8", (k, shape[1]), 1)
    node = helper.make_node("MatMulInteger", ["a", "b"], ["y"])
    model = model_of([node], {"a": a}, {"y": "int32"}, {"b": b})
    np.testing.assert_array_equal(run_model(model, {"a": a})["y"], product(a, b))


@halved
@pytest.mark.parametrize("k", [1, 4, 7, 131])
@pytest.mark.parametrize("shape", [(1, 1), (1, 33), (13, 32), (5, 200)], ids=str)
@pytest.mark.parametrize("limit", [MOST_HALF, MOST_HALF + 1])
def test_sums_of_two_products_in_16_bits_are_exact(shape: tuple[int, int], k: int, limit: int) -> None:
    """The largest numbers whose products fit, of either sign, and larger ones, whose products would saturate."""
    level, draw = BY_NAME["x86-64-v3"], np.random.default_rng(0)
    a, b = draw.choice(np.uint8([255, 255, 0]), (shape[0], k)), draw.choice(np.int8([-limit, limit]), (k, shape[1]))
    model = model_of([helper.make_node("MatMulInteger", ["a", "b"], ["y"])], {"a": a}, {"y": "int32"}, {"b": b})
    found = {bool(desc.attrs.get("halves")) for desc in program_of(model, level).descriptors()}
    assert (True in found) is (limit == MOST_HALF or k == 1)  # a single product fits
    np.testing.assert_array_equal(run_model(model, {"a": a}, level)["y"], product(a, b))


@halved
@pytest.mark.parametrize("seed", range(6 * (CAMPAIGN or 1)))
def test_few_sums_beyond_16_bits_are_made_up_for(seed: int) -> None:
    """Pairs of any two bytes here and there: what they have too much is multiplied apart; many are taken exactly."""
    level, draw = BY_NAME["x86-64-v3"], np.random.default_rng([SEED, seed])
    (m, n), k = draw.integers(1, (14, 70)), int(draw.integers(64, 400))
    b = draw.integers(-50, 51, (k, n), np.int8)
    most = int(MOST_EXCESS * k) + seed % 2
    for start in range(0, n, panel(Machine.of(level))):
        for pair in draw.choice(k // 2, most if start == 0 else draw.integers(most + 1), replace=False):
            column = draw.integers(start, min(n, start + panel(Machine.of(level))))
            b[2 * pair : 2 * pair + 2, column] = draw.choice([(127, 127), (-128, -128), (64, 65), (-127, -2), (2, 127)])
    a = draw.choice(np.uint8([255, 255, 255, 254, 0]), (m, k))
    model = model_of([helper.make_node("MatMulInteger", ["a", "b"], ["y"])], {"a": a}, {"y": "int32"}, {"b": b})
    (attrs,) = (desc.attrs for desc in program_of(model, level).descriptors())
    assert bool(attrs.get("excess")) is (seed % 2 == 0)
    np.testing.assert_array_equal(run_model(model, {"a": a}, level)["y"], product(a, b))


ZEROS = {
    "none": ((), ()),
    "one": ((), ()),
    "rows": ((6,), ()),
    "columns": ((), (37,)),
    "both": ((6,), (37,)),
}


FORMS = [(a, b, "known") for a in BYTES for b in BYTES] + [("int8", "uint8", "at run time")]


@halved
@pytest.mark.parametrize("form", ZEROS)
@pytest.mark.parametrize("types", FORMS, ids="-".join)
def test_zero_points_of_both_sides_are_exact(types: tuple[str, str, str], form: str) -> None:
    """One number, one a row, one a column; the right operand and the zero points known or not."""
    a, b = extremes(types[0], (6, 21)), extremes(types[1], (21, 37), 1)
    rows, columns = ZEROS[form]
    za, zb = extremes(types[0], rows, 2), extremes(types[1], columns, 3)
    given = {"b": b} if form == "none" else {"b": b, "za": za, "zb": zb}
    node = helper.make_node("MatMulInteger", ["a", *given], ["y"])
    feeds = {"a": a} if types[2] == "known" else {"a": a, **given}
    model = model_of([node], feeds, {"y": "int32"}, given if types[2] == "known" else {})
    left = za.astype(np.int64)[:, None] if rows else int(za)
    expected = product(a, b) if form == "none" else product(a, b, left, zb.astype(np.int64))
    np.testing.assert_array_equal(run_model(model, feeds)["y"], expected)


SHAPES = (
    ((2, 3, 5, 9), (9, 40)),
    ((2, 1, 5, 9), (3, 9, 17)),
    ((9,), (9, 40)),
    ((5, 9), (9,)),
    ((9,), (9,)),
    ((1, 8), (2, 8, 4)),
)


@pytest.mark.slow
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_batches_and_vectors_follow_numpys_rules(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    """Known and unknown right operands, broadcast batches, zero points of both sides."""
    a, b = extremes("int8", shapes[0]), extremes("uint8", shapes[1], 1)
    node = helper.make_node("MatMulInteger", ["a", "b", "za", "zb"], ["y"])
    known = {"za": np.int8(-100), "zb": np.uint8(200)}
    for feeds in ({"a": a}, {"a": a, "b": b}):
        model = model_of([node], feeds, {"y": "int32"}, known | ({} if "b" in feeds else {"b": b}))
        np.testing.assert_array_equal(run_model(model, feeds)["y"], product(a, b, -100, 200))


def test_nothing_else_runs_where_weights_are_signed_and_centred() -> None:
    """uint8 by int8 whose zero point is 0 is one kernel, corrections included."""
    a, b = extremes("uint8", (6, 64)), extremes("int8", (64, 37), 1)
    node = helper.make_node("MatMulInteger", ["a", "b", "za", "zb"], ["y"])
    model = model_of([node], {"a": a}, {"y": "int32"}, {"b": b, "za": np.uint8(9), "zb": np.int8(0)})
    assert families_of(program_of(model)) == ["matmul_integer"]


def test_a_requantized_product_is_onnx_runtimes_to_the_bit() -> None:
    """The int32 sum times a float32, rounded to even, moved and limited: one kernel."""
    rng = np.random.default_rng(5)
    feeds = {"a": extremes("uint8", (19, 66))}
    known = {
        "sa": np.float32(0.02), "za": np.uint8(119), "b": exact_weights(extremes("int8", (66, 45), 1)),
        "sb": rng.uniform(0.001, 0.01, 45).astype(np.float32), "zb": np.zeros(45, np.int8),
        "sy": np.float32(0.7), "zy": np.uint8(118),
    }  # fmt: skip
    node = helper.make_node("QLinearMatMul", ["a", *known], ["y"])
    model = model_of([node], feeds, {"y": "uint8"}, known)
    assert families_of(program_of(model)) == ["matmul_integer"]
    assert_as_onnxruntime(model, feeds)
