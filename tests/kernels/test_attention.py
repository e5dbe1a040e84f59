"""Attention as one kernel is the two products and the softmax one by one, special values included."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from kernels.harness import check_canaries, guarded, run_desc, run_program
from kernels.hostile import Case
from opbuild.backend.host.evaluate import evaluate
from opbuild.dtypes import NARROW_FLOATS, numpy_dtype
from opbuild.families import catalogue
from opbuild.graph.passes.pipeline import optimize
from opbuild.graph.types import Graph, Node, TensorType
from opbuild.lowering.context import Options
from opbuild.lowering.lower import lower
from opbuild.program import KernelCall, Program
from opbuild.target.host import host_level, host_machine
from opbuild.target.level import LEVELS, Level
from support.tiers import halved

Array = npt.NDArray[Any]
LOWER = next(level for level in LEVELS if level.name == "x86-64-v3")
SCALE = np.float32(0.25)

HOSTILE = {
    "attention": Case(
        "Attention",
        lambda n: (2, 3, 3 * n, 40),
        pattern=(
            ("Transpose", ["x"], "turned", {"perm": [0, 1, 3, 2]}),
            ("MatMul", ["x", "turned"], "scores", {}),
            ("Softmax", ["scores"], "weights", {"axis": -1}),
            ("MatMul", ["weights", "x"], "y", {}),
        ),
    )
}
"""Each vector attends to all of its head; what is below a block of queries is computed one by one."""


@dataclass(frozen=True)
class Attention:
    """Queries, keys and values ``(..., length, size)``, and what is done to the scores.

    Attributes:
        batch: Batches and heads.
        lengths: Queries and keys.
        sizes: Elements of a query and of a value.
        mask: Shape of what is added to the scores, and "hidden" for one of bools that ``Where`` takes.
        known: Whether the mask is known when the network is built.
        joined: Whether heads lie beside each other in what comes before, as in ``(batch, length, heads, size)``.
        flat: Whether results of heads are joined to rows, ``(batch, length, heads * size)``, behind.
        rounds: The type of 16 bits to whose numbers each operator's result is rounded; empty: none is.
        zeros: Which weights are 0 instead of NaN; empty: none are.
    """

    batch: tuple[int, ...] = (2, 3)
    lengths: tuple[int, int] = (64, 70)
    sizes: tuple[int, int] = (20, 33)
    mask: tuple[int, ...] = ()
    hidden: bool = False
    known: bool = False
    joined: bool = False
    flat: bool = False
    rounds: str = ""
    zeros: str = ""

    def values(self, seed: int = 0) -> dict[str, Array]:
        """Return random inputs."""
        rng, (rows, keys), (size, columns) = np.random.default_rng(seed), self.lengths, self.sizes
        shapes = {"q": (rows, size), "k": (keys, size), "v": (keys, columns)}
        found = {name: rng.standard_normal((*self.batch, *shape)).astype(np.float32) for name, shape in shapes.items()}
        if self.joined:
            found = {name: np.ascontiguousarray(value.swapaxes(-2, -3)) for name, value in found.items()}
        if self.mask:
            mask = rng.standard_normal(self.mask).astype(np.float32)
            found["mask"] = mask > 0 if self.hidden else mask
        return found

    def program(
        self, values: Mapping[str, Array], mode: str = "high_performance", level: Level | None = None, kept: str = ""
    ) -> Program:
        """Return the program of the operators as exporters write them; ``kept``: one whose value is an output too."""
        types = {name: TensorType(str(value.dtype), value.shape) for name, value in values.items()}
        constants = {"scale": np.array(SCALE), "never": np.array(-np.inf, np.float32), "nothing": np.float32([0])}
        constants |= {"mask": values["mask"]} if self.known else {}
        types |= {name: TensorType(str(value.dtype), value.shape) for name, value in constants.items()}
        nodes: list[Node] = []

        def add(op_type: str, inputs: tuple[str, ...], shape: tuple[int, ...], **attrs: Any) -> str:
            output = f"{op_type}{len(nodes)}"
            types[output] = TensorType(attrs.get("to", "float32"), shape)
            nodes.append(Node(op_type, inputs, (output,), attrs, f"node {output}"))
            if self.rounds and op_type not in ("Cast", "Transpose", "Where"):
                return add("Cast", (add("Cast", (output,), shape, to=self.rounds),), shape, to="float32")
            return output

        rank, names = len(self.batch) + 2, {}
        for name in ("q", "k", "v"):
            order = list(range(rank))
            if self.joined:
                order[-2], order[-3] = order[-3], order[-2]
            if name == "k":
                order[-1], order[-2] = order[-2], order[-1]
            shape = tuple(values[name].shape[axis] for axis in order)
            names[name] = add("Transpose", (name,), shape, perm=tuple(order))
        (rows, keys), columns = self.lengths, self.sizes[1]
        square = (*self.batch, rows, keys)
        scores = add("MatMul", (names["q"], names["k"]), square)
        scores = add("Mul", (scores, "scale"), square)
        if self.hidden:
            scores = add("Where", ("mask", scores, "never"), square)
        elif self.mask:
            scores = add("Add", (scores, "mask"), square)
        is_asked = self.zeros == "nan" and not self.rounds  # as torch's exporter has it, which a pass takes in
        zeros = {"zeros": self.zeros} if self.zeros and not is_asked else {}
        weights = add("Softmax", (scores,), square, axis=-1, **zeros)
        if is_asked:
            is_nan = add("IsNaN", (weights,), square)
            types[is_nan] = TensorType("bool", square)
            weights = add("Where", (is_nan, "nothing", weights), square)
        out = add("MatMul", (weights, names["v"]), (*self.batch, rows, columns))
        if self.flat:
            batch, heads = self.batch
            constants["rows"] = np.array([batch, rows, heads * columns])
            types["rows"] = TensorType("int64", (3,))
            turned = add("Transpose", (out,), (batch, rows, heads, columns), perm=(0, 2, 1, 3))
            out = add("Reshape", (turned, "rows"), (batch, rows, heads * columns))
        kept_too = [node.outputs[0] for node in nodes if node.op_type == kept]
        inputs = tuple(name for name in values if name not in constants)
        graph = Graph("attention", tuple(nodes), inputs, (out, *kept_too), types, constants, 21)
        return lower(optimize(graph, evaluate), level or host_level(), Options(impl_mode=mode))


def expected(attention: Attention, values: Mapping[str, Array]) -> Array:
    """Return the result in float64."""
    q, k, v = (values[name].astype(np.float64) for name in "qkv")
    if attention.joined:
        q, k, v = (each.swapaxes(-2, -3) for each in (q, k, v))
    with np.errstate(invalid="ignore", over="ignore"):
        scores = q @ k.swapaxes(-1, -2) * SCALE
        if attention.hidden:
            scores = np.where(values["mask"], scores, -np.inf)
        elif attention.mask:
            scores = scores + values["mask"]
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        weights = powers / powers.sum(-1, keepdims=True)
        if attention.zeros:
            is_zero = np.isnan(weights) if attention.zeros == "nan" else (scores == -np.inf).all(-1, keepdims=True)
            weights = np.where(is_zero, 0, weights)
        out = np.asarray(weights @ v)
        return out.swapaxes(1, 2).reshape(out.shape[0], out.shape[2], -1) if attention.flat else out


def families(program: Program) -> list[str]:
    """Return the families of a program's calls."""
    return [call.desc.family for call in program.calls if isinstance(call, KernelCall)]


