"""Outputs in the caller's arrays: where the result is written directly, and where it is copied there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opbuild.errors import InputError, OutputError
from opbuild.graph.types import Array, TensorType
from opbuild.program import Port
from opbuild.runtime.given import Continued, taken
from opbuild.runtime.record import Ports
from support.handmade import two_in_two_out

A, B = np.ones((2, 4), np.float32), np.full((2, 4), 2, np.float32)


def _chosen(given: list[Array | None], inputs: list[Array], known: dict[int, Continued]) -> tuple[list[bool], Any]:
    """Return which of the arrays are written directly, and the steps that are left out."""
    ports = Ports.of([Port(str(number), TensorType("float32", (2, 4)), number) for number in range(len(given))])
    found, left_out = taken(ports, given, inputs, known)
    assert all(one is None or one is other for one, other in zip(found, given, strict=True))
    return [each is not None for each in found], left_out


def test_a_result_is_the_array_that_was_given_for_it() -> None:
    """Other outputs are fresh."""
    net, mine = two_in_two_out(), np.zeros((2, 4), np.float32)
    found = net.run({"a": A, "b": B}, out={"sum": mine})
    assert found["sum"] is mine
    np.testing.assert_array_equal(mine, A + B)
    np.testing.assert_array_equal(found["again"], A + B + B)
    one, two = net.run(None, {"a": A, "b": B}, out={"again": mine})
    assert two is mine
    np.testing.assert_array_equal(one, A + B)


@pytest.mark.parametrize("name", ["sum", "again"])
def test_an_input_as_an_output_is_read_before_it_is_written(name: str) -> None:
    """``sum`` is read once more after it was made, and ``b`` after ``sum`` was."""
    for source in ("a", "b"):
        feeds = {"a": A.copy(), "b": B.copy()}
        found = two_in_two_out().run(feeds, out={name: feeds[source]})
        assert found[name] is feeds[source]
        np.testing.assert_array_equal(found["sum"], A + B)
        np.testing.assert_array_equal(found["again"], A + B + B)


def test_arrays_in_another_order_get_the_result() -> None:
    """Rows of a wider array, a transposed one, and one array for two outputs, of which the last one stays."""
    net, wide = two_in_two_out(), np.zeros((2, 9), np.float32)
    found = net.run({"a": A, "b": B}, out={"sum": wide[:, 1:5], "again": np.zeros((4, 2), np.float32).T})
    np.testing.assert_array_equal(wide[:, 1:5], A + B)
    assert not wide[:, 5:].any()
    np.testing.assert_array_equal(found["again"], A + B + B)
    both = np.zeros((2, 4), np.float32)
    net.run({"a": A, "b": B}, out={"sum": both, "again": both})
    np.testing.assert_array_equal(both, A + B + B)


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (np.zeros((4, 2), np.float32), r"out has float32\[4, 2\] for output 'sum', which is float32\[2, 4\]"),
        (np.zeros((2, 4)), r"out has float64\[2, 4\] for output 'sum', which is float32\[2, 4\]"),
        (np.broadcast_to(np.float32(0), (2, 4)), "out has a read-only array for output 'sum'"),
        ([[0.0] * 4] * 2, "out has a value of list for output 'sum'"),
    ],
    ids=["shape", "type", "read-only", "list"],
)
def test_an_array_that_does_not_fit_is_refused(array: Any, said: str) -> None:
    """The message names the output and both types."""
    with pytest.raises(OutputError, match=said):
        two_in_two_out().run({"a": A, "b": B}, out={"sum": array})


def test_what_is_no_output_and_what_is_no_dictionary_is_refused() -> None:
    """As names of outputs are elsewhere."""
    with pytest.raises(InputError, match="has no output 'summ'"):
        two_in_two_out().run({"a": A, "b": B}, out={"summ": A.copy()})
    with pytest.raises(InputError, match="run was given a value of type ndarray for out"):
        two_in_two_out().run({"a": A, "b": B}, out=A)  # type: ignore[call-overload]


def test_memory_is_shared_as_a_whole_or_not_at_all() -> None:
    """What overlaps an input or another output in part is written when all is read."""
    room = np.zeros(64, np.float32)
    first, shifted, other = room[:8].reshape(2, 4), room[4:12].reshape(2, 4), room[32:40].reshape(2, 4)
    known = {0: Continued(0, 7)}
    assert _chosen([first, other], [A, B], known) == ([True, True], frozenset())
    assert _chosen([first, other], [first, B], known) == ([True, True], frozenset({7}))
    assert _chosen([other, first], [first, B], known) == ([True, False], frozenset())
    assert _chosen([first, None], [first, first], known) == ([False, False], frozenset())
    assert _chosen([shifted, other], [first, B], known) == ([False, True], frozenset())
    assert _chosen([first, shifted], [A, B], known) == ([False, False], frozenset())
    assert _chosen([other, other], [A, B], known) == ([True, False], frozenset())


def test_all_that_one_array_covers_is_found() -> None:
    """Not only the first of several arrays that lie in a long one."""
    room = np.zeros(64, np.float32)
    parts = [room[start : start + 8].reshape(2, 4) for start in (8, 24, 40)]
    assert _chosen([*parts], [room], {}) == ([False, False, False], frozenset())
