"""Products of matrices on NVIDIA's GPUs: kernels interpreted beside numpy's float64. bfloat16 is tried as float16."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

from opbuild.families.fitting import Place
from opbuild.families.gemv import family as gemv
from opbuild.families.matmul import family as matmul
from opbuild.families.matmul.cuda import TILES, of_tile
from opbuild.kernel.opdesc import Dim, OpDesc, Operand
from opbuild.operations.expression import ACC, Expression, arg, const
from opbuild.platform.records import replace
from opbuild.target.cuda import CLASS
from support.cuda_kernels import guarded, is_untouched
from support.interpreter import interpret

Array = Any

TOLERANCES = {"float16": 2e-3, "float32": 2e-6, "float64": 1e-13}
"""Of a sum of some 100 products of numbers of about 1, relative to 1 and the result."""

BIASED: Expression = ("relu", ("add", ACC, arg(0)))


@pytest.fixture
def rng() -> np.random.Generator:
    """Return the source of numbers."""
    return np.random.default_rng(7)


def some(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, *, columns: bool = False, at: int = 0) -> Array:
    """Return numbers, the last but one axis innermost if ``columns``, ``at`` elements behind a multiple of 64 bytes."""
    order = [*range(len(shape))]
    if columns:
        order[-2:] = order[:-3:-1]
    array = guarded(shape, dtype, at, order)[0]
    array[...] = rng.standard_normal(shape)
    return array


def place(array: Array, at: int = 0) -> Place:
    """Return the place of an array."""
    dims = [(n, step // array.itemsize) for n, step in zip(array.shape, array.strides, strict=True)]
    return Place(at, tuple(reversed(dims)))


def operand(name: str, array: Array) -> Operand:
    """Return an array as an operand; strides of 0 and 1 are known."""
    dims = (Dim(stride=step) if step in (0, 1) else Dim() for _, step in place(array).dims)
    return Operand(name, array.dtype.name, tuple(dims))


def described(arrays: list[Array], epilogue: Expression, rhs: str = "rows") -> OpDesc:
    """Return a CPU's descriptor of a product; operands whose rows are adjacent are known to be so."""
    names = ["lhs", "rhs", *(f"e{number}" for number in range(len(arrays) - 3)), "out"]
    *inputs, out = map(operand, names, arrays)
    variant = {"rows": 1, "columns": 32, "stage": False}
    return matmul.FAMILY.desc(("MatMul",), tuple(inputs), (out,), {"rhs": rhs, "epilogue": epilogue}, variant)


def run(desc: OpDesc, arrays: list[Array], at: tuple[int, ...] = ()) -> OpDesc:
    """Run the kernel that the device has for a CPU's descriptor, and the one that fits best; return that."""
    served = CLASS.kernel(desc)
    assert served is not None
    places = [place(*each) for each in zip(arrays, at or (0,) * len(arrays), strict=True)]
    best = CLASS.fit(served, places)
    for each in (served, best):
        arrays[-1][...] = np.nan
        run_as(each, arrays)
    return best


def run_as(desc: OpDesc, arrays: list[Array]) -> None:
    """Run a kernel of the device."""
    assert desc.problem([place(each).dims for each in arrays]) is None
    interpret(import_module(f"opbuild.families.{desc.family}.triton").define(desc), arrays)


def assert_close(found: Array, wanted: Array) -> None:
    """Compare with float64, NaN and infinities too."""
    tolerance = TOLERANCES[found.dtype.name]
    np.testing.assert_allclose(found.astype(float), wanted, rtol=tolerance, atol=tolerance * 8)


