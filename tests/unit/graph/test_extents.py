"""Open extents: whatever is worked out with them, the conditions that they keep make right for other sizes too."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from opbuild.graph.extents import (
    ClosedError,
    Extents,
    SymbolicExtent,
    always_equal,
    at_most,
    divides,
    example_value,
    is_at_least,
    is_one,
    may_reach,
)
from opbuild.graph.formulas import Formulas, Numbers
from opbuild.graph.symbolic_numbers import (
    both,
    chosen,
    either,
    greater,
    is_equal,
    is_less,
    lesser,
    negated,
    quotient,
    real,
    scaled,
    truncated,
)
from opbuild.lowering.operands import enough

Program = list[tuple[str, int, int]]
"""Operations on results so far, by index."""

OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod,
    "max": max, "min": min, "<": operator.lt, "<=": operator.le, "==": operator.eq, ">": operator.gt,
    ">=": operator.ge, "!=": operator.ne, "index": lambda a, b: range(50)[a % 50] + b, "truth": lambda a, b: a or b,
    "text": lambda a, b: int(str(a + 0)) - b, "hash": lambda a, b: {a: 1}.get(b, 0), "abs": lambda a, b: abs(a) + b,
    "flag": lambda a, b: is_at_least(a, 3) * b, "known": lambda a, b: b if always_equal(a, b) else a,
    "float": lambda a, b: int(a * 0.5) + b, "array": lambda a, b: int(np.array([a, b], np.int64).sum()),
    "lesser": lesser, "greater": greater, "less": is_less, "equal": is_equal, "quotient": quotient,
    "chosen": lambda a, b: chosen(is_less(a, b), b - a, a * 2), "not": lambda a, b: negated(is_equal(a, b)),
    "both": lambda a, b: both(is_less(a, b), is_equal(b % 2, 0)), "scaled": lambda a, b: scaled(a, np.float32(0.3)) + b,
    "either": lambda a, b: either(is_less(b, a), is_equal(a, 3)), "halves": lambda a, b: halves(a) + b,
    "square root": lambda a, b: truncated(real("square root", real("float64", greater(a, 0)))) + b,
    "measured": lambda a, b: scaled(a, real("divide", real("float32", b), np.float32(7))),
    "below": lambda a, b: is_less(real("float32", a), real("multiply", real("float32", b), np.float32(0.1))),
}  # fmt: skip


def halves(number: Any) -> Any:
    """A number times a half, rounded up, as exporters work out sizes."""
    half = real("multiply", real("float32", number), np.float32(0.5))
    return truncated(real("ceil", half))


PROGRAMS = st.lists(st.tuples(st.sampled_from(sorted(OPERATIONS)), st.integers(0, 99), st.integers(0, 99)), max_size=12)
SIZES = st.tuples(st.integers(0, 9), st.integers(0, 9))


def run(program: Program, extents: tuple[Any, Any]) -> list[Any]:
    """Return all results of a program; it ends where something is divided by zero."""
    results: list[Any] = [*extents, 0, 1, 2, 3, -2, 12]
    for name, left, right in program:
        try:
            results.append(OPERATIONS[name](results[left % len(results)], results[right % len(results)]))
        except ZeroDivisionError:
            break
    return results


@given(PROGRAMS, SIZES, SIZES)
def test_where_the_conditions_hold_the_numbers_are_those_of_that_size(
    program: Program, first: tuple[int, int], second: tuple[int, int]
) -> None:
    """A program that was run at one size gives, by its formulas, what running it at another one gives, or nothing."""
    extents = Extents()
    opened = run(program, (extents.input(first[0]), extents.input(first[1])))
    numbers = Numbers(extents)
    places = [numbers.place(each) for each in opened]
    formulas = numbers.formulas()
    for size in (first, second):
        found = formulas(size)
        assert found is not None or size != first
        if found is not None:
            assert [found[place] for place in places] == run(program, size)
    again, found = Formulas.from_json(formulas.to_json())(second), formulas(second)
    assert (again is None) == (found is None)
    assert found is None or again is None or again.tolist() == found.tolist()
    assert [example_value(each) for each in opened] == run(program, first)


@given(PROGRAMS, SIZES, SIZES, st.sampled_from(["<", "<=", "==", ">", ">=", "!=", "%"]), st.integers(0, 99))
@example([("quotient", 0, 0)], (1, 0), (0, 0), "<", 22)
def test_what_is_always_so_is_so_wherever_the_conditions_hold(
    program: Program, first: tuple[int, int], second: tuple[int, int], question: str, which: int
) -> None:
    """An answer that is said to be sure is the one of each size for which the program is; asking adds no condition."""
    extents = Extents()
    opened = run(program, (extents.input(first[0]), extents.input(first[1])))
    places = which % len(opened), which // 7 % len(opened)
    asked = opened[places[0]], opened[places[1]]
    if question == "%" and example_value(asked[1]) == 0:
        return
    conditions, variables = dict(extents.conditions), len(extents.variables)
    answer = extents.always(lambda: bool(OPERATIONS[question](*asked)))
    assert (extents.conditions, len(extents.variables), extents.closed) == (conditions, variables, False)
    formulas = Numbers(extents).formulas()
    for size in (first, second):
        if answer is not None and formulas(size) is not None:
            results = run(program, size)
            if max(places) < len(results):  # else it divides by zero before
                assert bool(OPERATIONS[question](results[places[0]], results[places[1]])) == answer


def test_a_bound_that_a_condition_states_answers_what_follows_from_it() -> None:
    """From 16 on, a product of it is no less than what a tile needs; what does not follow is not sure."""
    extents = Extents()
    b, s = extents.input(2), extents.input(20)
    assert s >= 16
    assert b != 0
    assert extents.always(lambda: b * s >= 8) is True
    assert extents.always(lambda: 768 * s < 512) is False
    assert extents.always(lambda: s >= 17) is None
    assert extents.always(lambda: s % 4 == 0) is None
    assert len(extents.conditions) == 2


def test_numbers_that_a_condition_makes_equal_are_the_same() -> None:
    """Two batches that have to be equal are one from then on, in whatever is worked out with either."""
    extents = Extents()
    one, other, length, half = (extents.input(value) for value in (1, 1, 6, 3))
    assert not always_equal(one, other)
    assert one == other
    assert always_equal(one * length * 64, length * other * 64)
    assert always_equal(other * length // one, length)
    assert length // 2 == half
    assert [each.kind for each in extents.conditions][:1] == ["zero"]
    assert not is_one(one)
    formulas = Numbers(extents).formulas()
    assert formulas([4, 4, 8, 4]) is not None
    assert formulas([4, 5, 8, 4]) is None
    assert formulas([4, 4, 8, 5]) is None


def test_what_is_known_at_each_size_is_asked_without_a_condition() -> None:
    """What may be so at some size is not sure: an extent that is 1 now is not known to be."""
    extents = Extents()
    batch, length = extents.input(1), extents.input(20)
    assert is_one(1)
    assert not is_one(batch)
    assert divides(length, batch * length)
    assert not divides(length, batch)
    assert may_reach(length, 1000)
    assert not may_reach(length % 8, 8)
    assert is_at_least(length % 8, 0) == 1
    assert not extents.conditions


def test_a_flag_says_for_each_size_whether_something_is_so() -> None:
    """It is 1 or 0, so it is its own square, and beside it stands what is so where it is not."""
    extents = Extents()
    length = extents.input(20)
    flag = is_at_least(length, 16)
    assert always_equal(flag * flag, flag)
    assert always_equal(flag * (1 - flag), 0)
    place = (numbers := Numbers(extents)).place
    places, formulas = [place(flag), place(1 - flag)], numbers.formulas()
    found = {size: formulas([size]) for size in (15, 16)}
    flags = {size: each[places].tolist() for size, each in found.items() if each is not None}
    assert flags == {15: [0, 1], 16: [1, 0]}


def test_formulas_keep_only_the_variables_that_a_number_or_a_condition_follows_from() -> None:
    """A quotient that was asked for and not used is worked out for no size; one that another is made of stays."""
    extents = Extents()
    length, other = extents.input(20), extents.input(9)
    unused, inner = other // 4, length // 3
    place = (numbers := Numbers(extents)).place
    places = [place(inner % 4 + 1), place(other)]
    formulas = numbers.formulas()
    assert [each[0] for each in formulas.to_json()["variables"]] == ["input", "input", "//", "%"]
    found = formulas([29, 5])
    assert found is not None
    assert found[places].tolist() == [29 // 3 % 4 + 1, 5]
    assert unused.value == 2


def test_shapes_of_a_transformer_stay_open() -> None:
    """What reshaping heads asks keeps only that there is something; quotients without rest are no conditions."""
    extents = Extents()
    b, s = extents.input(2), extents.input(16)
    size = b * s * 768
    assert isinstance(size // (b * s), int)
    assert size // (b * s) == 768
    assert size % (b * s * 12) == 0
    assert (b * s, 768) == (s * b, 768)
    assert [each.kind for each in extents.conditions] == ["not zero"]


def test_what_takes_a_number_fixes_it() -> None:
    """An index, text or an array of integers needs the number: the program is for this one only, which is kept."""
    for take in (int, str, float, hash, lambda each: range(100)[each], lambda each: np.array([each], np.int64)):
        extents = Extents()
        take(extents.input(7))
        formulas = Numbers(extents).formulas()
        assert formulas([7]) is not None
        assert formulas([8]) is None


def test_nothing_is_decided_after_the_conditions_were_taken() -> None:
    """What would decide later, as a constant that is packed late could, is an error; what was decided is not."""
    extents = Extents()
    extent = extents.input(7)
    assert extent > 3
    Numbers(extents).formulas()
    assert extent > 3
    with pytest.raises(ClosedError):
        int(extent)


def test_extents_of_two_lowerings_do_not_meet() -> None:
    """A number that one lowering left in a cache cannot slip into another one."""
    with pytest.raises(ClosedError):
        Extents().input(2) + Extents().input(2)


@pytest.mark.parametrize("change", ["variables", "numbers", "conditions"])
def test_formulas_of_a_damaged_file_are_refused(change: str) -> None:
    """Formulas that name an extent which is not there, or are of no known kind, are no formulas."""
    extents = Extents()
    extent = extents.input(7)
    assert extent // 3 > 1
    numbers = Numbers(extents)
    numbers.place(extent * 2)
    parts = numbers.formulas().to_json()
    parts[change][-1] = {"variables": ["//", [[[1], 1]], [[[5], 1]]], "numbers": [[[9], 1]], "conditions": ["odd", []]}[
        change
    ]
    with pytest.raises(ValueError, match=r"extent|kind"):
        Formulas.from_json(parts)


def test_an_extent_says_what_it_is() -> None:
    """For who debugs: the value at hand and the polynomial."""
    assert repr(Extents().input(7) * 2) == "Extent(14: (((0,), 2),))"
    assert isinstance(Extents().input(7), SymbolicExtent)


@given(PROGRAMS, SIZES, SIZES)
@example([("measured", 6, 0)], (0, 0), (1, 0))  # a negative number times an open one
@example([("quotient", 0, 0)], (1, 0), (0, 0))
@example([("quotient", 0, 0)], (0, 0), (1, 0))
def test_no_result_is_below_what_is_the_least_of_it(
    program: Program, first: tuple[int, int], second: tuple[int, int]
) -> None:
    """Wherever the conditions hold, also for quotients and remainders, which lie near what is divided."""
    extents = Extents()
    results = run(program, (extents.input(first[0]), extents.input(first[1])))
    bounds = [
        (extents.least(each.polynomial), at_most(each)) if isinstance(each, SymbolicExtent) else None
        for each in results
    ]
    numbers = Numbers(extents)
    for each in results:  # what divides by zero has no value
        numbers.place(each)
    if numbers.formulas()(second) is None:
        return
    for bound, value in zip(bounds, run(program, second), strict=True):
        if bound is not None:
            assert bound[0] <= value
            assert isinstance(bound[1], SymbolicExtent) or value <= bound[1]


def test_what_a_stride_leaves_over_is_less_than_the_stride() -> None:
    """The geometry of windows is the same whether an extent is odd or even: nothing of it is a condition."""
    extents = Extents()
    width = extents.input(321)
    out = (width - 1) // 2 + 1
    assert (out - 1) * 2 < width
    assert at_most((out - 1) * 2 + 2 - width) == 1
    assert at_most(width) is width
    assert width * 2 / width == 2.0
    assert [each.kind for each in extents.conditions] == ["not zero"]


def test_enough_is_never_below_either_and_decides_nothing() -> None:
    """It is the greater number where that is sure, else the sum; no size is left out for it."""
    extents = Extents()
    size = extents.input(56)
    slack = -(-size // 28) * 28 - size
    assert enough(2, 3) == 3
    assert example_value(enough(slack, slack + 1)) == 1
    assert example_value(enough(slack, 1)) == 1
    assert [example_value(each) for each in (enough(size, 3), enough(3, size))] == [59, 59]
    assert enough(enough(slack, 1), 1) - enough(slack, 1) == 0
    assert not extents.conditions
