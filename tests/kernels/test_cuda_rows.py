"""Kernels of rows for NVIDIA's GPUs, interpreted against numpy's float64: softmax, layer_norm, reduce, gather."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from opbuild.families.gather import family as gathers
from opbuild.families.layer_norm import family as layer_norms
from opbuild.families.reduce import family as reduces
from opbuild.families.softmax import family as softmaxes
from opbuild.kernel.opdesc import HIGH_PERFORMANCE, HIGH_PRECISION, OpDesc
from opbuild.platform.records import replace
from opbuild.target.cuda import CLASS

pytest.importorskip("triton", reason="Triton is not installed: pip install '.[gpu]'")

from support.cubin_gates import code_of
from support.cuda_kernels import guarded, is_untouched, run

Array = Any
DRAW = np.random.default_rng(5)
INF, NAN = np.inf, np.nan


def drawn(shape: Sequence[int], dtype: str = "float32", offset: int = 0, order: Sequence[int] = ()) -> Array:
    """Return numbers that lie as ``guarded`` has them."""
    array, _ = guarded(shape, dtype, offset, order)
    kind = array.dtype.kind
    array[...] = DRAW.standard_normal(shape) * 2 if kind == "f" else DRAW.integers(0, 2 if kind == "b" else 50, shape)
    return array


def typed(desc: OpDesc, dtype: str) -> OpDesc:
    """Return a descriptor whose operands of float32 have another type, but for an epsilon."""
    sides = [
        tuple(
            replace(each, dtype=dtype) if each.dtype == "float32" and each.name != "epsilon" else each for each in side
        )
        for side in (desc.inputs, desc.outputs)
    ]
    return replace(desc, inputs=sides[0], outputs=sides[1])


def computed(desc: OpDesc, inputs: Sequence[Array], shape: Sequence[int], offset: int = 0) -> Array:
    """Return the result of the device's kernel, which writes nothing beside."""
    out, memory = guarded(shape, inputs[0].dtype if desc.outputs[0].dtype != "int64" else "int64", offset)
    run(desc, inputs, [out])
    found = out.copy()
    assert is_untouched(out, memory)
    return found


# -- softmax ----------------------------------------------------------------------------------------------------------


def weights(x: Array, axis: int, log: bool = False) -> Array:
    """Return a softmax in float64."""
    with np.errstate(all="ignore"):
        shifted = x.astype("f8") - x.astype("f8").max(axis, keepdims=True)
        total = np.exp(shifted).sum(axis, keepdims=True)
        return shifted - np.log(total) if log else np.exp(shifted) / total


def described_softmax(
    axis: str, log: bool = False, rounds: str = "", zeros: str = "", mode: str = HIGH_PERFORMANCE
) -> OpDesc:
    """Return a CPU's descriptor."""
    variant = {"row": "heap"} if axis == "inner" else {"lanes": 1}
    return softmaxes.describe(log, axis == "inner", rounds, zeros, variant, mode)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("columns", [1, 9, 2048, 4100])
@pytest.mark.parametrize("log", [False, True])
def test_softmax_of_rows_agrees_with_float64_at_any_length(columns: int, log: bool, dtype: str) -> None:
    """Rows that fit in registers, and longer ones; those that begin at a multiple of 16 bytes, and others."""
    x = drawn((2, 3, columns), dtype, offset=columns % 2)
    got = computed(typed(described_softmax("inner", log), dtype), [x], x.shape, offset=1)
    np.testing.assert_allclose(got, weights(x, 2, log), 4e-3 if dtype == "float16" else 2e-5, 3e-6)


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 16, 65), (1, 40, 3)])
@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1)])
def test_softmax_of_columns_agrees_with_float64_however_they_lie(shape: tuple[int, ...], order: Sequence[int]) -> None:
    """Columns side by side, and short rows that are computed as columns."""
    desc = described_softmax("outer")
    if order != (0, 1, 2):
        desc = softmaxes.describe(False, False, "", "", {"lanes": 1}, HIGH_PERFORMANCE, is_turned=True)
    x = drawn(shape, order=order)
    np.testing.assert_allclose(computed(desc, [x], shape), weights(x, 1), 2e-6, 1e-7)