SIZES = [(1, 1, 1), (37, 70, 50), (5, 40, 17), (130, 33, 65), (48, 160, 96), (64, 64, 64), (17, 272, 32)]


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("columns", [(False, False), (True, True), (False, True)])
def test_a_product_is_right_at_any_size_however_operands_lie(
    dtype: str, size: tuple[int, int, int], columns: tuple[bool, bool], rng: np.random.Generator
) -> None:
    """Extents below tiles and above, multiples of 16 or none; rows or columns adjacent; a bias for each column."""
    m, n, k = size
    lhs, rhs = some(rng, (m, k), dtype, columns=columns[0]), some(rng, (k, n), dtype, columns=columns[1])
    bias = some(rng, (n,), dtype)
    out, memory = guarded((m, n), dtype)
    arrays = [lhs, rhs, np.broadcast_to(bias, (m, n)), out]
    run(described(arrays, BIASED), arrays)
    assert_close(out, np.maximum(lhs.astype(float) @ rhs.astype(float) + bias, 0))
    assert is_untouched(out, memory)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("tile", range(6))
def test_every_tile_is_right_at_every_size(dtype: str, tile: int, rng: np.random.Generator) -> None:
    """One more row and column than a tile has, with one more step along K; canaries around the result."""
    tiles = TILES[np.dtype(dtype).itemsize]
    chosen = tiles[tile % len(tiles)]
    m, n, k = chosen.rows + 1, chosen.columns + 1, chosen.depth + 1
    lhs, rhs = some(rng, (m, k), dtype), some(rng, (k, n), dtype, columns=True)
    out, memory = guarded((m, n), dtype)
    served = CLASS.kernel(described([lhs, rhs, out], ACC))
    run_as(replace(served, variant=of_tile(chosen)), [lhs, rhs, out])
    assert_close(out, lhs.astype(float) @ rhs.astype(float))
    assert is_untouched(out, memory)


@pytest.mark.parametrize("at", [(0, 0, 0, 0), (1, 0, 0, 0), (0, 8, 0, 0), (0, 0, 3, 0), (0, 0, 0, 5)])
def test_what_is_aligned_is_found_operand_by_operand(at: tuple[int, ...], rng: np.random.Generator) -> None:
    """An operand that begins elsewhere than at 16 bytes is read element by element, the others are not."""
    m, n, k = 48, 64, 32
    lhs, rhs = some(rng, (m, k), "float16", at=at[0]), some(rng, (k, n), "float16", at=at[1])
    other = some(rng, (m, n), "float16", at=at[2])
    out, memory = guarded((m, n), "float16", at[3])
    arrays = [lhs, rhs, other, out]
    best = run(described(arrays, ("add", ACC, arg(0))), arrays, at)
    names = ("lhs", "rhs", "e0", "out")
    assert best.variant["aligned"] == " ".join(name for name, start in zip(names, at, strict=True) if start % 8 == 0)
    assert_close(out, lhs.astype(float) @ rhs.astype(float) + other)
    assert is_untouched(out, memory)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("batch", [(3,), (2, 3)])
def test_batches_may_share_an_operand(dtype: str, batch: tuple[int, ...], rng: np.random.Generator) -> None:
    """A stride of 0 repeats a matrix; an operand of the epilogue may be one number for all."""
    m, n, k = 18, 20, 33
    lhs, rhs = some(rng, (*batch, m, k), dtype), np.broadcast_to(some(rng, (k, n), dtype), (*batch, k, n))
    factor, other = some(rng, (1,), dtype), some(rng, (*batch, m, n), dtype, columns=True)
    out, memory = guarded((*batch, m, n), dtype)
    arrays = [lhs, rhs, np.broadcast_to(factor, out.shape), other, out]
    run(described(arrays, ("add", ("mul", ACC, arg(0)), arg(1))), arrays)
    assert_close(out, lhs.astype(float) @ rhs.astype(float) * factor.astype(float) + other)
    assert is_untouched(out, memory)


