"""Profiles: each call of a network timed, described and grouped."""

from __future__ import annotations

from typing import Any

import pytest

from opbuild.errors import InputError
from opbuild.graph.types import TensorType
from opbuild.program import View
from opbuild.runtime.calls import NetworkCall, kernel_call, operations
from opbuild.runtime.profile import Profile, ProfileRow, profiled, random_inputs
from opbuild.runtime.timing import TIMER, timing


def dense(*shape: int) -> tuple[tuple[int, int], ...]:
    """Return extents and strides of a dense operand, innermost first."""
    dims, stride = [], 1
    for extent in reversed(shape):
        dims.append((extent, stride))
        stride *= extent
    return tuple(dims)


class Steps:
    """A network of steps that are counted, as far as a profile looks at it."""

    def __init__(self, count: int) -> None:
        self.steps = [(self._step, (number,)) for number in range(count)]
        self.seen: list[int] = []

    def _step(self, number: int) -> None:
        self.seen.append(number)

    def call_of(self, step: int) -> NetworkCall:
        """Describe a step: three of four call one kernel."""
        return NetworkCall(f"k{step % 4 == 0}__kernel0", (f"node{step}",), "conv", {}, (1,), 100, 8, ())

    def run(self) -> None:
        """Run as ``Runner`` does."""
        timer = TIMER.get()
        for function, arguments in self.steps if timer is None else timer.wrapped(self, self.steps):
            function(*arguments)


def test_each_call_is_timed_and_all_shares_make_one() -> None:
    """Rows stand in the order of the calls, and nothing is timed outside of a profile."""
    network = Steps(8)
    profile = profiled("n", network.run, 3)
    assert [row.call.nodes for row in profile.rows] == [(f"node{step}",) for step in range(8)]
    assert network.seen == list(range(8)) * 7
    assert sum(row.share for row in profile.rows) == pytest.approx(1)
    assert TIMER.get() is None


def test_rows_of_one_kernel_are_added_up() -> None:
    """By kernel the slowest stands first; times, operations and bytes are sums."""
    calls = [NetworkCall(f"{name}__kernel0", (str(n),), "conv", {}, (1,), 10, 4) for n, name in enumerate("aba")]
    rows = tuple(ProfileRow(call, time, time / 10) for call, time in zip(calls, (2.0, 5.0, 3.0001), strict=True))
    first, second = Profile("n", rows, 11.0, 3).by_kernel()
    assert (first.kernel, first.calls, first.operations, first.nbytes) == ("a", 2, 20, 8)
    assert (second.kernel, second.milliseconds) == ("b", 5.0)


def test_no_run_is_refused() -> None:
    """A median of nothing is none."""
    with pytest.raises(InputError, match="runs is 0"):
        profiled("n", Steps(1).run, 0)


def test_inputs_with_open_extents_must_be_given() -> None:
    """Random numbers need a shape; the message names the input."""
    with pytest.raises(InputError, match="'x'"):
        random_inputs({"x": TensorType("float32", (-1, 3))})


def test_a_timer_is_gone_after_an_error() -> None:
    """A run that fails leaves nothing that times the next one."""
    with pytest.raises(ValueError, match="fails"), timing():
        raise ValueError("it fails")
    assert TIMER.get() is None


@pytest.mark.parametrize(
    ("family", "shapes", "expected"),
    [
        ("matmul", [dense(5, 7), dense(7, 3), dense(5, 3)], 2 * 5 * 7 * 3),
        ("conv", [dense(1, 2, 6, 6, 16), dense(2, 2, 3, 3, 16, 16), dense(1, 2, 4, 4, 16)], 2 * 512 * 9 * 32),
        ("attention", [dense(2, 5, 8), dense(2, 8, 7), dense(2, 7, 4), dense(2, 5, 4)], 2 * 2 * 5 * 7 * (8 + 4)),
        ("recurrent", [dense(5, 2, 3, 4, 8), dense(2, 1, 8, 4, 16), dense(5, 2, 3, 8)], 2 * 240 * 4 * 8),
        ("recurrent", [dense(5, 3, 6), dense(2, 1, 6, 4, 16), dense(5, 2, 3, 8)], 2 * 240 * 4 * (8 + 6)),
        ("softmax", [dense(2, 5), dense(2, 5)], 0),
    ],
)
def test_operations_are_those_of_the_definition(family: str, shapes: list[Any], expected: int) -> None:
    """Two for each product and addition; what is not counted is 0."""
    assert operations(family, shapes, 1) == expected


def test_a_call_has_the_bytes_of_its_operands_once() -> None:
    """An operand that is read again and again by a stride of 0 counts once; the shape is the output's."""
    views = [View(0, 0, ((4, 1), (3, 0))), View(1, 0, ((4, 1), (3, 4)))]
    call = kernel_call("k__kernel0", ("n",), ("elementwise", {}), views, [4, 2], 1)
    assert (call.nbytes, call.shape, call.kernel) == (4 * 4 + 12 * 2, (3, 4), "k")