@pytest.mark.parametrize("zeros", ["", "hidden", "nan"])
@pytest.mark.parametrize("columns", [5, 4100])
def test_rows_with_infinities_are_nan_or_zero_as_a_cpu_has_them(columns: int, zeros: str) -> None:
    """A row of -inf; one with +inf; one with NaN; one with some -inf."""
    x = drawn((1, 5, columns))
    x[0, 0], x[0, 1, 2], x[0, 2, 1], x[0, 3, ::2] = -INF, INF, NAN, -INF
    wanted = weights(x, 2)
    if zeros:
        wanted[0, 0] = 0
    if zeros == "nan":
        wanted[0, 1:3] = 0
    np.testing.assert_allclose(computed(described_softmax("inner", zeros=zeros), [x], x.shape), wanted, 2e-6, 1e-12)
    turned = np.ascontiguousarray(x.swapaxes(1, 2))
    got = computed(described_softmax("outer", zeros=zeros), [turned], turned.shape)
    np.testing.assert_allclose(got, wanted.swapaxes(1, 2), 2e-6, 1e-12)


def test_softmax_rounds_its_results_where_that_is_asked_for() -> None:
    """As numbers of float16 in float32."""
    x = drawn((1, 3, 70))
    got = computed(described_softmax("inner", rounds="float16"), [x], x.shape)
    np.testing.assert_array_equal(got, got.astype("f2").astype("f4"))
    np.testing.assert_allclose(got, weights(x, 2), 1e-3, 1e-7)


def test_softmax_in_high_precision_is_rounded_once() -> None:
    """Powers and sums are float64."""
    x = drawn((1, 3, 3000))
    got = computed(described_softmax("inner", mode=HIGH_PRECISION), [x], x.shape)
    np.testing.assert_array_max_ulp(got, weights(x, 2).astype("f4"), 1)


def test_the_logarithm_of_a_softmax_with_zeros_is_left_to_the_cpu() -> None:
    """It has no kernel on the device."""
    assert CLASS.kernel(described_softmax("inner", log=True, zeros="nan")) is None


# -- layer_norm -------------------------------------------------------------------------------------------------------


def normalized(x: Array, scale: Array, bias: Array | float, centered: bool, epsilon: float) -> Array:
    """Return a normalisation in float64."""
    wide = x.astype("f8")
    wide = wide - wide.mean((-2, -1), keepdims=True) if centered else wide
    return wide / np.sqrt((wide * wide).mean((-2, -1), keepdims=True) + epsilon) * scale + bias


def repeated(values: Array, shape: Sequence[int], axis: int) -> Array:
    """Return a vector repeated along all axes but one."""
    return as_strided(values, shape, [values.strides[0] if at == axis else 0 for at in range(len(shape))])


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("columns", [1, 40, 1023, 2048, 2056, 4099])
@pytest.mark.parametrize("centered", [False, True])
def test_norms_of_rows_agree_with_float64_at_any_length(columns: int, centered: bool, dtype: str) -> None:
    """Rows that fit in registers, and longer ones; a scale for each element, and perhaps a bias."""
    x = drawn((1, 3, 1, columns), dtype)
    vectors = [repeated(drawn((columns,), dtype), x.shape, 3) for _ in range(1 + centered)]
    epsilon = np.array([1e-5], "f4")
    desc = typed(layer_norms.describe("Norm", centered, [1] * len(vectors), "", {}, HIGH_PERFORMANCE), dtype)
    got = computed(desc, [x, epsilon, *vectors], x.shape)
    wanted = normalized(x, vectors[0].astype("f8"), vectors[1].astype("f8") if centered else 0, centered, 1e-5)
    np.testing.assert_allclose(got, wanted, 2e-3 if dtype == "float16" else 1e-5, 2e-3 if dtype == "float16" else 1e-5)


@pytest.mark.parametrize("mode", [HIGH_PERFORMANCE, HIGH_PRECISION])
def test_norms_of_groups_agree_with_float64(mode: str) -> None:
    """Rows of several channels: scale and bias vary along the second dimension."""
    x = drawn((2, 2, 3, 35)) + 4
    vectors = [as_strided(drawn((6,)), x.shape, (0, 12, 4, 0)) for _ in range(2)]
    desc = layer_norms.describe("Norm", True, [0, 0], "", {}, mode)
    got = computed(desc, [x, np.array([1e-3], "f4"), *vectors], x.shape)
    np.testing.assert_allclose(got, normalized(x, *vectors, True, 1e-3), 3e-6, 3e-6)


# -- reduce -----------------------------------------------------------------------------------------------------------

REDUCED = {
    "sum": lambda x, axes: x.sum(axes, dtype=x.dtype),
    "mean": lambda x, axes: x.mean(axes),
    "max": lambda x, axes: x.max(axes),
    "min": lambda x, axes: x.min(axes),
    "prod": lambda x, axes: x.prod(axes, dtype=x.dtype),
    "l1": lambda x, axes: abs(x).sum(axes, dtype=x.dtype),
    "l2": lambda x, axes: np.sqrt((x * x).sum(axes)),
    "sum_square": lambda x, axes: (x * x).sum(axes, dtype=x.dtype),
    "log_sum": lambda x, axes: np.log(x.sum(axes)),
    "log_sum_exp": lambda x, axes: np.log(np.exp(x).sum(axes)),
}


