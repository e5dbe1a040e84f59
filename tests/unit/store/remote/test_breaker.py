"""A service that fails is left alone, one that is merely slow now and then is not: request by request, on a clock."""

from __future__ import annotations

import random

import pytest

from opbuild.kernel.reason import Reason
from opbuild.store.remote.retry import FAILURES, LEFT_ALONE, Breaker

REFUSED = Reason("refused", "nobody listens there")
SLOW = Reason("slow", "no answer in time")
LIMIT = 1.0


class Asked:
    """A breaker, the requests that it lets through, and the time."""

    def __init__(self) -> None:
        self.now = 100.0
        self.breaker = Breaker(LIMIT, lambda: self.now)
        self.lost = 0.0

    def answers(self, times: int = 1, seconds: float = 0.004) -> None:
        """Let requests be answered."""
        for _ in range(times):
            self.now += seconds
            if self.breaker.refuses() is None:
                self.breaker.succeeded()

    def hangs(self, at_once: int = 1) -> None:
        """Let requests that begin together wait in vain."""
        asked = sum(self.breaker.refuses() is None for _ in range(at_once))
        if asked:
            self.now += LIMIT
            self.lost += LIMIT
        for _ in range(asked):
            self.breaker.failed(SLOW, LIMIT)

    def is_refused(self) -> bool:
        """Whether nothing would be asked now."""
        return self.breaker.reason is not None


def test_failures_in_a_row_end_it_and_an_answer_begins_anew() -> None:
    """Failures of separate requests, however short."""
    row, mixed = Asked(), Asked()
    for _ in range(FAILURES):
        assert not row.is_refused()
        row.breaker.failed(REFUSED)
    assert row.breaker.refuses() == REFUSED
    for _ in range(10):
        mixed.breaker.failed(REFUSED)
        mixed.answers()
    assert not mixed.is_refused()


def test_a_stall_of_many_requests_is_one() -> None:
    """Eight requests that wait together lose one second, not eight: a busy host holds all of them up."""
    asked = Asked()
    asked.hangs(at_once=8)
    assert not asked.is_refused()
    asked.hangs(at_once=8)
    assert asked.is_refused()
    assert asked.lost == 2 * LIMIT


def test_a_program_that_asks_much_goes_on_though_a_request_fails_now_and_then() -> None:
    """A fleet's models take thousands of requests: two of them that were slow are no reason to do without the rest."""
    asked = Asked()
    for _ in range(50):
        asked.answers(50)
        asked.hangs()
    assert not asked.is_refused()


def test_a_service_that_often_hangs_is_left_alone() -> None:
    """One request of four loses time that others do not give back."""
    asked = Asked()
    for _ in range(10):
        asked.answers(3)
        asked.hangs()
    assert asked.is_refused()
    assert asked.lost <= 3 * LIMIT


def test_what_was_left_alone_is_tried_again_by_one_request() -> None:
    """After a while, then after twice as long; an answer opens it for all."""
    asked = Asked()
    asked.hangs()
    asked.hangs()
    for pause in (LEFT_ALONE, 2 * LEFT_ALONE, 4 * LEFT_ALONE):
        asked.now += pause - 1.0
        assert asked.breaker.refuses() == SLOW
        asked.now += 1.0
        assert asked.breaker.refuses() is None
        assert asked.breaker.refuses() == SLOW  # while the one is under way
        asked.breaker.failed(SLOW, 0.0)
    asked.now += 8 * LEFT_ALONE
    asked.answers()
    assert not asked.is_refused()
    asked.hangs()
    assert not asked.is_refused()


def test_an_answer_to_what_was_asked_before_opens_nothing() -> None:
    """Requests that were under way when the service was given up may still be answered."""
    asked = Asked()
    asked.hangs()
    asked.hangs()
    asked.breaker.succeeded()
    assert asked.is_refused()


def test_what_was_stopped_stays_so() -> None:
    """A fork never asks."""
    asked = Asked()
    asked.breaker.stop(REFUSED)
    asked.now += 1e9
    assert asked.breaker.refuses() == REFUSED


@pytest.mark.parametrize("seed", range(20))
def test_whatever_a_service_does_little_time_is_lost(seed: int) -> None:
    """Two limits, what answers make up for, and one request after each pause: whatever comes in whatever order."""
    chance = random.Random(seed)
    asked, answered, began = Asked(), 0, 100.0
    often = chance.random()
    for _ in range(2000):
        if chance.random() < often:
            asked.hangs(chance.randint(1, 8))
        else:
            answered += 1
            asked.answers(seconds=chance.choice((0.001, 0.1, 1.0)))
        tries = (asked.now - began) / LEFT_ALONE
        assert asked.lost <= LIMIT * (3 + 0.05 * answered + tries)