def check(attention: Attention, values: Mapping[str, Array] | None = None, level: Level | None = None) -> Array:
    """Check that one kernel computes an attention right, and return the result."""
    values = attention.values() if values is None else values
    program = attention.program(values, level=level)
    assert families(program) == ["attention"]
    (found,) = run_program(program, values, level=level).values()
    np.testing.assert_allclose(found, expected(attention, values), rtol=1e-5, atol=2e-6)
    return found


@pytest.mark.parametrize("lengths", [(32, 16), (63, 17), (64, 1000), (97, 64), (256, 31)])
def test_any_number_of_queries_and_keys(lengths: tuple[int, int]) -> None:
    """Blocks of queries that are not whole, and keys that are no multiple of what is summed up at once."""
    check(Attention((3,), lengths))


@halved
@pytest.mark.parametrize("sizes", [(1, 32), (64, 64), (7, 100)])
@pytest.mark.parametrize("batch", [(), (5,), (2, 3)])
def test_any_size_of_heads_and_any_batches(batch: tuple[int, ...], sizes: tuple[int, int]) -> None:
    """The last values of a row are computed with those before them where they fill no tile."""
    check(Attention(batch, sizes=sizes))


def test_heads_beside_each_other_are_read_where_they_lie() -> None:
    """Queries, keys and values as projections write them are not copied."""
    check(Attention(joined=True))


@pytest.mark.parametrize("lengths", [(64, 70), (33, 70), (1, 70)])
def test_results_of_heads_are_written_beside_each_other(lengths: tuple[int, int]) -> None:
    """A Transpose and a Reshape behind move nothing; where heads are computed one by one they are copied as before."""
    attention = Attention(lengths=lengths, flat=True)
    values = attention.values()
    program = attention.program(values)
    assert (families(program) == ["attention"]) == (lengths[0] > 33)
    (found,) = run_program(program, values).values()
    np.testing.assert_allclose(found, expected(attention, values), rtol=1e-5, atol=2e-6)