@pytest.mark.parametrize("size", [(0, 5, 7), (5, 0, 7), (5, 7, 0), (1, 7, 0), (0, 0, 0)])
def test_what_is_empty_is_right(size: tuple[int, int, int], rng: np.random.Generator) -> None:
    """A sum over nothing is 0 before the epilogue; where there are no results nothing is launched."""
    m, n, k = size
    lhs, rhs, bias = some(rng, (m, k), "float32"), some(rng, (k, n), "float32"), some(rng, (n,), "float32")
    out, memory = guarded((m, n), "float32")
    arrays = [lhs, rhs, np.broadcast_to(bias, (m, n)), out]
    run(described(arrays, BIASED), arrays)
    assert_close(out, np.maximum(np.broadcast_to(bias, (m, n)), 0).astype(float))
    assert is_untouched(out, memory)


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_nan_and_infinities_stay_in_their_rows_and_columns(dtype: str, rows: int, rng: np.random.Generator) -> None:
    """Nothing that is read beyond an edge, and no zero that stands for it, touches what is inside."""
    lhs, rhs = some(rng, (rows, 21), dtype), some(rng, (21, 19), dtype)
    lhs[0, 20], rhs[3, 18], rhs[4, 17] = np.nan if rows > 1 else 1.0, np.inf, np.nan
    out, _ = guarded((rows, 19), dtype)
    run(described([lhs, rhs, out], ACC), [lhs, rhs, out])
    assert_close(out, lhs.astype(float) @ rhs.astype(float))


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize(("n", "k"), [(1, 1), (9, 3), (70, 200), (16, 2064), (300, 33)])
@pytest.mark.parametrize("columns", [False, True])
def test_a_single_row_is_a_dot_product_for_each_column(
    dtype: str, n: int, k: int, columns: bool, rng: np.random.Generator
) -> None:
    """However the matrix lies; without tensor cores."""
    lhs, rhs = some(rng, (2, 1, k), dtype), some(rng, (2, k, n), dtype, columns=columns)
    bias = some(rng, (n,), dtype)
    out, memory = guarded((2, 1, n), dtype)
    arrays = [lhs, rhs, np.broadcast_to(bias, out.shape), out]
    assert run(described(arrays, BIASED), arrays).variant["rows"] == 1
    assert_close(out / 8, np.maximum(lhs.astype(float) @ rhs.astype(float) + bias, 0) / 8)
    assert is_untouched(out, memory)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize(("rows", "k"), [(1, 1), (9, 3), (70, 200), (16, 2064), (300, 33), (5, 0)])
@pytest.mark.parametrize("batch", [(), (2, 3)])
def test_a_matrix_times_a_vector_is_right(
    dtype: str, rows: int, k: int, batch: tuple[int, ...], rng: np.random.Generator
) -> None:
    """With an epilogue, a vector for each batch or one for all, canaries around the result."""
    matrix = some(rng, (*batch, rows, k), dtype)
    vector = np.broadcast_to(some(rng, (k,), dtype), (*batch, k))
    other = some(rng, (*batch, rows), dtype)
    out, memory = guarded((*batch, rows), dtype)
    given = [matrix, vector, other, out]
    operands = [
        Operand(name, dtype, (Dim(stride=place(each).dims[0][1]), *(Dim(),) * (each.ndim - 1)))
        for name, each in zip(("matrix", "vector", "e0", "out"), given, strict=True)
    ]
    epilogue = ("sub", ACC, arg(0))
    desc = gemv.FAMILY.desc(("MatMul",), tuple(operands[:3]), tuple(operands[3:]), {"epilogue": epilogue}, {})
    run(desc, given)
    assert_close(out / 8, ((matrix.astype(float) @ vector.astype(float)[..., None])[..., 0] - other) / 8)
    assert is_untouched(out, memory)


def test_panels_that_the_cpu_s_lowering_made_are_read(rng: np.random.Generator) -> None:
    """Where columns are few, they are copied into panels of 32 of which only some mean anything."""
    lhs, matrix = some(rng, (2, 7, 20), "float32"), some(rng, (2, 20, 40), "float32")
    panels = np.full((2, 2, 20, 32), np.nan, np.float32)
    panels[:, 0], panels[:, 1, :, :8] = matrix[..., :32], matrix[..., 32:]
    out, memory = guarded((2, 7, 40), "float32")
    run(described([lhs, panels, out], ACC, "panels"), [lhs, panels, out])
    assert_close(out, lhs.astype(float) @ matrix.astype(float))
    assert is_untouched(out, memory)


