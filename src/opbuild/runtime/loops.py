"""Loops: kernels that follow each other are called by one loop in C, so that Python is paid for once.

A call by ctypes takes a microsecond of a network whose kernels push Python's own data out of the caches.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

Step = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function and its arguments; it returns 0 (or None) unless it failed."""

LONGEST = 20_000_000
"""Nanoseconds that kernels of one loop take at most, but for the last: between loops Python hears of Ctrl-C."""


class Loops:
    """What runs some steps.

    Args:
        steps: What is called, in order; one that has the address of a row as its one argument is a kernel.
        works: Nanoseconds that each takes on one core.
        run: ``Library.run``; None: each step is called itself.

    Attributes:
        steps: What is called instead, in order.
    """

    def __init__(self, steps: Sequence[Step], works: Sequence[int], run: Callable[..., int] | None) -> None:
        self._single, self._firsts = steps, list[int]()
        self.steps: list[Step] = []
        place = 0
        while place < len(steps):
            end = place if run is None else _end(steps, works, place)
            self._firsts.append(place)
            if run is None or end < place + 2:
                self.steps.append(steps[place])
                place += 1
                continue
            rows = [ctypes.addressof(_row(steps[index])) for index in range(place, end)]
            self.steps.append((run, (ctypes.byref((ctypes.c_void_p * len(rows))(*rows)), len(rows))))
            place = end

    def failed(self, arguments: tuple[Any, ...], code: int) -> int:
        """Return the place of the step that failed, of what was called with some arguments and returned a code."""
        for first, (_, each) in zip(self._firsts, self.steps, strict=True):
            if each is arguments:
                return first if self._single[first][1] is arguments else first + code - 1
        return next(place for place, (_, each) in enumerate(self._single) if each is arguments)  # a step that was timed


def _row(step: Step) -> Any:
    """Return the words of which a step has the address; None if it is no kernel that a loop can call."""
    _, arguments = step
    return getattr(arguments[0], "_obj", None) if len(arguments) == 1 else None


def _end(steps: Sequence[Step], works: Sequence[int], first: int) -> int:
    """Return the end of the kernels that one loop calls from a place on."""
    work, place = 0, first
    while place < len(steps) and work < LONGEST and _row(steps[place]) is not None:
        work += works[place]
        place += 1
    return place
