"""Attention leaves out keys that a mask hides from all queries of a block, and nobody can tell from the result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from kernels.harness import run_program
from kernels.test_attention import LOWER, Attention, expected, families
from opbuild.dtypes import NARROW_FLOATS
from opbuild.program import KernelCall
from opbuild.target.host import host_level
from opbuild.target.level import LEVELS, Level
from support.tiers import halved

Array = npt.NDArray[Any]
FAR = float(np.finfo(np.float32).min)


def masked(
    attention: Attention, seen: Array, hidden: float = -np.inf, seed: int = 0, first: Array | int = 0
) -> dict[str, Array]:
    """Return an attention's values, with a mask of which each query sees keys from the first on, to so many."""
    keys = np.arange(attention.lengths[1])
    is_seen = (keys < np.asarray(seen)[:, None]) & (keys >= np.reshape(first, (-1, 1)))
    mask = is_seen if attention.hidden else np.where(is_seen, np.float32(0), np.float32(hidden))
    return {**attention.values(seed), "mask": mask}


def causal(lengths: tuple[int, int], **more: Any) -> tuple[Attention, Array]:
    """Return an attention whose last query sees all keys, and how many each query sees."""
    rows, keys = lengths
    attention = Attention((3,), lengths, mask=lengths, known=True, **more)
    return attention, np.maximum(0, np.arange(1, rows + 1) + keys - rows)


def check(
    attention: Attention, values: Mapping[str, Array], level: Level | None = None, leaves_out: bool = True
) -> Array:
    """Check one kernel's result, and whether it is one that leaves keys out."""
    program = attention.program(values, level=level)
    (call,) = (call for call in program.calls if isinstance(call, KernelCall))
    assert ("seen" in call.desc.attrs) == leaves_out
    given = {name: value for name, value in values.items() if name != "mask"}
    (found,) = run_program(program, given, level=level).values()
    np.testing.assert_allclose(found, expected(attention, values), rtol=1e-5, atol=2e-6)
    return found


@halved
@pytest.mark.parametrize("lengths", [(32, 16), (63, 63), (64, 1000), (97, 64), (256, 300)])
@pytest.mark.parametrize("form", ["-inf", "far", "bools"])
def test_causal_masks_of_any_length_are_those_of_the_operators_one_by_one(lengths: tuple[int, int], form: str) -> None:
    """More keys than queries, and fewer: then some queries see no key, whose mean is NaN, or that of all values."""
    attention, seen = causal(lengths, hidden=form == "bools")
    check(attention, masked(attention, seen, FAR if form == "far" else -np.inf))


@halved
@pytest.mark.parametrize("zeros", ["hidden", "nan"])
@pytest.mark.parametrize("form", ["-inf", "far", "bools"])
@pytest.mark.parametrize("special", [0, np.nan, np.inf])
def test_queries_that_see_no_key_get_0_if_that_is_asked(zeros: str, form: str, special: float) -> None:
    """Beside those that see some; a mask that is far below 0 leaves the mean of all values, as ever."""
    attention, seen = causal((97, 64), hidden=form == "bools", zeros=zeros)
    values = masked(attention, seen, FAR if form == "far" else -np.inf)
    values["k"][1, 5, 3] = special
    found = check(attention, values)
    assert form == "far" or not found[0, :33].any()


@pytest.mark.slow
@pytest.mark.parametrize("rounds", NARROW_FLOATS)
def test_attentions_of_16_bits_leave_keys_out_too(rounds: str) -> None:
    """To the last bit what they compute where nobody knows the mask."""
    attention, seen = causal((130, 130), rounds=rounds, hidden=True)
    values = masked(attention, seen)
    program = attention.program(values)
    (call,) = (call for call in program.calls if isinstance(call, KernelCall))
    assert {"rounds", "seen"} <= set(call.desc.attrs)
    (found,) = run_program(program, {name: value for name, value in values.items() if name != "mask"}).values()
    (unknown,) = run_program(replace(attention, known=False).program(values), values).values()
    np.testing.assert_array_equal(found, unknown)


def test_any_number_of_keys_may_be_seen_by_each_query() -> None:
    """The numbers need not grow, as where documents lie behind each other or inputs are padded."""
    attention, _ = causal((130, 90))
    check(attention, masked(attention, np.random.default_rng(0).integers(0, 91, 130)))


@halved
@pytest.mark.parametrize("lengths", [(32, 16), (97, 64), (256, 300)])
@pytest.mark.parametrize("window", [1, 7, 13])
@pytest.mark.parametrize("form", ["-inf", "far", "bools"])
@pytest.mark.parametrize("special", [0, np.nan])
def test_keys_before_windows_are_left_out_too(lengths: tuple[int, int], window: int, form: str, special: float) -> None:
    """Where a query sees none, or something is not finite, results are those of all keys."""
    attention, seen = causal(lengths, hidden=form == "bools")
    values = masked(attention, seen, FAR if form == "far" else -np.inf, first=seen - window)
    values["v"][2, 3, 4] = special
    program = attention.program(values)
    (call,) = (call for call in program.calls if isinstance(call, KernelCall))
    assert "since" in call.desc.attrs
    check(attention, values)


def test_masks_that_hide_no_last_keys_are_added() -> None:
    """A mask with holes, and one whose hidden scores may still count, leave out nothing."""
    attention, seen = causal((64, 70))
    check(attention, masked(attention, seen, -20.0), leaves_out=False)
    values = masked(attention, seen)
    values["mask"][:, 3] = -np.inf
    check(attention, values, leaves_out=False)


@halved
@pytest.mark.parametrize("special", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["k", "v"])
def test_what_is_not_finite_shows_where_it_is_hidden_too(name: str, special: float) -> None:
    """A weight of 0 times NaN or infinity is NaN in the operators one by one, of one head only."""
    attention, seen = causal((128, 128))
    values = masked(attention, seen)
    values[name][1, 120, 3] = special
    found = check(attention, values)
    assert np.isnan(found[1, 0]).any()
    assert np.isfinite(found[[0, 2]]).all()


@pytest.mark.parametrize("size", [15, 16, 17, 64])
def test_any_size_of_heads(size: int) -> None:
    """Below a vector nothing is left out."""
    attention, seen = causal((64, 64), sizes=(size, 33))
    check(attention, masked(attention, seen), leaves_out=size >= 16 or host_level() is LOWER)


@pytest.mark.slow
@pytest.mark.skipif(LOWER not in LEVELS[: LEVELS.index(host_level())], reason="runs no code for AVX2")
def test_code_for_a_lower_level_leaves_keys_out() -> None:
    """Blocks of 16 queries, chunks of 8 elements."""
    attention, seen = causal((70, 75))
    check(attention, masked(attention, seen), level=LOWER)


def test_small_causal_attention_is_computed_one_by_one() -> None:
    """Few queries compare places in the epilogue of their product."""
    attention, seen = causal((5, 70))
    values = masked(attention, seen)
    program = attention.program(values)
    assert "attention" not in families(program)
    (found,) = run_program(program, {name: values[name] for name in "qkv"}, (1,)).values()
    np.testing.assert_allclose(found, expected(attention, values), rtol=1e-5, atol=2e-6)
