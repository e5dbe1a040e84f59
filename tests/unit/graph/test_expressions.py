"""Expressions: numbers that follow from open extents, apart from the lowering in which they were worked out."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np

from opbuild.graph.breaks import Answer
from opbuild.graph.expressions import DerivedValue, derived, expression, filled
from opbuild.graph.extents import Extents, SymbolicExtent
from opbuild.graph.symbolic_numbers import greater, is_equal, is_less, lesser, quotient


def drawn(draw: random.Random, given: list[Any]) -> Any:
    """Return a number made of others by random arithmetic."""
    known = [*given, 1, 3]
    for _ in range(draw.randint(1, 6)):
        one, other = draw.choice(known), draw.choice(known)
        kind = draw.randrange(10)
        if kind < 3:
            known.append([one + other, one - other, one * other][kind])
        elif kind >= 5:
            makes = lesser, greater, is_less, is_equal, lambda one, other: quotient(one - other, 3)
            known.append(makes[kind - 5](one, other) * 1)
        else:
            divisor = draw.randint(1, 4)
            known.append(one // divisor if kind == 3 else one % divisor)
    return known[-1]


def test_a_number_is_the_same_from_its_expression_at_any_size() -> None:
    """Through JSON, with integers and with the open extents of another lowering in place of the symbols."""
    for seed in range(200):
        owner = Extents()
        opened = [owner.input(value) for value in (5, 12, 7)]
        number = drawn(random.Random(seed), list(opened))
        found = json.loads(json.dumps(expression(number, lambda variable: variable)))
        for sizes in ((5, 12, 7), (1, 0, 33), (100, 3, 2)):
            wanted = drawn(random.Random(seed), list(sizes))
            assert filled(found, sizes) == wanted, f"seed {seed} at {sizes}"
            other = Extents()
            again = filled(found, [other.input(size) for size in sizes])
            assert (again.value if isinstance(again, SymbolicExtent) else again) == wanted


def test_a_value_is_of_objects_only_where_it_is_open() -> None:
    """A list of sizes has the element type that it stands for once all its numbers are known."""
    owner = Extents()
    extent = owner.input(6)
    value = np.array([1, 2 * extent, -1], object)
    found = derived(value, "int32", lambda variable: variable)
    assert isinstance(found, DerivedValue)
    np.testing.assert_array_equal(found.value([4]), np.array([1, 8, -1], np.int32), strict=True)
    assert found.value([Extents().input(4)]).dtype == object


def test_numbers_that_decide_stay_open_in_an_answer() -> None:
    """What follows from one behind a second graph break is known to follow from it."""
    first, second = np.array([4, -1, 7]), np.array([2])
    answer = Answer({"first": first, "second": second})
    owner = Extents()
    opened = tuple(owner.input(value) for value in answer.numbers)
    assert answer.numbers == (4, 7, 2)
    found = answer.with_numbers(opened)
    assert [*map(id, found.numbers)] == [*map(id, opened)]
    assert found.values["first"].tolist()[1] == -1
