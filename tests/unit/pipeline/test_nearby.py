"""Sizes for which templates are made ahead of the calls that ask for them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from opbuild.graph.cut import Answer
from opbuild.graph.extents import Extents
from opbuild.graph.formulas import Numbers
from opbuild.pipeline.nearby import BETWEEN, EXTENTS, nearby


def template(variables: list[tuple[int, int]], fixed: tuple[int, ...], *, numbers: bool) -> Any:
    """Return what is asked of a template, some of whose extents a condition fixes."""
    extents = Extents()
    given = [extents.input(20 + index) for index in range(len(variables))]
    for index in fixed:
        int(given[index])
    formulas = Numbers(extents).formulas()
    values = ((0,),) if numbers else ()
    return SimpleNamespace(symbolic=SimpleNamespace(values=values, variables=variables, formulas=formulas))


def test_one_extent_is_another_wherever_it_stands() -> None:
    """Inputs that share an extent share it there, too; one that is fixed stays as it is."""
    shapes, declared = ((20, 5), (20, 7)), ((-1, 5), (-1, -1))
    made = list(nearby(template([(0, 0), (1, 1)], (1,), numbers=False), shapes, declared))
    assert made == [((extent, 5), (extent, 7)) for extent in EXTENTS]


def test_numbers_that_decide_go_with_the_extents() -> None:
    """What is one more than an extent is so at each size; nothing is made where a number can be no other."""
    shapes, declared = ((1, 20), (0, 21)), ((1, -1), (0, -1))
    made = list(nearby(template([(0, 1), (1, 1)], (), numbers=True), shapes, declared))
    assert made == [((1, least), (0, least + 1)) for least in (*EXTENTS, *BETWEEN)]
    assert list(nearby(template([(0, 1), (1, 1)], (1,), numbers=True), shapes, declared)) == []


def test_only_integers_that_may_be_extents_are_taken_for_numbers() -> None:
    """Negative ones, those that no extent can be and truth values stay a part of what names the network."""
    answer = Answer({"s": np.array([-1, 3, 2**40, 0]), "n": np.array(7, np.int32), "c": np.array(True)})
    assert answer.numbers == (3, 0, 7)
    same = Answer({"s": np.array([-1, 9, 2**40, 4]), "n": np.array(8, np.int32), "c": np.array(True)})
    other = Answer({"s": np.array([-2, 3, 2**40, 0]), "n": np.array(7, np.int32), "c": np.array(True)})
    names = [each.without_numbers().digest("state") for each in (answer, same, other)]
    assert names[0] == names[1] != names[2]
    opened = answer.with_numbers((Extents().input(5), 0, 7)).values
    assert opened["s"].dtype == object
    assert opened["s"].tolist()[0] == -1
    assert opened["n"].dtype == np.int32
    again = answer.with_numbers((9, 4, 8)).values
    for name, value in same.values.items():
        np.testing.assert_array_equal(again[name], value, strict=True)