def test_results_that_are_outputs_in_both_shapes_have_memory_of_their_own() -> None:
    """The network's outputs are dense, also what lies as its reader asked for."""
    attention = Attention(flat=True)
    values = attention.values()
    results = list(run_program(attention.program(values, kept="Transpose"), values).values())
    wanted = expected(attention, values)
    for found in (results[0], results[-1]):
        np.testing.assert_allclose(found.reshape(wanted.shape), wanted, rtol=1e-5, atol=2e-6)


def test_heads_of_many_keys_are_copied_together_first() -> None:
    """Keys and values alike, where rows of other heads lie between their rows."""
    attention = Attention((1, 2), (32, 1030), joined=True)
    values = attention.values()
    program = attention.program(values)
    assert families(program) == ["copy", "copy", "attention"]
    (found,) = run_program(program, values).values()
    np.testing.assert_allclose(found, expected(attention, values), rtol=1e-5, atol=2e-6)


@halved
@pytest.mark.parametrize("mask", [(64, 70), (2, 1, 1, 70), (2, 3, 64, 70), (3, 64, 1)])
@pytest.mark.parametrize("hidden", [False, True])
def test_masks_are_repeated(mask: tuple[int, ...], hidden: bool) -> None:
    """Over batches, heads or queries, added or as bools."""
    attention = Attention(mask=mask, hidden=hidden)
    values = attention.values()
    if hidden:
        values["mask"][..., 0] = True
    check(attention, values)


def test_special_values_are_those_of_the_operators_one_by_one() -> None:
    """A row of scores with NaN or +inf, or of -inf alone, is NaN; one -inf is a weight of 0; values keep theirs."""
    attention = Attention((2,), mask=(64, 70))
    values = attention.values()
    mask, v = values["mask"], values["v"]
    mask[0, 3], mask[1, 69], mask[2], mask[3, 5], mask[63] = np.nan, np.inf, -np.inf, -np.inf, -np.inf
    v[1, 7, 4], v[1, 8, 5] = np.inf, np.nan
    found = check(attention, values)
    assert np.isnan(found[:, [0, 1, 2, 63]]).all()
    assert np.isfinite(found[0, 3:63]).all()


def mask_of_special_rows(mask: Array) -> None:
    """Hide all keys of some queries, all but one of others, and make scores of others NaN and +inf."""
    mask[0, 3], mask[1, -1], mask[2], mask[3, 5], mask[-1] = np.nan, np.inf, -np.inf, -np.inf, -np.inf
    mask[4, 1:], mask[5], mask[5, 6], mask[6, 2:4] = -np.inf, -np.inf, np.nan, (np.nan, np.inf)


@halved
@pytest.mark.parametrize("zeros", ["hidden", "nan"])
@pytest.mark.parametrize("lengths", [(63, 17), (97, 70), (32, 300)])
def test_queries_get_0_instead_of_nan_if_that_is_asked(zeros: str, lengths: tuple[int, int]) -> None:
    """Those from which all keys are hidden; or all that would be NaN. Values that are not finite show as before."""
    attention = Attention((2,), lengths, mask=lengths, zeros=zeros)
    values = attention.values()
    mask_of_special_rows(values["mask"])
    values["v"][1, 7, 4], values["v"][1, 8, 5] = np.inf, np.nan
    found = check(attention, values)
    assert not found[0, [2, -1]].any()
    for row in (0, 1, 5, 6):
        assert not found[0, row].any() if zeros == "nan" else np.isnan(found[:, row]).all()


@pytest.mark.parametrize("zeros", ["hidden", "nan"])
def test_bools_that_hide_all_keys_make_0(zeros: str) -> None:
    """As torch's masks do, whatever keys are hidden from other queries."""
    attention = Attention(mask=(2, 1, 64, 70), hidden=True, zeros=zeros)
    values = attention.values()
    values["mask"][0, 0, 5], values["mask"][1, 0, 40:] = False, False
    assert not check(attention, values)[1, :, 40:].any()


@pytest.mark.slow
@pytest.mark.skipif(LOWER not in LEVELS[: LEVELS.index(host_level())], reason="runs no code for AVX2")
@pytest.mark.parametrize("zeros", ["hidden", "nan"])
def test_code_for_a_lower_level_makes_0(zeros: str) -> None:
    """Whose comparisons are other instructions."""
    attention = Attention(mask=(64, 70), zeros=zeros)
    values = attention.values()
    mask_of_special_rows(values["mask"])
    check(attention, values, level=LOWER)


