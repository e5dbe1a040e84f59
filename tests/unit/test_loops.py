"""Loops in C: which steps they call, and which step failed."""

from __future__ import annotations

import ctypes
from typing import Any

from opbuild.runtime.loops import LONGEST, Loops, Step


def kernel(name: str) -> Step:
    """Return the step of a kernel that a loop can call."""
    row = (ctypes.c_void_p * 15)()
    return (lambda *_: name, (ctypes.byref(row),))


def host(name: str) -> Step:
    """Return a step that Python makes."""
    return (lambda *_: name, (name, None, None))


def run(*_: Any) -> int:
    """Stand for the loop."""
    return 0


def lengths(steps: list[Step], works: list[int]) -> list[int]:
    """Return how many kernels each loop calls; 1 for what is called itself."""
    return [arguments[1] if function is run else 1 for function, arguments in Loops(steps, works, run).steps]


def test_kernels_that_follow_each_other_are_one_loop() -> None:
    """What the host computes is called in between, and a kernel alone needs no loop."""
    steps = [kernel("a"), kernel("b"), host("c"), kernel("d"), host("e"), kernel("f"), kernel("g"), kernel("h")]
    assert lengths(steps, [1] * 8) == [2, 1, 1, 1, 3]


def test_a_loop_ends_where_python_has_not_heard_of_ctrl_c_for_long() -> None:
    """Kernels of much work are called one by one, and small ones together up to a limit."""
    steps = [kernel(str(place)) for place in range(6)]
    assert lengths(steps, [LONGEST] * 6) == [1] * 6
    assert lengths(steps, [LONGEST // 2] * 6) == [2, 2, 2]
    assert lengths(steps, [0] * 6) == [6]


def test_without_a_loop_each_step_is_called_itself() -> None:
    """A library that another release linked has none."""
    steps = [kernel("a"), kernel("b"), host("c")]
    assert Loops(steps, [1] * 3, None).steps == steps


def test_the_step_that_failed_is_found() -> None:
    """In a loop by what it returned, else by its arguments, also where steps were timed one by one."""
    steps = [kernel("a"), host("b"), kernel("c"), kernel("d"), kernel("e")]
    loops = Loops(steps, [1] * 5, run)
    (_, alone), (_, of_host), (_, of_loop) = loops.steps
    assert loops.failed(alone, -5) == 0
    assert loops.failed(of_host, 1) == 1
    assert [loops.failed(of_loop, code) for code in (1, 2, 3)] == [2, 3, 4]
    assert [loops.failed(arguments, -5) for _, arguments in steps] == list(range(5))
