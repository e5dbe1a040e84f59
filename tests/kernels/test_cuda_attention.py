"""Attention for NVIDIA's GPUs, interpreted against numpy's float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from opbuild.families.attention import family as attentions
from opbuild.kernel.opdesc import Dim, OpDesc, Operand
from opbuild.operations.evaluation import evaluate_expression
from opbuild.operations.expression import ACC, Expression, arg, const
from opbuild.platform.records import replace
from opbuild.target.cuda import CLASS

pytest.importorskip("triton", reason="Triton is not installed: pip install '.[gpu]'")

from support.cubin_gates import MOST_SHARED, code_of
from support.cuda_kernels import guarded, is_untouched, run

Array = Any
DRAW = np.random.default_rng(7)
INF, NAN = np.inf, np.nan
FAR = float(np.finfo("f4").min)

SCALED: Expression = ("mul", ACC, arg(0))
MASKED: Expression = ("add", SCALED, arg(1))
CAPPED: Expression = ("mul", ("tanh", SCALED), const(5.0))


def hiding(far: float, place: int) -> Expression:
    """Return scores whose keys are hidden from a place on; operands: a factor, others, the key's place, the number."""
    return ("where", ("less", arg(place), arg(place + 1)), SCALED, const(far))


def described(
    expression: Expression,
    operands: Sequence[Array],
    dtype: str = "float32",
    rounds: str = "",
    zeros: str = "",
    numbers: Mapping[str, Expression] | None = None,
) -> OpDesc:
    """Return a CPU's descriptor."""
    batch = (Dim(),) * attentions.BATCH_RANK
    read = tuple(
        Operand(f"e{number}", each.dtype.name, (Dim(), Dim(stride=0) if each.strides[-2] == 0 else Dim(), *batch))
        for number, each in enumerate(operands)
    )
    variant = {"block": 16, "keys": 8, "rows": 4, "columns": 32, "chunk": 16}
    desc = attentions.describe(expression, read, rounds, zeros, variant, numbers or {})
    sides = (
        tuple(replace(each, dtype=dtype) if each.name in ("q", "k", "v", "out") else each for each in side)
        for side in (desc.inputs, desc.outputs)
    )
    inputs, outputs = sides
    return replace(desc, inputs=inputs, outputs=outputs)


def heads(batch: Sequence[int], rows: int, size: int, dtype: str, offset: int = 0) -> Array:
    """Return rows of heads that lie beside each other, as a projection leaves them."""
    array, _ = guarded((*batch, rows, size), dtype, offset, (0, 1, 3, 2, 4))
    array[...] = DRAW.standard_normal(array.shape)
    return array


class Values:
    """Operands of an attention; extents are of queries, keys, elements of a key, and of a value."""

    def __init__(self, extents: tuple[int, int, int, int], dtype: str = "float32", offset: int = 0) -> None:
        rows, keys, size, columns = extents
        batch = (1, 2, 2)
        self.q, self.k = heads(batch, rows, size, dtype, offset), heads(batch, keys, size, dtype, offset)
        self.v = heads(batch, keys, columns, dtype, offset)
        self.shape = (*batch, rows, keys)
        self.scale = self.repeated(np.float32(size**-0.5))

    def repeated(self, values: Any) -> Array:
        """Return values repeated to the shape of scores."""
        return np.broadcast_to(values, self.shape)

    def run(self, expression: Expression, *operands: Array, **how: Any) -> Array:
        """Return the result of the device's kernel, which writes nothing beside."""
        desc = described(expression, [self.scale, *operands], self.q.dtype.name, **how)
        out, memory = guarded((*self.shape[:-1], self.v.shape[-1]), self.q.dtype)
        run(desc, [self.q, self.k.swapaxes(-1, -2), self.v, self.scale, *operands], [out])
        found = out.copy()
        assert is_untouched(out, memory)
        return found

    def wanted(self, expression: Expression, *operands: Array, zeros: str = "", v: Array | None = None) -> Array:
        """Return the softmax of scores times the values, in float64."""
        with np.errstate(all="ignore"):
            products = self.q.astype("f8") @ self.k.astype("f8").swapaxes(-1, -2)
            given = [each.astype("f8") if each.dtype.kind == "f" else each for each in (self.scale, *operands)]
            scores = evaluate_expression(expression, given, products)
            powers = np.exp(scores - scores.max(-1, keepdims=True))
            weights = powers / powers.sum(-1, keepdims=True)
            if zeros:
                is_zero = np.isneginf(scores).all(-1, keepdims=True)
                is_zero |= (zeros == "nan") & np.isnan(weights).any(-1, keepdims=True)
                weights = np.where(is_zero, 0, weights)
            return weights @ (self.v if v is None else v).astype("f8")