@pytest.mark.parametrize(("m", "n", "k"), [(1, 48, 64), (20, 30, 50), (32, 48, 64)])
def test_a_constant_lies_turned(m: int, n: int, k: int, rng: np.random.Generator) -> None:
    """The class names the layout; the kernel reads what its ``pack`` returns."""
    lhs, matrix = some(rng, (m, k), "float16"), some(rng, (k, n), "float16")
    out, memory = guarded((m, n), "float16")
    desc = described([lhs, matrix, out], ACC)
    layout = CLASS.constant(desc, 1)
    assert layout is not None
    assert CLASS.constant(desc, 0) is None
    turned = guarded(layout.shape((k, n)), "float16")[0]
    turned[...] = layout.pack(matrix)
    rhs = replace(desc.inputs[1], dims=(Dim(), Dim()), format=layout.name)
    best = run(replace(desc, inputs=(desc.inputs[0], rhs)), [lhs, turned, out])
    assert ("rhs" in best.variant["aligned"]) == (k % 16 == 0)
    assert_close(out, lhs.astype(float) @ matrix.astype(float))
    assert is_untouched(out, memory)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("is_turned", [False, True])
def test_long_sums_are_added_up_in_parts(dtype: str, is_turned: bool, rng: np.random.Generator) -> None:
    """Two kernels: products of parts of K, and their sum with the epilogue; each time the same bits."""
    m, n, k = 18, 33, 1024
    lhs, rhs, bias = some(rng, (m, k), dtype), some(rng, (k, n), dtype, columns=True), some(rng, (n,), dtype)
    out, memory = guarded((m, n), dtype)
    arrays = [lhs, rhs.T if is_turned else rhs, np.broadcast_to(bias, (m, n)), out]
    desc = CLASS.kernel(described(arrays, BIASED))
    if is_turned:
        desc = replace(desc, inputs=(desc.inputs[0], replace(desc.inputs[1], format="turned"), *desc.inputs[2:]))
    found = CLASS.divide(desc, [place(each) for each in arrays])
    assert found is not None
    given = [*arrays[:2], guarded([extent for extent, _ in found.places[2].dims][::-1], "float32")[0]]
    results = []
    for _ in range(2):
        run_as(found.first, [viewed(each, place) for each, place in zip(given, found.places, strict=True)])
        run_as(found.second, [viewed(given[2], found.parts), *arrays[2:]])
        results.append(out.tobytes())
    assert results[0] == results[1]
    wanted = np.maximum(lhs.astype(float) @ rhs.astype(float) + bias, 0)
    assert_close(out / 8, wanted / 8)
    assert is_untouched(out, memory)


def viewed(array: Array, place: Place) -> Array:
    """Return the view of an array's memory that a place is."""
    extents, steps = zip(*reversed(place.dims), strict=True)
    return np.lib.stride_tricks.as_strided(array, extents, [step * array.itemsize for step in steps])


def test_weights_of_16_bits_are_multiplied_by_float32(rng: np.random.Generator) -> None:
    """They become float32 as they are read; the result is float32."""
    for m in (1, 33):
        lhs, rhs = some(rng, (m, 40), "float32"), some(rng, (40, 50), "float16")
        out, memory = guarded((m, 50), "float32")
        run(described([lhs, rhs, out], ("mul", ACC, const(0.5))), [lhs, rhs, out])
        assert_close(out, lhs.astype(float) @ rhs.astype(float) / 2)
        assert is_untouched(out, memory)


@pytest.mark.parametrize("change", [{"impl_mode": "high_precision"}, {"attrs": {"rhs": "pairs", "epilogue": ACC}}])
def test_what_only_the_cpu_computes_is_left_to_it(change: dict[str, Any], rng: np.random.Generator) -> None:
    """Sums of sums, and pairs of bfloat16."""
    arrays = [some(rng, shape, "float32") for shape in ((4, 4), (4, 4), (4, 4))]
    assert CLASS.kernel(replace(described(arrays, ACC), **change)) is None
