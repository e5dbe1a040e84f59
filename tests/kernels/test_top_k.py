"""TopK finds the greatest or least elements of rows and columns of any length, the first of equal ones first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest

from kernels.hostile import Case
from kernels.one_operator import Array, integers, model_of, on_kernels, outputs_of, random
from opbuild.families.top_k import family as top_ks
from opbuild.target.host import host_level
from opbuild.target.machine import Machine
from support.tiers import halved, spread

HOSTILE = {
    "top_k": Case("TopK", lambda n: (5, n), lambda n: [np.array([min(n, 3)])], least=1, outputs=2),
    "top_k columns": Case(
        "TopK", lambda n: (7, n), lambda _: [np.array([4])], {"axis": 0, "largest": 0}, least=1, outputs=2
    ),
}
"""For ``test_every_family``."""


def expected(x: Array, count: int, axis: int, largest: int) -> tuple[Array, Array]:
    """Return the values and indices by a stable sort in which NaN is the greatest."""
    wide = np.moveaxis(x, axis, -1)
    if x.dtype.kind == "f":
        keys = np.where(np.isnan(wide), np.inf, wide), np.isnan(wide)
        order = np.lexsort((*(-np.float64(key) if largest else np.float64(key) for key in keys),), axis=-1)
    else:
        ranks = np.unique(wide, return_inverse=True)[1].reshape(wide.shape)
        order = np.argsort(-ranks if largest else ranks, axis=-1, kind="stable")
    order = np.moveaxis(order[..., :count], -1, axis)
    return np.take_along_axis(x, order, axis), order


def check(x: Array, count: int, axis: int = -1, largest: int = 1) -> None:
    """Compare values and indices with those of a sort."""
    found = outputs_of("TopK", [x, np.array([count])], (1,), outputs=2, axis=axis, largest=largest)
    for mine, wanted in zip(found, expected(x, count, axis, largest), strict=True):
        np.testing.assert_array_equal(mine, wanted)


@pytest.mark.parametrize(
    ("shape", "count"),
    [
        ((1,), 1),
        ((1, 9000), 3),
        ((7,), 7),
        ((3, 17), 4),
        ((2, 300), 300),
        ((1, 5000), 10),
        ((2, 3000), 17),
        ((2, 3, 4, 33), 2),
    ],
)
def test_rows_and_columns_of_any_length(shape: Sequence[int], count: int) -> None:
    """Few of few, few of many, and all of them; along the last axis and others, the greatest and the least."""
    check(random(*shape), count)
    check(random(*shape), min(count, shape[0]), 0, 0)


def test_each_variant_is_asked_for_by_some_extent() -> None:
    """Comparing each with each, sorting by digits, and both of chunks."""
    machine = Machine.of(host_level())
    chosen = [top_ks.choose(*extents, machine) for extents in ((17, 4), (300, 300), (3000, 17), (3000, 1), (50000, 3))]
    assert [tuple(each.values()) for each in chosen] == [(0, False), (0, True), (32, True), (32, False), (128, True)]


@halved
@pytest.mark.parametrize(("extent", "count"), [(40, 9), (300, 40), (4000, 7), (2001, 1)])
@pytest.mark.parametrize("largest", [0, 1])
def test_the_first_of_equal_elements_stands_first(extent: int, count: int, largest: int) -> None:
    """Many are equal, or all; with NaN, infinities and zeros of both signs among them."""
    x = np.round(random(4, extent))
    x[1] = 3
    x[2, ::3], x[2, 1::3] = 0.0, -0.0
    x[3, ::7], x[3, 1::5], x[3, 2::5] = np.nan, np.inf, -np.inf
    check(x, count, largest=largest)


@pytest.mark.parametrize(
    ("dtype", "largest", "extent"),
    spread(("float64", "int8", "uint8", "int16", "int32", "int64", "uint32", "uint64"), (0, 1), (40, 2000)),
)
def test_every_type_up_to_its_limits(dtype: str, largest: int, extent: int) -> None:
    """The least and the greatest value of a type are elements like others."""
    if dtype.startswith("float"):
        x = random(2, extent, dtype=dtype) * 1e300
    else:
        limits = np.iinfo(dtype)
        x = np.random.default_rng(0).integers(limits.min, limits.max, (2, extent), dtype, endpoint=True)
        x[0, 5], x[0, 7], x[1] = limits.min, limits.max, limits.min
    check(x, 9, largest=largest)


def test_either_output_may_be_all_that_is_read() -> None:
    """The other one is not made."""
    x = integers(3, 50, low=0, high=20).astype(np.float32)
    model, feeds = model_of("TopK", [x, np.array([5])], (1,), outputs=2)
    for unread, wanted in ((1, expected(x, 5, -1, 1)[0]), (0, expected(x, 5, -1, 1)[1])):
        part = onnx.ModelProto.FromString(model.SerializeToString())
        del part.graph.output[unread]
        np.testing.assert_array_equal(on_kernels(part, feeds)[0], wanted)


def test_nothing_is_wanted_of_something() -> None:
    """A k of 0 gives empty outputs."""
    values, indices = outputs_of("TopK", [random(3, 5), np.array([0])], (1,), outputs=2)
    assert values.shape == indices.shape == (3, 0)
