"""How many keys a query sees is found in whatever compares places, and never where it is not sure."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from opbuild.graph.passes.attention import HiddenKeys
from opbuild.graph.types import Array, Graph, TensorType
from opbuild.operations.expression import ACC, Expression, arg, const

ROWS, KEYS = 4, 5
COMPARED = {"less": np.less, "less_equal": np.less_equal, "greater": np.greater, "greater_equal": np.greater_equal}
HIDDEN = const(-np.inf)


def asked(**operands: Array | str) -> tuple[HiddenKeys, list[str]]:
    """Return a graph of constants, and values given as their types, asked for hidden keys; and their names."""
    shapes = {"queries": (ROWS, 1), "keys": (KEYS,), "bias": (ROWS, KEYS)}
    types, constants = {}, {}
    for name, value in operands.items():
        if isinstance(value, str):
            types[name] = TensorType(value, shapes[name])
        else:
            types[name], constants[name] = TensorType(str(value.dtype), value.shape), value
    return HiddenKeys(Graph("asked", (), (), (), types, constants, 21)), list(operands)


def value(e: Expression, queries: Array) -> Array:
    """Return the value of a number of keys, which reads the places of queries."""
    if e[0] == "const":
        return np.asarray(int(e[2]))
    return queries if e[0] == "arg" else value(e[1], queries) + value(e[2], queries)


@pytest.mark.parametrize(("name", "turned", "chosen"), list(product(COMPARED, (False, True), (False, True))))
def test_every_comparison_that_hides_the_last_keys_is_found(name: str, turned: bool, chosen: bool) -> None:
    """Whichever side keys are on, and whether it chooses scores or what hides them; others hide the first keys."""
    hidden, operands = asked(keys=np.arange(KEYS), queries="int64")
    places = (arg(1), arg(0)) if turned else (arg(0), arg(1))
    comparison = (name, *places)
    found = hidden.find(("where", comparison, *((ACC, HIDDEN) if chosen else (HIDDEN, ACC))), operands)
    queries, keys = np.arange(-1, ROWS - 1).reshape(-1, 1), np.arange(KEYS)
    seen = COMPARED[name](*((queries, keys) if turned else (keys, queries))) == chosen
    if not seen[-1, 0]:
        assert found is None
    else:
        assert found is not None
        assert (found.comparison, found.is_seen) == (comparison, chosen)
        np.testing.assert_array_equal(np.clip(value(found.number, queries), 0, KEYS)[:, 0], seen.sum(-1))


SEEN = ("less", arg(0), arg(1))


@pytest.mark.parametrize(
    ("expression", "is_found"),
    [
        (("add", ("where", SEEN, const(0.0), HIDDEN), ACC), True),
        (("where", ("and", SEEN, ("less", arg(1), arg(1))), ACC, HIDDEN), True),
        (("where", ("or", SEEN, ("less", arg(1), arg(1))), ACC, HIDDEN), False),
        (("where", SEEN, ACC, const(-1e10)), True),
        (("where", SEEN, ACC, const(-10000.0)), False),
        (("where", SEEN, ACC, const(np.nan)), False),
        (("where", ("and", SEEN, SEEN), ACC, const(-1e10)), False),
        (("mul", ("where", SEEN, ACC, HIDDEN), const(-1.0)), False),
        (("add", ("where", SEEN, ACC, const(-1e10)), ("where", SEEN, const(0.0), const(-1e10))), False),
    ],
)
def test_keys_are_hidden_where_their_weight_is_0_whatever_the_scores_are(
    expression: Expression, is_found: bool
) -> None:
    """Sums with -inf, and one choice of what is far below; a factor, or a second choice, may bring hidden keys back."""
    hidden, operands = asked(keys=np.arange(KEYS), queries="int64")
    assert (hidden.find(expression, operands) is not None) == is_found


@pytest.mark.parametrize(
    ("keys", "queries", "more"),
    [
        (np.arange(1, KEYS + 1), "int64", {}),
        (np.arange(KEYS)[::-1].copy(), "int64", {}),
        ("int64", "int64", {}),
        (np.arange(KEYS), "float32", {}),
        (np.arange(KEYS), "int64", {"bias": "float32"}),
        (np.arange(KEYS), "int64", {"bias": np.full((ROWS, KEYS), np.nan, np.float32)}),
    ],
)
def test_what_is_not_known_is_not_taken_for_places(
    keys: Array | str, queries: str, more: dict[str, Array | str]
) -> None:
    """Numbers in another order, keys that are data, and masks besides that may hold NaN or infinity."""
    hidden, operands = asked(keys=keys, queries=queries, **more)
    scores: Expression = ("where", SEEN, ACC, HIDDEN)
    assert hidden.find(("add", scores, arg(2)) if more else scores, operands) is None


@pytest.mark.parametrize("bias", ["float32", np.full((ROWS, KEYS), np.nan, np.float32)])
def test_what_replaces_scores_hides_keys_whatever_they_were(bias: Array | str) -> None:
    """A mask of data inside the choice is not there for a hidden key, NaN and infinity included."""
    hidden, operands = asked(keys=np.arange(KEYS), queries="int64", bias=bias)
    found = hidden.find(("where", SEEN, ("add", ACC, arg(2)), HIDDEN), operands)
    assert found is not None
    assert found.replaces
    finite = hidden.find(("where", SEEN, ("add", ACC, arg(2)), const(-1e10)), operands)
    assert finite is None


@pytest.mark.parametrize(("name", "turned"), list(product(COMPARED, (False, True))))
def test_every_comparison_that_hides_the_first_keys_is_a_window(name: str, turned: bool) -> None:
    """Beside one that hides the last keys, whichever side keys are on."""
    hidden, operands = asked(keys=np.arange(KEYS), queries="int64")
    window = (name, *((arg(1), arg(0)) if turned else (arg(0), arg(1))))
    queries, keys = np.arange(-1, ROWS - 1).reshape(-1, 1), np.arange(KEYS)
    seen = COMPARED[name](*((queries, keys) if turned else (keys, queries)))
    if not seen[0, -1]:
        return
    for filled in (HIDDEN, const(-1e10)):
        found = hidden.find(("where", ("and", SEEN, window), ACC, filled), operands)
        assert found is not None
        assert found.first is not None
        first = np.clip(value(found.first, queries), 0, KEYS)[:, 0]
        np.testing.assert_array_equal(first, (~seen).sum(-1))
