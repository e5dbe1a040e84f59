"""Kernels for NVIDIA's GPUs, interpreted against numpy: pools of plain values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from opbuild.dtypes import numpy_dtype
from opbuild.families.fitting import Place
from opbuild.families.window import cuda
from opbuild.families.window import family as pools
from opbuild.kernel.opdesc import HIGH_PERFORMANCE, HIGH_PRECISION, OpDesc
from opbuild.platform.records import replace

pytest.importorskip("triton", reason="Triton is not installed: pip install '.[gpu]'")

from support.cubin_gates import code_of
from support.cuda_kernels import guarded, is_untouched, run

Array = Any
DRAW = np.random.default_rng(5)
TAPS = (1, 2, 3)
FORMS = [
    # taps, strides, dilations and outputs of three dimensions
    ((1, 3, 3), (1, 2, 2), (1, 1, 1), (1, 5, 7)),
    ((1, 1, 5), (1, 1, 1), (1, 1, 2), (1, 1, 150)),
    ((2, 3, 2), (1, 1, 3), (1, 2, 1), (3, 4, 2)),
    ((1, 1, 1), (1, 1, 1), (1, 1, 1), (1, 1, 1)),
    ((1, 2, 2), (1, 1, 2), (1, 1, 1), (1, 9, 64)),
]


def slid(x: Array, taps: Any, strides: Any, dilations: Any, outs: Any) -> Array:
    """Return ``x (planes, D, H, W)`` as ``(planes, *taps, *outputs)``."""
    plane, *steps = x.strides
    moved = [step * by for step, by in zip(steps, dilations, strict=True)]
    moved += [step * by for step, by in zip(steps, strides, strict=True)]
    return as_strided(x, (x.shape[0], *taps, *outs), (plane, *moved))


def drawn(form: Any, dtype: str, planes: int = 3) -> Array:
    """Return a view of what windows read, of numbers, zeros of both signs, infinities and NaN."""
    taps, strides, dilations, outs = form
    shape = [(o - 1) * s + (t - 1) * d + 1 for t, s, d, o in zip(*form, strict=True)]
    x = DRAW.integers(0 if dtype[0] == "u" else -9, 9, (planes, *shape)).astype(numpy_dtype(dtype))
    if x.dtype.kind not in "iu":
        x[x == 3] = -0.0
        x[-1, ..., 0], x[0, ..., -1] = np.inf, np.nan
        x[1] = -np.inf
    return slid(x, taps, strides, dilations, outs)


def described(kind: str, dtype: str, step: int = 1, mode: str = HIGH_PERFORMANCE, lanes: int = 8) -> OpDesc:
    """Return a CPU's descriptor, of operands in 16 bits if the type has so many."""
    if dtype not in ("float16", "bfloat16"):
        return pools.describe("Pool", kind, dtype, step, {"lanes": lanes}, mode)
    desc = pools.describe("Pool", kind, "float32", step, {"lanes": lanes}, mode)
    sides = (
        tuple(replace(each, dtype=dtype) if each.name in ("x", "out") else each for each in side)
        for side in (desc.inputs, desc.outputs)
    )
    inputs, outputs = sides
    return replace(desc, inputs=inputs, outputs=outputs if kind != "place" else desc.outputs)


def step_of(x: Array) -> int:
    """Return the elements from one output to the next."""
    return int(x.strides[-1] // x.itemsize)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [*pools.TYPES["max"], "float16", "bfloat16"])
def test_maxima_are_those_of_numpy(form: Any, dtype: str) -> None:
    """Of every type; NaN is greater than every number."""
    x = drawn(form, dtype)
    out, memory = guarded((x.shape[0], *x.shape[4:]), x.dtype)
    run(described("max", dtype, step_of(x)), [x], [out])
    wide = x.astype("f4") if x.itemsize == 2 else x
    np.testing.assert_array_equal(out.astype(wide.dtype), wide.max(TAPS))
    assert is_untouched(out, memory)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["average", "l1", "l2"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_averages_and_norms_are_those_of_numpy(form: Any, kind: str, dtype: str) -> None:
    """Counts are those that are given: padding is in them or not."""
    x = drawn(form, dtype)
    wide = x.astype("f8")
    count = DRAW.integers(1, 9, x.shape[4:]).astype("f4" if dtype == "float16" else dtype)
    with np.errstate(all="ignore"):
        wanted = {
            "average": lambda: wide.sum(TAPS) / count,
            "l1": lambda: abs(wide).sum(TAPS),
            "l2": lambda: np.sqrt((wide * wide).sum(TAPS)),
        }[kind]()
    out, memory = guarded(wanted.shape, dtype)
    run(described(kind, dtype, step_of(x)), [x, count] if kind == "average" else [x], [out])
    np.testing.assert_allclose(out, wanted, 2e-3 if dtype == "float16" else 1e-6)
    assert is_untouched(out, memory)


def test_a_precise_average_is_rounded_once() -> None:
    """Of float32 in float64."""
    x = slid(DRAW.standard_normal((2, 1, 20, 20)).astype("f4"), (1, 11, 11), (1, 1, 1), (1, 1, 1), (1, 10, 10))
    out, memory = guarded((2, 1, 10, 10), "float32")
    count = np.full((1, 10, 10), 121, "f4")
    run(described("average", "float32", 1, HIGH_PRECISION), [x, count], [out])
    np.testing.assert_array_equal(out, (x.astype("f8").sum(TAPS) / 121).astype("f4"))
    assert is_untouched(out, memory)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", ["float32", "int8", "uint8", "int64", "float16"])
def test_places_are_those_of_the_first_greatest(form: Any, dtype: str) -> None:
    """A place of -1 is padding, whatever is read there; the first NaN is greater than all numbers."""
    x = drawn(form, dtype)
    place = DRAW.integers(-1, 900, x.shape[1:])
    place[:, :, -1] = abs(place[:, :, -1])
    start = np.arange(x.shape[0]) * 1000
    out, memory = guarded((x.shape[0], *x.shape[4:]), "int64")
    run(described("place", dtype, step_of(x)), [x, place, start], [out])
    for plane, *at in np.ndindex(out.shape):
        taps = x[(plane, ..., *at)].ravel(), place[(..., *at)].ravel()
        seen = [(value, number) for value, number in zip(*taps, strict=True) if number >= 0]
        first = int(np.argmax([value for value, _ in seen]))
        assert out[(plane, *at)] == seen[first][1] + start[plane]
    assert is_untouched(out, memory)


def test_nothing_is_written_where_there_is_no_plane() -> None:
    """Nothing is launched then."""
    x = drawn(FORMS[0], "float32", 3)[:0]
    out, memory = guarded((0, 1, 5, 7), "float32")
    run(described("max", "float32", 2), [x], [out])
    assert is_untouched(out, memory)


def test_tiles_are_no_larger_than_outputs() -> None:
    """Powers of 2, at most 512 outputs, four of them a thread."""
    served = cuda.serve(described("max", "float32"))
    assert served is not None
    for columns, rows, wanted in ((112, 112, (128, 4, 4)), (7, 7, (8, 8, 1)), (1, 1, (1, 1, 1)), (56, 56, (64, 8, 4))):
        dims = ((columns, 1), (rows, columns), (1, 0), (64, columns * rows))
        found = cuda.fit(served, [Place(0, ()), Place(0, dims)])
        assert tuple(found.variant.values()) == wanted


@pytest.mark.parametrize("kind", pools.TYPES)
def test_code_keeps_its_registers(kind: str) -> None:
    """Nothing is spilled."""
    found = code_of(described(kind, "float32"))
    assert found.spills == 0
    assert found.registers <= 96
