"""Kernels for NVIDIA's GPUs, interpreted against numpy: arg_reduce, scan and scatter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opbuild.families.arg_reduce import family as arg_reduces
from opbuild.families.scan import family as scans
from opbuild.families.scatter import family as scatters
from opbuild.kernel.opdesc import HIGH_PERFORMANCE, HIGH_PRECISION

pytest.importorskip("triton", reason="Triton is not installed: pip install '.[gpu]'")

from support.cubin_gates import code_of
from support.cuda_kernels import guarded, is_untouched, run

Array = Any
DRAW = np.random.default_rng(3)


def places(x: Array, axis: int, least: bool, last: bool) -> Array:
    """Return the places of the best elements, of equal ones the last if ``last``; numpy takes the first."""
    found = (np.argmin if least else np.argmax)(np.flip(x, axis) if last else x, axis)
    return x.shape[axis] - 1 - found if last else found


@pytest.mark.parametrize("dtype", [*arg_reduces.FAMILY.types, "float16"])
@pytest.mark.parametrize("least", [False, True])
@pytest.mark.parametrize("last", [False, True])
def test_places_of_extremes_are_those_of_numpy(dtype: str, least: bool, last: bool) -> None:
    """Among many equal elements, and with zeros of both signs, infinities and NaN, which wins."""
    name = "ArgMin" if least else "ArgMax"
    for layout, shape, axis in (("inner", (2, 3, 1027), 2), ("inner", (1, 4, 1), 2), ("outer", (2, 19, 67), 1)):
        x = DRAW.integers(0 if dtype[0] == "u" else -9, 9, shape).astype(dtype)
        if x.dtype.kind == "f":
            x[x == 3] = -0.0
            x[0, 0], x[-1, -1, : x.shape[-1] // 2], x[0, 1] = np.inf, np.nan, -np.inf
        wanted = places(x, axis, least, last)
        out, memory = guarded(wanted.shape, "int64")
        variant = {"vector": 8} if layout == "inner" else {"lanes": 1}
        run(arg_reduces.describe(name, layout, last, dtype, variant), [x], [out])
        np.testing.assert_array_equal(out, wanted)
        assert is_untouched(out, memory)


@pytest.mark.parametrize("dtype", scans.FAMILY.types)
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_running_sums_are_those_of_numpy(dtype: str, exclusive: bool, reverse: bool) -> None:
    """Along adjacent elements, and along others, in several tiles."""
    for shape, lanes in (((2, 1030, 1), 1), ((1, 70, 33), 8), ((2, 1, 5), 1)):
        x = (DRAW.standard_normal(shape) * 4).astype(dtype)
        turned = x[:, ::-1] if reverse else x
        wanted = np.cumsum(turned, 1, dtype="f8" if x.dtype.kind == "f" else dtype)
        wanted = wanted - turned if exclusive else wanted
        out, memory = guarded(shape, dtype)
        desc = scans.describe("CumSum", exclusive, reverse, dtype, {"lanes": lanes}, HIGH_PERFORMANCE)
        run(desc, [x], [out])
        np.testing.assert_allclose(out, wanted[:, ::-1] if reverse else wanted, 1e-5, 1e-3 if dtype == "float32" else 0)
        assert is_untouched(out, memory)


def test_running_products_and_precise_sums_are_those_of_numpy() -> None:
    """Of float64 where that is asked for, rounded once."""
    x = DRAW.uniform(0.9, 1.1, (1, 1, 40, 3)).astype("f4")[0]
    out, memory = guarded(x.shape, "float32")
    run(scans.describe("CumProd", False, False, "float32", {"lanes": 1}, HIGH_PERFORMANCE), [x], [out])
    np.testing.assert_allclose(out, np.cumprod(x, 1), 1e-5)
    run(scans.describe("CumSum", False, False, "float32", {"lanes": 1}, HIGH_PRECISION), [x], [out])
    np.testing.assert_array_equal(out, np.cumsum(x, 1, dtype="f8").astype("f4"))
    assert is_untouched(out, memory)


# -- scatter ----------------------------------------------------------------------------------------------------------

COMBINED = {
    "none": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "max": np.maximum,
    "min": np.minimum,
}


def dims_of(array: Array) -> list[tuple[int, int]]:
    """Return extents and strides, innermost first."""
    return [(extent, step // array.itemsize) for extent, step in zip(array.shape, array.strides, strict=True)][::-1]


def check_scatter(kind: str, reduction: str, x: Array, index: Array, updates: Array, axis: int = 0) -> None:
    """Compare with updates one after the other."""
    wanted = x.copy()
    for place in np.ndindex(updates.shape if kind == "elements" else updates.shape[:1]):
        named = (*place[:axis], index[place], *place[axis + 1 :]) if kind == "elements" else tuple(index[place])
        if all(-extent <= each < extent for each, extent in zip(named, x.shape, strict=False)):
            wanted[named] = COMBINED[reduction](wanted[named], updates[place])
    attrs = {"kind": kind, "reduction": reduction}
    attrs |= {"axis": x.ndim - 1 - axis, "covers": False} if kind == "elements" else {}
    out, memory = guarded(x.shape, x.dtype)
    out[...] = x
    views = [dims_of(each) for each in (index, updates, x)]
    desc = scatters.describe("Scatter", attrs, (x.dtype.name, "int64"), views, {"width": 1})
    moved = desc.outputs[0].dtype
    run(desc, [index, updates.view(moved)], [out.view(moved)])
    np.testing.assert_array_equal(out, wanted)
    assert is_untouched(out, memory)


@pytest.mark.parametrize("reduction", COMBINED)
@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8"])
def test_updates_are_written_in_their_order(reduction: str, dtype: str) -> None:
    """Rows and elements, several of which meet; what is out of range changes nothing."""
    x = DRAW.integers(0, 9, (5, 3, 140)).astype(dtype)
    for axes in (1, 2):
        index = DRAW.integers(-6, 6, (20, axes))
        shape = (20, *x.shape[axes:])
        updates = DRAW.integers(0, 9, shape).astype(dtype).reshape(20, -1)
        check_scatter("rows", reduction, x.reshape(*x.shape[:axes], -1), index, updates)
    for shape, axis in (((7,), 0), ((9, 40), 0), ((3, 9, 5), 1), ((2, 3, 4, 6), 3)):
        x = DRAW.integers(0, 9, shape).astype(dtype)
        index = DRAW.integers(-shape[axis] - 1, shape[axis] + 1, [max(1, extent - 1) for extent in shape])
        check_scatter("elements", reduction, x, index, DRAW.integers(0, 9, index.shape).astype(dtype), axis)


GATES = {
    "scatter": scatters.describe(
        "Scatter",
        {"kind": "elements", "axis": 1, "covers": True, "reduction": "max"},
        ("float32", "int64"),
        [[(9, 1), (5, 9)]] * 3,
        {"width": 1},
    ),
    "ArgMax": arg_reduces.describe("ArgMax", "inner", False, "float32", {"vector": 8}),
    "ArgMax of columns": arg_reduces.describe("ArgMax", "outer", False, "float32", {"lanes": 1}),
    "CumSum": scans.describe("CumSum", False, False, "float32", {"lanes": 1}, HIGH_PERFORMANCE),
}


@pytest.mark.parametrize("name", GATES)
def test_code_keeps_its_registers(name: str) -> None:
    """Nothing is spilled."""
    found = code_of(GATES[name])
    assert found.spills == 0
    assert found.registers <= 80
