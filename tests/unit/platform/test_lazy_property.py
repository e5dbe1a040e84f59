"""Attributes made once, also where a process is forked while another thread makes one."""

from __future__ import annotations

import threading
import time

from opbuild.platform.locks import lazy_property, made_once
from support.forked import in_fork
from support.together import run_together


class Slow:
    """Has an attribute whose making can be held up, by the first thread that asks."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.made = 0

    @lazy_property
    def value(self) -> list[int]:
        """A list of its own each time it is made."""
        self.made += 1
        if not self.begun.is_set():
            self.begun.set()
            self.go_on.wait(60)
        return [self.made]


def test_an_attribute_is_made_once() -> None:
    """Who asks again gets what was made."""
    slow = Slow()
    slow.begun.set()
    assert slow.value is slow.value
    assert slow.made == 1


def test_a_fork_does_not_wait_for_who_makes_an_attribute() -> None:
    """The thread that makes it is not in the fork, and would never be done (F23)."""
    slow = Slow()
    thread = threading.Thread(target=lambda: slow.value)
    thread.start()
    slow.begun.wait(60)
    try:
        assert in_fork(lambda: Slow.value.__get__(slow, Slow)) == [2]
    finally:
        slow.go_on.set()
        thread.join()


def test_a_value_is_made_once_however_many_threads_ask() -> None:
    """All get the same one, for equal arguments; ``functools.cache`` lets each thread make its own."""
    made: list[int] = []
    found: list[list[int]] = []

    @made_once
    def value(number: int) -> list[int]:
        made.append(number)
        time.sleep(0.01)
        return [number]

    assert run_together(lambda number: found.append(value(number % 2)), 6) == []
    assert sorted(made) == [0, 1]
    assert len({id(each) for each in found}) == 2
