"""Conversions of the types that ``ml_dtypes`` adds: all codes both ways, ties, denormals, NaN, infinities, options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import helper

import opbuild
from opbuild.dtypes import ADDED, CODED, ROUND_MODES, UNSATURATED, numpy_dtype, stored_bits
from opbuild.graph.shape_rules import ONNX_NUMBERS
from opbuild.graph.types import DTYPES
from opbuild.operations.evaluation import cast
from support.exact_arithmetic import Array
from support.fuzzing import CAMPAIGN

pytestmark = pytest.mark.usefixtures("kept_objects")

FLOAT_CODES = tuple(dtype for dtype in CODED if dtype.startswith("float"))
E8M0 = "float8_e8m0fnu"
TOLD = np.float32([0, -0.0, np.nan, np.inf, -np.inf, 2**-127, 1.5 * 2**-127, 2**-128, 1e-45, 3.4e38, 1.6 * 2**127])

Conversion = tuple[str, tuple[str, ...]]
"""A target type and options."""


def all_codes(dtype: str) -> Array:
    """Return every element that a type has."""
    bits = stored_bits(dtype)
    return np.arange(2**bits).astype(f"u{max(bits, 8) // 8}").view(numpy_dtype(dtype))


def floats() -> Array:
    """Return each number of the floats of 8 and 4 bits, what lies half between two, its neighbours, and others."""
    found = [TOLD, np.random.default_rng(1).standard_normal(500).astype("f4") * np.logspace(-12, 6, 500, dtype="f4")]
    for dtype in FLOAT_CODES:
        numbers = all_codes(dtype).astype(np.float64)
        numbers = np.unique(numbers[np.isfinite(numbers)])
        ties = ((numbers[1:] + numbers[:-1]) / 2).astype(np.float32)
        found += [numbers.astype("f4"), ties, *(np.nextafter(ties, np.float32(to)) for to in (-np.inf, np.inf))]
    halves = np.random.default_rng(2).integers(0, 2**16, 500, dtype=np.uint32) << 16
    ties_of_bfloat16 = (halves | np.uint32(0x8000)).view(np.float32)
    return np.concatenate([*found, ties_of_bfloat16])


def numbers(dtype: str) -> Array:
    """Return elements of a type."""
    if dtype in ADDED:
        return all_codes(dtype)
    with np.errstate(all="ignore"):
        return cast(floats(), dtype)


def converted(x: Array, conversions: list[Conversion], cache: Path) -> list[Array]:
    """Return the arrays that kernels convert an array to."""
    nodes, outputs = [], []
    for index, (dtype, options) in enumerate(conversions):
        attrs: dict[str, Any] = {"to": ONNX_NUMBERS[dtype]}
        attrs |= {"saturate": 0} if UNSATURATED in options else {}
        attrs |= {"round_mode": next((mode for mode in ROUND_MODES if mode in options), ROUND_MODES[0])}
        nodes.append(helper.make_node("Cast", ["x"], [f"y{index}"], **attrs))
        outputs.append(helper.make_tensor_value_info(f"y{index}", ONNX_NUMBERS[dtype], None))
    declared = helper.make_tensor_value_info("x", ONNX_NUMBERS[x.dtype.name], x.shape)
    graph = helper.make_graph(nodes, "casts", [declared], outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=13)
    net = opbuild.compile(model, cache_path=cache, workers=2)
    assert not net.report.host
    return list(net.run({"x": x}).values())


def check(x: Array, conversions: list[Conversion], cache: Path) -> None:
    """Compare what kernels make of an array with numpy's, bit by bit, but for the bits of NaN."""
    for (dtype, options), got in zip(conversions, converted(x, conversions, cache), strict=True):
        expected = cast(x, dtype, options)
        assert got.dtype == expected.dtype == numpy_dtype(dtype)
        same = got.view(f"u{got.itemsize}") == expected.view(f"u{got.itemsize}")
        if "float" in dtype:
            same |= np.isnan(got) & np.isnan(expected)
        wrong = np.flatnonzero(~same)[:5]
        assert not wrong.size, f"{x.dtype} to {dtype} {options}: {x[wrong]} -> {got[wrong]}, not {expected[wrong]}"


@pytest.mark.slow
def test_floats_become_codes_with_every_option(tmp_path: Path) -> None:
    """To the nearest, ties to even, saturated or not; powers of two up, down or to the nearest."""
    plain: list[Conversion] = [(dtype, ()) for dtype in ADDED]
    wrapped: list[Conversion] = [(dtype, (UNSATURATED,)) for dtype in FLOAT_CODES if dtype.startswith("float8")]
    rounded: list[Conversion] = [(E8M0, (mode, *more)) for mode in ROUND_MODES[1:] for more in ((), (UNSATURATED,))]
    check(floats(), [*plain, *wrapped, *rounded], tmp_path)


@pytest.mark.parametrize("source", ADDED)
def test_every_code_becomes_the_number_that_it_is(source: str, tmp_path: Path) -> None:
    """As a float, as an integer, as a truth value, and as a code of another type."""
    others = DTYPES if CAMPAIGN else ("float32", "int8", "bool", "bfloat16", "float8_e4m3fn", "int4")
    check(all_codes(source), [(dtype, ()) for dtype in others if dtype != source], tmp_path)


@pytest.mark.parametrize("source", [dtype for dtype in DTYPES if dtype not in (*ADDED, "float32")])
def test_other_types_become_codes(source: str, tmp_path: Path) -> None:
    """By way of float32, or by the low bits of an integer."""
    some = ("float8_e5m2", "uint2", "bfloat16")
    check(numbers(source), [(dtype, ()) for dtype in (ADDED if CAMPAIGN else some)], tmp_path)


def test_the_host_saturates_as_ml_dtypes_rounds() -> None:
    """Numbers within a type's range are those of ml_dtypes' own conversion; its limits are its greatest numbers."""
    x = floats()
    for dtype in FLOAT_CODES:
        if dtype == E8M0:
            continue
        greatest = float(ml_dtypes.finfo(numpy_dtype(dtype)).max)
        inside = np.abs(x) <= greatest
        got = cast(x, dtype)
        np.testing.assert_array_equal(got[inside].view("u1"), x[inside].astype(numpy_dtype(dtype)).view("u1"), dtype)
        assert np.all(np.abs(got[np.abs(x) > greatest].astype(np.float32)) == greatest)


def test_powers_of_two_are_rounded_by_their_mode() -> None:
    """Zero and infinity are out of range: the nearest power if it saturates, NaN if not."""
    x = np.float32([1, 1.1, 1.5, 1.9, 3, 0, np.inf, np.nan, 2.0**-127, 1e-40, 2.0**127, 1.2 * 2.0**127])
    wanted = {
        ("up",): [127, 128, 128, 128, 129, 0, 254, 255, 0, 0, 254, 254],
        ("down",): [127, 127, 127, 127, 128, 0, 254, 255, 0, 0, 254, 254],
        ("nearest",): [127, 127, 128, 128, 129, 0, 254, 255, 0, 0, 254, 254],
        ("nearest", UNSATURATED): [127, 127, 128, 128, 129, 255, 255, 255, 0, 255, 254, 254],
        ("up", UNSATURATED): [127, 128, 128, 128, 129, 255, 255, 255, 0, 255, 254, 255],
    }
    for options, codes in wanted.items():
        assert cast(x, E8M0, options).view("u1").tolist() == codes, options