def assert_close(got: Array, wanted: Array) -> None:
    """Compare; operands and weights of float16 have 11 bits."""
    is_narrow = got.dtype == np.float16
    np.testing.assert_allclose(got, wanted, 4e-3 if is_narrow else 2e-5, 4e-3 if is_narrow else 2e-6)


@pytest.mark.parametrize(
    ("extents", "dtype", "offset"),
    [
        ((70, 130, 64, 64), "float16", 0),
        ((5, 65, 128, 96), "float16", 0),
        ((9, 33, 40, 72), "float16", 1),
        ((1, 1, 1, 1), "float16", 0),
        ((3, 40, 200, 136), "float16", 0),
        ((37, 70, 32, 64), "float32", 0),
        ((33, 31, 65, 70), "float32", 1),
        ((1, 33, 1, 1), "float32", 0),
    ],
)
def test_attention_agrees_with_float64_at_any_extents(
    extents: tuple[int, int, int, int], dtype: str, offset: int
) -> None:
    """Heads in vectors of 16 bytes, up to 64 and 128 elements; heads that are longer or lie anywhere."""
    values = Values(extents, dtype, offset)
    mask = DRAW.standard_normal(values.shape).astype("f4")
    assert_close(values.run(MASKED, mask), values.wanted(MASKED, mask))


def test_scores_may_be_capped_and_masks_repeat() -> None:
    """One addend for all queries, of which the descriptor knows that it repeats; keys of several queries' heads."""
    values = Values((20, 40, 64, 64), "float16")
    values.k = np.broadcast_to(values.k[:, :, :1], values.k.shape)
    mask = values.repeated(DRAW.standard_normal((1, 1, 1, 1, 40)).astype("f4"))
    capped: Expression = ("add", CAPPED, arg(1))
    assert_close(values.run(capped, mask), values.wanted(capped, mask))


