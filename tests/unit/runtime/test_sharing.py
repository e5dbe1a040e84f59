"""Sharing of packing: who meets others gives what it packs, takes what they give, and waits for them only so long."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import numpy as np
import pytest

from opbuild.graph.types import Array
from opbuild.runtime.sharing import LEAST_PATIENCE, Sharing

NBYTES = 2**16


class Claims:
    """Claims on sources, of which others have some, and what was offered."""

    def __init__(self, *others: str) -> None:
        self.others, self.own = {*others}, set[str]()
        self.offers: dict[str, tuple[int, int]] = {}

    def take(self, source: str) -> bool:
        """Return whether it is nobody's."""
        if source not in self.others:
            self.own.add(source)
        return source not in self.others

    def give(self, source: str) -> None:
        """Give it up."""
        self.own.discard(source)

    def offer(self, source: str, descriptor: int) -> None:
        """Tell others of it."""
        self.offers[source] = 1, descriptor

    def offered(self, source: str) -> tuple[int, int] | None:
        """Return the offer that others made."""
        return self.offers.get(source)

    def close(self) -> None:
        """Give up all."""
        self.own.clear()


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Array]:
    """Make shared pages of ``NBYTES`` under a name; what is offered of them is mapped as another process would."""
    there: dict[int, Array] = {}
    numbers = count(1)

    def make(name: str) -> Array:
        memory = np.full(NBYTES, len(name), np.uint8)
        there[next(numbers)] = memory
        return memory

    def mapped(process: int, descriptor: int, name: str, nbytes: int) -> Array | None:
        return there[descriptor] if (process, nbytes) == (1, NBYTES) else None

    def descriptor_of(memory: Array) -> int | None:
        return next((number for number, each in there.items() if each is memory), None)

    for name, function in (("map_shared_pages", mapped), ("shared_descriptor", descriptor_of)):
        monkeypatch.setattr(f"opbuild.runtime.sharing.{name}", function)
    return make


class Clock:
    """Seconds that the test lets pass."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def test_who_meets_nobody_gives_nothing() -> None:
    """What was packed is stored behind the return."""
    sharing = Sharing(Claims())
    assert sharing.begin("a")
    assert not sharing.gives
    assert not Sharing().gives


def test_who_meets_another_gives_and_takes(pages: Callable[[str], Array]) -> None:
    """What one offers is what the other has."""
    claims = Claims("b")
    one = Sharing(claims)
    assert not one.begin("b")
    assert one.gives
    assert one.take("b", NBYTES) is None
    memory = pages("b")
    assert one.offer("b", memory)
    assert one.take("b", NBYTES) is memory
    assert one.take("b", NBYTES + 1) is None


def test_memory_that_is_not_shared_is_not_offered(pages: Callable[[str], Array]) -> None:
    """There were no descriptors left for it, say."""
    claims = Claims("b")
    sharing = Sharing(claims)
    sharing.begin("b")
    assert not sharing.offer("a", np.zeros(NBYTES, np.uint8))
    assert not claims.offers
    assert sharing.offer("a", pages("a"))
    assert "a" in claims.offers


def test_copies_are_given_for_what_is_taken(pages: Callable[[str], Array]) -> None:
    """One in advance: the other may have been stopped, or give nothing."""
    claims = Claims("b", "c")
    sharing = Sharing(claims)
    sharing.begin("b")
    assert sharing.owes
    sharing.offer("a", pages("a"), is_copy=True)
    assert not sharing.owes
    claims.offer("b", 1)
    assert sharing.take("b", NBYTES) is not None
    assert sharing.owes
    sharing.offer("d", pages("d"))  # no copy: it costs nothing
    assert sharing.owes


def test_others_are_waited_for_as_long_as_packing_would_take_twice() -> None:
    """From when they were met on; at least for a moment."""
    clock = Clock()
    sharing = Sharing(Claims("b", "c"), clock=clock)
    sharing.begin("b")
    assert not sharing.is_due("b", 1000)
    clock.now += LEAST_PATIENCE + 0.001
    assert sharing.is_due("b", 1000)
    sharing.packed(500, 1.0)
    assert not sharing.is_due("b", 1000)
    clock.now += 3.99
    assert not sharing.is_due("b", 1000)
    sharing.begin("c")
    sharing.begin("b")
    clock.now += 0.02
    assert sharing.is_due("b", 1000)
    assert not sharing.is_due("c", 1000)


def test_sources_that_may_have_changed_are_not_given() -> None:
    """Others would believe them; nor are they claimed, which would have others wait."""
    claims, is_certain = Claims("b"), True
    sharing = Sharing(claims, lambda: is_certain)
    assert not sharing.begin("b")
    assert sharing.gives
    is_certain = False
    assert not sharing.gives
    assert sharing.begin("a")
    assert sharing.begin("b")
    assert not claims.own


def test_a_claim_ends_once_its_source_is_there() -> None:
    """Stored by this process, or found."""
    claims = Claims()
    sharing = Sharing(claims)
    for source in ("a", "b", "c"):
        assert sharing.begin(source)
    sharing.end("a")
    sharing.end("b")
    assert claims.own == {"c"}
    assert sharing.is_own("c")
    sharing.close()
    assert claims.own == set()
    assert sharing.begin("d")
    assert claims.own == set()
    assert not sharing.gives
