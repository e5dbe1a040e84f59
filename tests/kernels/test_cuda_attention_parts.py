"""Attention of few queries in parts of the keys, for NVIDIA's GPUs: interpreted against the kernel of all keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from opbuild.families.attention.cuda import CORES, LEAST_PART, MOST_PARTS, divide
from opbuild.families.fitting import Divided, Place
from opbuild.graph.extents import Extents
from opbuild.kernel.opdesc import OpDesc
from opbuild.operations.expression import Expression, arg, const
from opbuild.target.cuda import CLASS

pytest.importorskip("triton", reason="Triton is not installed: pip install '.[gpu]'")

from kernels.test_cuda_attention import (
    DRAW,
    INF,
    MASKED,
    NAN,
    SCALED,
    Values,
    assert_close,
    described,
    hiding,
)
from support.compiled_kernels import MOST_SHARED, usage
from support.cuda_kernels import guarded, is_untouched, run_served

Array = Any
SIZES = [
    ((1, 300, 64, 64), "float16", 0),
    ((4, 260, 128, 128), "float16", 0),
    ((3, 280, 40, 72), "float16", 1),
    ((2, 270, 200, 136), "float16", 0),
    ((1, 290, 64, 64), "float32", 0),
    ((16, 257, 65, 70), "float32", 1),
]


class Parted(Values):
    """Operands of an attention that is computed in parts, and merged."""

    def run(self, expression: Expression, *operands: Array, **how: Any) -> Array:
        """Return the result of both kernels, which write nothing beside."""
        given = [self.q, self.k.swapaxes(-1, -2), self.v, self.scale, *operands]
        desc = described(expression, [self.scale, *operands], self.q.dtype.name, **how)
        out, memory = guarded((*self.shape[:-1], self.v.shape[-1]), self.q.dtype)
        divided = divided_of(CLASS.kernel(desc), [*given, out])
        sums, beside = guarded([extent for extent, _ in reversed(divided.places[-1].dims)], "float32")
        run_served(divided.first, given, [sums])
        run_served(divided.second, [sums], [out])
        found = out.copy()
        assert is_untouched(out, memory)
        assert is_untouched(sums, beside)
        return found


def divided_of(desc: OpDesc, arrays: Sequence[Array]) -> Divided:
    """Return the parts of a call on arrays."""
    places = [
        Place(0, tuple(zip(each.shape[::-1], (step // each.itemsize for step in each.strides[::-1]), strict=True)))
        for each in arrays
    ]
    divided = divide(desc, places)
    assert divided is not None
    assert [*divided.places[:-1]] == places[:-1]
    return divided


@pytest.mark.parametrize(("extents", "dtype", "offset"), SIZES)
def test_parts_of_the_keys_give_what_all_give(extents: tuple[int, int, int, int], dtype: str, offset: int) -> None:
    """At all ways in which heads lie; two parts, of keys that are no whole number of tiles."""
    values = Parted(extents, dtype, offset)
    mask = DRAW.standard_normal(values.shape).astype("f4")
    assert_close(values.run(MASKED, mask), values.wanted(MASKED, mask))


@pytest.mark.parametrize("zeros", ["", "hidden", "nan"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_special_scores_are_as_in_one_part(zeros: str, dtype: str) -> None:
    """Rows of -inf, with +inf, with NaN; rows of which a whole part is hidden, the first or the last one."""
    values = Parted((7, 280, 16, 16), dtype)
    mask = np.zeros(values.shape, "f4")
    mask[..., 0, :], mask[..., 1, 200], mask[..., 2, 3], mask[..., 3, 279] = -INF, INF, NAN, NAN
    mask[..., 4, :192], mask[..., 5, 40:] = -INF, -INF
    assert_close(values.run(MASKED, mask, zeros=zeros), values.wanted(MASKED, mask, zeros=zeros))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("count", [1, 37, 64, 65, 300])
def test_what_is_there_of_a_cache_is_divided(count: int, dtype: str) -> None:
    """Parts are of the keys that a query sees, however much room there is; behind them anything may stand."""
    values = Parted((1, 300, 64, 64), dtype)
    bound = values.repeated(np.int64(count))
    place = values.repeated(np.arange(300, dtype="i4"))
    wanted = values.wanted(hiding(-INF, 2), bound, place, bound.astype("i4"))
    values.k[..., count:, :] = values.v[..., count:, :] = NAN
    assert_close(values.run(hiding(-INF, 2), bound, numbers={"seen": arg(1), "bound": arg(1)}), wanted)


@pytest.mark.parametrize("where", ["k", "v"])
def test_what_is_hidden_shows_where_it_is_not_finite(where: str) -> None:
    """In whichever part it is."""
    values = Parted((5, 300, 24, 32))
    getattr(values, where)[0, 1, 0, 250, 3] = NAN
    seen = values.repeated(np.arange(1, 6)[:, None].astype("i8"))
    place = values.repeated(np.arange(300, dtype="i4"))
    expression: Expression = ("add", SCALED, ("where", ("less", arg(2), arg(3)), const(0.0), const(-3.0e38)))
    got = values.run(expression, seen, numbers={"seen": arg(1)})
    assert np.isnan(got[0, 1, 0]).any()
    assert_close(got, values.wanted(expression, seen, place, seen))


def test_results_are_rounded_where_that_is_asked_for() -> None:
    """Once, behind the sum of all parts; weights that are rounded before it are those of all keys at once."""
    values = Parted((2, 300, 16, 40), "float16")
    assert_close(values.run(SCALED, rounds="float16"), values.wanted(SCALED))
    assert places_divided((1, 1, 1), 1, 4096, "float32", rounds="float16") is None


def places_divided(
    batch: tuple[int, int, int], rows: Any, keys: Any, dtype: str = "float16", rounds: str = ""
) -> Divided | None:
    """Return the parts of an attention of heads of 64 elements, given its extents."""
    one = np.broadcast_to(np.float32(1), (1, 1, 1, 1, 1))
    desc = CLASS.kernel(described(SCALED, [one], dtype, rounds=rounds))
    extents = [(64, rows), (keys, 64), (64, keys), (keys, rows), (64, rows)]
    return divide(desc, [Place(0, tuple((each, 1) for each in (*own, *batch))) for own in extents])


@pytest.mark.parametrize(
    ("batch", "rows", "keys", "parts"),
    [
        ((1, 1, 1), 1, 131_072, MOST_PARTS),
        ((8, 1, 1), 4, 4096, CORES // 8),
        ((32, 1, 1), 1, 4096, CORES // 32),
        ((32, 2, 1), 1, 4096, 2),
        ((4, 1, 1), 1, 600, 600 // LEAST_PART),
        ((32, 4, 1), 1, 4096, None),
        ((1, 1, 1), 17, 4096, None),
        ((1, 1, 1), 1, 255, None),
    ],
)
def test_keys_are_divided_where_heads_do_not_fill_the_card(
    batch: tuple[int, int, int], rows: int, keys: int, parts: int | None
) -> None:
    """Into as many parts as there are multiprocessors for, of 128 keys at least."""
    divided = places_divided(batch, rows, keys)
    assert (divided and divided.parts.dims[-1][0]) == parts


@pytest.mark.parametrize(
    ("dtype", "form"), [(dtype, form) for dtype in ("float16", "bfloat16", "float32") for form in ("mask", "cache")]
)
def test_code_of_both_kernels_spills_nothing(dtype: str, form: str) -> None:
    """A part of 16 bits is multiplied by tensor cores; keys and values come in moves of 16 bytes."""
    one = np.broadcast_to(np.float32(1), (1, 1, 1, 1, 1))
    many = np.zeros((1, 1, 1, 2, 2), "i8" if form == "cache" else "f4")
    how: dict[str, Any] = {"numbers": {"seen": arg(1), "bound": arg(1)}} if form == "cache" else {}
    desc = described(hiding(-INF, 2) if form == "cache" else MASKED, [one, many], dtype, **how)
    extents = [(64, 1), (4096, 64), (64, 4096), (4096, 1), (4096, 1), (64, 1)]
    divided = divide(CLASS.kernel(desc), [Place(0, tuple((each, 1) for each in (*own, 1, 1, 1))) for own in extents])
    assert divided is not None
    part, merge = usage(divided.first), usage(divided.second)
    assert part.spills == merge.spills == 0
    assert max(part.shared, merge.shared) <= MOST_SHARED
    assert (part.groups + part.products > 0) == (dtype != "float32")
    assert part.wide_loads + part.wide_copies > 0


def test_an_extent_that_is_open_is_not_divided() -> None:
    """What is found of parts would be as large as it is."""
    assert places_divided((1, 1, 1), 1, Extents().input(4096)) is None
