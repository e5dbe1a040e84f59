"""The layer round blobs that fail: what is asked again, what is not, and when nothing is asked any more."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable

import pytest

from opbuild.kernel.reason import Reason
from opbuild.store.blobs import Memory
from opbuild.store.remote.failures import SLOW, UNKNOWN, Transient
from opbuild.store.remote.retry import FAILURES, LEFT_ALONE, Retried
from opbuild.store.remote.uploads import Ending
from support.shaky_blobs import PASSES, Shaky
from support.simulated import Time

FULL = Reason("refused", "it is full")
MOST = 2**20


def layered(faults: Iterable[Reason | None]) -> tuple[Retried, Shaky, Time, Ending]:
    """Return the layer round memory with one blob that fails so, what it asks, the time, and the program's end."""
    time = Time()
    ending, shaky = Ending(10.0, time), Shaky(Memory({"one": b"1"}), faults)
    return Retried(shaky, 1.0, ending, time, time.sleep), shaky, time, ending


@pytest.mark.parametrize(
    ("faults", "answer", "requests"),
    [
        ([None], b"1", 1),
        ([PASSES, None], b"1", 2),
        ([PASSES, PASSES, None], PASSES, 2),
        ([PASSES, FULL, None], FULL, 2),
        ([FULL, None], FULL, 1),
    ],
)
def test_what_may_pass_is_asked_for_once_more(
    faults: list[Reason | None], answer: bytes | Reason, requests: int
) -> None:
    """What is final is not; the last answer counts."""
    blobs, shaky, _, _ = layered(faults)
    assert blobs.get("one", MOST) == answer
    assert shaky.requests == requests


def test_reading_and_writing_are_given_up_each_by_itself() -> None:
    """After some failures nothing is asked; that something is absent, there or too large is none."""
    blobs, shaky, time, _ = layered(
        itertools.chain([None] * 10, itertools.repeat(FULL, FAILURES), itertools.repeat(None))
    )
    for _ in range(5):
        assert blobs.get("nothing", MOST) == Reason("absent", "nothing is missing")
        assert blobs.get("one", 0) == Reason("damaged", "one has more than 0 bytes")
    assert [blobs.put([("two", b"2")]) for _ in range(FAILURES + 1)] == [FULL] * (FAILURES + 1)
    assert shaky.requests == 10 + FAILURES
    assert (blobs.reading.reason, blobs.writing.reason, blobs.failure) == (None, FULL, FULL)
    assert blobs.get("one", MOST) == b"1"
    assert blobs.delete("one") == FULL
    time.sleep(LEFT_ALONE)
    assert blobs.delete("one") is None
    assert blobs.writing.reason is None


def test_what_breaks_off_has_said_before_why() -> None:
    """So does whoever can look for a better reason."""
    blobs, _, _, _ = layered([FULL, UNKNOWN])
    assert [blobs.get("one", MOST) for _ in range(2)] == [FULL, FULL]
    asked = Retried(Shaky(Memory(), [UNKNOWN]), explained=lambda reason: Reason(SLOW, "no answer in time"))
    assert asked.get("one", MOST) == Reason(SLOW, "no answer in time")


def test_after_the_end_nothing_is_asked_twice_and_then_nothing() -> None:
    """What was not asked is no failure."""
    blobs, shaky, time, ending = layered([PASSES, *[None] * 9])
    ending.begin()
    assert blobs.get("one", MOST) == PASSES
    time.sleep(10.0)
    assert blobs.get("one", MOST) == Reason("abandoned", "the program has ended")
    assert shaky.requests == 1
    assert blobs.reading.reason is None


@pytest.mark.parametrize("seed", range(20))
def test_whatever_fails_an_answer_is_right_or_a_reason(seed: int) -> None:
    """What was said to be written is read, what was said to be removed is not, each request is made twice at most."""
    chance = random.Random(seed)
    faults = (chance.choice((None, None, PASSES, FULL, Transient(*UNKNOWN))) for _ in itertools.count())
    blobs, shaky, time, _ = layered(faults)
    known: dict[str, bytes | None] = {"one": b"1", "two": None}
    for number in range(200):
        name, before = chance.choice(("one", "two")), shaky.requests
        how = chance.randrange(3)
        if how == 0:
            answer = blobs.get(name, MOST)
            held = known[name]
            assert answer == held or (isinstance(answer, Reason) and (held is None or answer.code == "refused"))
        elif how == 1:
            new = str(number).encode()
            known[name] = new if blobs.put([(name, new)]) is None else known[name]
        elif blobs.delete(name) is None:
            known[name] = None
        assert shaky.requests - before <= 2
        time.sleep(chance.choice((0.0, LEFT_ALONE)))