def described_reduction(
    name: str, layout: str, dtype: str, mode: str = HIGH_PERFORMANCE, turned: bool = False
) -> OpDesc:
    """Return a CPU's descriptor."""
    ranks, variant = ((4, 2), {"vector": 8}) if layout == "inner" else ((5, 3), {"lanes": 1})
    return reduces.describe("Reduce", name, layout, dtype, ranks, variant, mode, is_turned=turned)


def check_reduction(name: str, layout: str, x: Array, **how: Any) -> None:
    """Compare a reduction with numpy's of float64, or of the integers themselves."""
    axes = (-2, -1) if layout == "inner" else (-3, -2)
    with np.errstate(all="ignore"):
        wanted = np.asarray(REDUCED[name](x.astype("f8") if x.dtype.kind == "f" else x, axes))
    got = computed(described_reduction(name, layout, x.dtype.name, **how), [x], wanted.shape)
    if x.dtype.kind != "f":
        np.testing.assert_array_equal(got, wanted)
    else:
        np.testing.assert_allclose(got, wanted, 3e-6 if x.dtype == "f4" else 1e-12, 3e-5 if x.dtype == "f4" else 1e-10)


@pytest.mark.parametrize("name", sorted({*REDUCED} - {"prod"}))
@pytest.mark.parametrize("layout", ["inner", "outer"])
def test_reductions_agree_with_numpy_in_every_type(name: str, layout: str) -> None:
    """Both reduced dimensions are longer than one, and a tile's end lies inside."""
    for dtype in reduces.TYPES[name]:
        x = drawn((1, 2, 2, 2055) if layout == "inner" else (1, 2, 3, 17, 70), dtype)
        check_reduction(name, layout, abs(x) if name == "log_sum" else x)


@pytest.mark.parametrize("layout", ["inner", "outer"])
def test_products_agree_with_numpy(layout: str) -> None:
    """Of few elements: there is no tile behind the first."""
    x = drawn((1, 1, 1, 9) if layout == "inner" else (1, 1, 2, 3, 5))
    check_reduction("prod", layout, x)
    check_reduction("prod", layout, x.astype("i8"))


@pytest.mark.parametrize("name", sorted({*REDUCED} - {"prod"}))
def test_reductions_of_nothing_are_what_a_cpu_makes_of_them(name: str) -> None:
    """0, -inf, NaN or the least value."""
    x = drawn((1, 2, 1, 8))[..., :0]
    wanted = {"mean": NAN, "max": -INF, "min": INF, "log_sum": -INF, "log_sum_exp": -INF}.get(name, 0.0)
    np.testing.assert_array_equal(computed(described_reduction(name, "inner", "float32"), [x], (1, 2)), wanted)


@pytest.mark.parametrize("name", sorted({*REDUCED} - {"prod"}))
def test_reductions_of_rows_with_nan_and_infinities_agree_with_numpy(name: str) -> None:
    """NaN wins over every number."""
    x = abs(drawn((1, 5, 1, 2060)))  # a sum that cancels has no digits to compare
    x[0, 0], x[0, 1, 0, 2], x[0, 2, 0, 2050], x[0, 3, 0, 3] = -INF, INF, NAN, -INF
    axes = (-2, -1)
    with np.errstate(all="ignore"):
        wanted = REDUCED[name](x.astype("f8"), axes)
    np.testing.assert_allclose(computed(described_reduction(name, "inner", "float32"), [x], (1, 5)), wanted, 3e-6)


def test_short_rows_are_reduced_as_columns_and_precisely_where_asked_for() -> None:
    """Elements that are reduced lie side by side; in high precision the sum is float64."""
    check_reduction("sum", "outer", drawn((1, 1, 1, 9, 70), order=(0, 1, 2, 4, 3)), turned=True)
    x = drawn((1, 1, 1, 3000)) * 1e4
    got = computed(described_reduction("sum", "inner", "float32", HIGH_PRECISION), [x], (1, 1))
    np.testing.assert_array_equal(got[0, 0], x.astype("f8").sum().astype("f4"))


# -- gather -----------------------------------------------------------------------------------------------------------