@pytest.mark.slow
@halved
@pytest.mark.parametrize("zeros", ["", "hidden", "nan"])
@pytest.mark.parametrize("rounds", NARROW_FLOATS)
def test_results_of_16_bits_are_rounded_after_each_operator(rounds: str, zeros: str) -> None:
    """Weights, too: one kernel has the numbers, and the special values, of products and a softmax one by one."""
    attention = Attention((2,), mask=(64, 70), rounds=rounds, zeros=zeros)
    values = {name: value.astype(numpy_dtype(rounds)).astype(np.float32) for name, value in attention.values().items()}
    mask, v = values["mask"], values["v"]
    mask_of_special_rows(mask)
    v[1, 7, 4], v[1, :, 5] = np.inf, 60000
    program, apart = attention.program(values), attention.program(values, kept="Softmax")
    assert families(program) == ["attention"]
    assert "attention" not in families(apart)
    (found,), (one_by_one, *_) = (run_program(each, values).values() for each in (program, apart))
    np.testing.assert_array_equal(found, found.astype(numpy_dtype(rounds)).astype(np.float32))
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(one_by_one))
    # Sums are taken in another order, which a rounding shows where they lie between two numbers.
    assert np.mean((found == one_by_one) | np.isnan(found)) > 0.97
    unit = 2.0 ** (-10 if rounds == "float16" else -7)
    np.testing.assert_allclose(found, one_by_one, rtol=4 * unit, atol=4 * unit)


@pytest.mark.slow
def test_large_values_do_not_overflow() -> None:
    """The weighted mean of the largest numbers is one of them, however many keys there are."""
    attention = Attention((1,), (64, 500))
    values = attention.values()
    values["q"][...], values["v"][...] = 0, 3e38
    np.testing.assert_allclose(check(attention, values), 3e38, rtol=1e-5)


@pytest.mark.slow
def test_few_queries_small_values_and_precise_ones_are_computed_one_by_one() -> None:
    """One query has no use for a block of them; high precision is that of products and softmax."""
    masked = Attention(lengths=(3, 70), mask=(2, 3, 1, 70), hidden=True)
    few = 40 if host_machine().lanes == 16 else 20
    for attention in (masked, Attention(lengths=(1, 300)), Attention(lengths=(few, 70)), Attention(sizes=(20, 3))):
        values = attention.values()
        program = attention.program(values)
        assert "attention" not in families(program)
        (found,) = run_program(program, values, (1,)).values()
        np.testing.assert_allclose(found, expected(attention, values), rtol=1e-5, atol=2e-6)
    attention = Attention()
    precise = attention.program(attention.values(), "high_precision")
    assert {call.desc.impl_mode for call in precise.calls if isinstance(call, KernelCall)} >= {"high_precision"}
    assert "attention" not in families(precise)


def test_weights_that_something_else_reads_are_computed() -> None:
    """There is nothing to be gained then; otherwise no memory is taken for scores."""
    attention = Attention()
    values = attention.values()
    assert families(attention.program(values, kept="Softmax")) == ["matmul", "softmax", "matmul"]
    assert not [buffer for buffer in attention.program(values).buffers if buffer.kind == "temporary"]


@pytest.mark.slow
@pytest.mark.skipif(LOWER not in LEVELS[: LEVELS.index(host_level())], reason="runs no code for AVX2")
def test_code_for_a_lower_level_takes_masks() -> None:
    """Tiles for AVX2's registers."""
    check(Attention(mask=(64, 70)), level=LOWER)


@pytest.mark.slow
def test_the_variant_without_limits_is_right_at_every_extent() -> None:
    """One kernel for fewer keys and smaller values than a tile has, too."""
    attention = Attention(mask=(64, 70))
    program = attention.program(attention.values())
    for lengths, sizes in (((64, 70), (20, 33)), ((33, 5), (3, 7)), ((1, 1), (1, 1))):
        values = Attention((2, 3), lengths, sizes, mask=lengths).values()
        q, k, v, mask = values["q"], values["k"].swapaxes(-1, -2), values["v"], values["mask"]
        (call,) = (call for call in program.calls if isinstance(call, KernelCall))
        desc = catalogue.find("attention").without_limits(call.desc)
        out = guarded((1, 2, 3, lengths[0], sizes[1]), "float32")
        given = [each[None] for each in (q, k, v, *(np.broadcast_to(each, (2, 3, *lengths)) for each in (SCALE, mask)))]
        run_desc(desc, *given, out)
        check_canaries(out)
        wanted = expected(Attention((2, 3), lengths, sizes, mask=lengths), values)
        np.testing.assert_allclose(out.view[0], wanted, rtol=1e-5, atol=2e-6)