@pytest.mark.parametrize("zeros", ["", "hidden", "nan"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_rows_with_infinities_are_nan_or_zero_as_a_cpu_has_them(zeros: str, dtype: str) -> None:
    """Rows of -inf, with +inf, with NaN; rows of which the first tile is hidden, and the last one."""
    values = Values((7, 140, 16, 16), dtype)
    mask = np.zeros(values.shape, "f4")
    mask[..., 0, :], mask[..., 1, 70], mask[..., 2, 3], mask[..., 3, 139] = -INF, INF, NAN, NAN
    mask[..., 4, :100], mask[..., 5, 40:] = -INF, -INF
    assert_close(values.run(MASKED, mask, zeros=zeros), values.wanted(MASKED, mask, zeros=zeros))


@pytest.mark.parametrize(("rows", "keys"), [(1, 70), (70, 70), (33, 100), (40, 20)])
@pytest.mark.parametrize("far", [FAR, -INF])
def test_causal_attention_agrees_with_float64(rows: int, keys: int, far: float) -> None:
    """As many keys as there are before a query, which may be none."""
    values = Values((rows, keys, 24, 32))
    seen = values.repeated(np.maximum(np.arange(1, rows + 1) + keys - rows, 0)[:, None].astype("i8"))
    place = values.repeated(np.arange(keys, dtype="i4"))
    got = values.run(hiding(far, 2), seen, numbers={"seen": arg(1)}, zeros="hidden")
    expression = hiding(far, 2)
    assert_close(got, values.wanted(expression, seen, place, seen, zeros="hidden"))


@pytest.mark.parametrize("special", [NAN, INF, -INF])
@pytest.mark.parametrize("where", ["k", "v"])
def test_what_a_causal_mask_hides_shows_where_it_is_not_finite(special: float, where: str) -> None:
    """In tiles that no query sees; as where nothing is left out."""
    values = Values((5, 150, 24, 32))
    getattr(values, where)[0, 1, 0, 120, 3] = special
    seen = values.repeated(np.arange(1, 6)[:, None].astype("i8"))
    place = values.repeated(np.arange(150, dtype="i4"))
    expression: Expression = ("add", SCALED, ("where", ("less", arg(2), arg(3)), const(0.0), const(FAR)))
    got = values.run(expression, seen, numbers={"seen": arg(1)})
    assert np.isnan(got[0, 1, 0]).any()
    assert_close(got, values.wanted(expression, seen, place, seen))


def test_windows_leave_out_keys_before_them() -> None:
    """A query sees some keys, the last ones; what is before all windows may be anything."""
    values = Values((40, 120, 16, 32))
    seen = values.repeated(np.arange(81, 121)[:, None].astype("i8"))
    since = values.repeated(np.arange(71, 111)[:, None].astype("i8"))
    first, count = values.repeated(np.int64(71)), values.repeated(np.int64(120))
    place = values.repeated(np.arange(120, dtype="i4"))
    window: Expression = ("and", ("less", arg(5), arg(6)), ("greater_equal", arg(5), ("cast", "int32", arg(2))))
    expression: Expression = ("where", window, SCALED, const(-INF))
    wanted = values.wanted(expression, seen, since, first, count, place, seen.astype("i4"))
    values.k[..., :71, :] = values.v[..., :71, :] = NAN
    numbers = {"seen": arg(1), "since": arg(2), "start": arg(3), "bound": arg(4)}
    assert_close(values.run(expression, seen, since, first, count, numbers=numbers), wanted)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("rows", [1, 4])
def test_the_room_of_a_cache_may_hold_anything(rows: int, dtype: str) -> None:
    """Keys and values behind the bound are read by nobody."""
    values = Values((rows, 150, 64, 64), dtype)
    count = values.repeated(np.int64(37))
    seen = values.repeated(np.arange(38 - rows, 38)[:, None].astype("i8"))
    place = values.repeated(np.arange(150, dtype="i4"))
    expression = hiding(-INF, 3)
    wanted = values.wanted(expression, seen, count, place, seen.astype("i4"))
    values.k[..., 37:, :] = values.v[..., 37:, :] = NAN
    got = values.run(expression, seen, count, numbers={"seen": arg(1), "bound": arg(2)})
    assert_close(got, wanted)
    same = values.run(hiding(-INF, 2), count, numbers={"seen": arg(1), "bound": arg(1)})
    assert np.isfinite(same).all()


def test_weights_and_results_are_rounded_where_that_is_asked_for() -> None:
    """A weight is divided by the sum first, as where the operators are computed one by one."""
    values = Values((20, 70, 16, 40))
    got = values.run(SCALED, rounds="float16")
    np.testing.assert_array_equal(got, got.astype("f2").astype("f4"))
    values.v = np.zeros_like(values.v)
    values.v[..., 0, :] = 1
    weight = values.run(SCALED, rounds="float16")
    np.testing.assert_allclose(weight, values.wanted(SCALED), 6e-4)


@pytest.mark.parametrize("name", ["q", "k"])
def test_operands_of_different_types_are_left_to_the_cpu(name: str) -> None:
    """So are precise ones, and expressions that there is no code for."""
    desc = described(SCALED, [np.broadcast_to(np.float32(1), (1, 1, 1, 1, 1))])
    other = tuple(replace(each, dtype="float16") if each.name == name else each for each in desc.inputs)
    assert CLASS.kernel(desc) is not None
    assert CLASS.kernel(replace(desc, inputs=other)) is None
    assert CLASS.kernel(replace(desc, impl_mode="high_precision")) is None
    assert CLASS.kernel(replace(desc, attrs={**desc.attrs, "epilogue": ("user", "mine", ACC)})) is None


ONE = np.broadcast_to(np.float32(1), (1, 1, 1, 1, 1))
GATES = {
    "16 bits": (described(MASKED, [ONE, np.zeros((1, 1, 1, 2, 2), "f4")], "float16"), 8, 16),
    "16 bits, causal": (
        described(hiding(FAR, 2), [ONE, np.zeros((1, 1, 1, 2, 2), "i8")], "float16", numbers={"seen": arg(1)}),
        16,
        32,
    ),
    "float32": (described(MASKED, [ONE, np.zeros((1, 1, 1, 2, 2), "f4")]), 0, 8),
}
"""Descriptors; the least number of products of tensor cores, and of moves of 16 bytes."""


@pytest.mark.parametrize("name", GATES)
def test_code_multiplies_by_tensor_cores_and_spills_nothing(name: str) -> None:
    """Products of 16 bits are those of a group of four warps; float32 has IEEE's."""
    desc, products, vectors = GATES[name]
    found = code_of(desc)
    assert found.spills == 0
    assert found.shared <= MOST_SHARED
    assert found.products >= products
    assert found.vectors >= vectors