def dims_of(array: Array) -> list[tuple[int, int]]:
    """Return extents and strides, innermost first."""
    return [(extent, step // array.itemsize) for extent, step in zip(array.shape, array.strides, strict=True)][::-1]


def inside(index: Array, extent: Any) -> Array:
    """Return the places that indices mean; one that is out of range is the nearest."""
    return np.clip(np.where(index < 0, index + extent, index), 0, extent - 1)


def check_gather(kind: str, x: Array, index: Array, width: int, axis: int = 0) -> None:
    """Compare with numpy."""
    attrs: dict[str, Any] = {"kind": kind}
    if kind == "rows":
        wanted = np.take(x, inside(index, x.shape[1]), 1)
    elif kind == "nd":
        chosen = [inside(index[..., each], x.shape[1 + each]) for each in range(index.shape[-1])]
        wanted = x[(np.arange(len(x))[:, None], *chosen)]
    else:
        attrs["axis"] = x.ndim - 1 - axis
        places: list[Any] = [*np.indices(index.shape)]
        places[axis] = inside(index, x.shape[axis])
        wanted = x[tuple(places)]
    types = (x.dtype.name, index.dtype.name)
    views = (dims_of(x), dims_of(index), dims_of(wanted))
    desc = gathers.describe("Gather", attrs, types, views, {"width": width})
    np.testing.assert_array_equal(_gathered(desc, x, index, wanted), wanted)


def _gathered(desc: OpDesc, x: Array, index: Array, wanted: Array) -> Array:
    out, memory = guarded(wanted.shape, wanted.dtype)
    run(desc, [x, index], [out])
    found = out.copy()
    assert is_untouched(out, memory)
    return found


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
@pytest.mark.parametrize(("columns", "width"), [(1030, 16), (1, 1), (24, 4), (19, 1)])
def test_rows_are_gathered_at_any_width(columns: int, width: int, dtype: str) -> None:
    """Indices count from the end, and those far out of range read the nearest row."""
    x = drawn((2, 5, columns), dtype)
    for kind in ("int64", "int32"):
        index = DRAW.integers(-5, 5, 70).astype(kind)
        index[:3] = 2**31 - 1, -(2**31), 4
        check_gather("rows", x, index, width)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_rows_are_gathered_by_an_index_for_each_axis(axes: int) -> None:
    """With batches; an index far outside int32 is no valid one."""
    x = drawn((*(2, 4, 3, 5)[: 1 + axes], 33), "uint32")
    index = DRAW.integers(-4, 4, (2, 67, axes))
    index[0, 0, 0] = 1 << 40
    check_gather("nd", x, index, 8)
    check_gather("nd", np.ascontiguousarray(x[..., :1]), index, 1)


@pytest.mark.parametrize(("shape", "axis"), [((9,), 0), ((4, 70), 0), ((3, 5, 18), 1), ((2, 3, 2, 3, 5), 0)])
def test_elements_are_gathered_along_any_axis(shape: tuple[int, ...], axis: int) -> None:
    """There may be fewer indices than elements along other axes."""
    x = drawn(shape, "uint32")
    index = DRAW.integers(-shape[axis] - 3, shape[axis] + 3, [max(1, extent - 1) for extent in shape])
    check_gather("elements", x, index, 1, axis)


# -- code -------------------------------------------------------------------------------------------------------------

GATES = {
    "softmax": (described_softmax("inner"), 64, 16),
    "softmax of 16 bits": (typed(described_softmax("inner"), "float16"), 64, 8),
    "softmax of columns": (described_softmax("outer", zeros="nan"), 64, 0),
    "layer_norm": (layer_norms.describe("Norm", True, [1, 1], "", {}, HIGH_PERFORMANCE), 64, 16),
    "layer_norm of 16 bits": (
        typed(layer_norms.describe("Norm", True, [1, 1], "", {}, HIGH_PERFORMANCE), "float16"),
        64,
        8,
    ),
    "sum": (described_reduction("sum", "inner", "float32"), 64, 4),
    "maximum of bytes": (described_reduction("max", "inner", "uint8"), 64, 1),
    "log_sum_exp of columns": (described_reduction("log_sum_exp", "outer", "float32"), 64, 0),
    "gather": (
        gathers.describe(
            "Gather",
            {"kind": "rows"},
            ("float32", "int64"),
            ([(9, 1), (5, 9), (1, 45)], [(3, 1)], [(9, 1), (3, 9), (1, 27)]),
            {"width": 8},
        ),
        40,
        2,
    ),
}
"""Descriptors; the registers that a thread may use at most, and the least number of moves of 16 bytes."""


@pytest.mark.parametrize("name", GATES)
def test_code_keeps_its_registers_and_moves_16_bytes(name: str) -> None:
    """Nothing is spilled, and what lies side by side is read and written in vectors."""
    desc, registers, vectors = GATES[name]
    found = code_of(desc)
    assert found.spills == 0
    assert found.registers <= registers
    assert found.vectors >= vectors
