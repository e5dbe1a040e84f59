"""Formulas as text, for people."""

from __future__ import annotations

import pytest

from opbuild.graph.formulas import Formulas, Number
from opbuild.graph.polynomials import Variable

A, B, HALF = 0, 1, 2
VARIABLES = [
    Variable("input", (), (), 0, True),
    Variable("input", (), (), 0, True),
    Variable("//", (((A,), 1), ((), 1)), (((), 2),), 0, True),
    Variable("max", (((HALF,), 1),), (((B,), 1),), 0, True),
    Variable("negate", (((A,), 1),), (), 0, False),
]
TEXTS: dict[str, Number] = {
    "12": 12,
    "0": (),
    "x[0]": (((A,), 1),),
    "x[0]·x[1]": (((A, B), 1),),
    "4·x[0]·x[1] + x[1] - 3": (((), -3), ((A, B), 4), ((B,), 1)),
    "((x[0] + 1) // 2)": (((HALF,), 1),),
    "2·max(((x[0] + 1) // 2), x[1])": (((3,), 2),),
    "negate(x[0])": (((4,), 1),),
}


@pytest.mark.parametrize("text", TEXTS)
def test_a_number_is_shown_as_it_follows_from_open_extents(text: str) -> None:
    """A polynomial, what it is made of by other operations in full."""
    assert Formulas(VARIABLES, [], [TEXTS[text]]).text(0, ["x[0]", "x[1]"]) == text
