"""Sharing of packing: who meets others gives as long as that saves the time that it takes, and nobody waits."""

from __future__ import annotations

from opbuild.runtime.sharing import ADVANCE, Sharing


class Claims:
    """Claims on sources, of which others have some."""

    def __init__(self, *others: str) -> None:
        self.others, self.own = {*others}, set[str]()

    def take(self, source: str) -> bool:
        """Return whether it is nobody's."""
        if source not in self.others:
            self.own.add(source)
        return source not in self.others

    def give(self, source: str) -> None:
        """Give it up."""
        self.own.discard(source)

    def close(self) -> None:
        """Give up all."""
        self.own.clear()


def test_who_meets_nobody_gives_nothing() -> None:
    """What was packed is stored behind the return."""
    sharing = Sharing(Claims())
    assert sharing.begin("a")
    sharing.packed(100, 1.0)
    assert not sharing.gives
    assert not Sharing().gives


def test_who_meets_another_gives_once_in_advance() -> None:
    """It may have been stopped."""
    sharing = Sharing(Claims("b"))
    assert not sharing.begin("b")
    assert sharing.gives
    sharing.gave(2 * ADVANCE)
    assert not sharing.gives


def test_what_came_pays_for_what_is_given_at_the_price_of_packing() -> None:
    """Storing takes three times as long here: one other is too few, four are enough."""
    for others, pays in ((1, False), (4, True)):
        sharing = Sharing(Claims(*map(str, range(100))))
        sharing.packed(1000, 10.0)
        sharing.gave(ADVANCE)
        for turn in range(10):
            for other in range(others):
                assert not sharing.begin(str(turn * others + other))
                sharing.came(str(turn * others + other), 100)
            sharing.gave(3.0)
        assert sharing.gives is pays


def test_what_was_stored_before_pays_for_nothing() -> None:
    """Nobody packs it for us now."""
    sharing = Sharing(Claims("b"))
    sharing.begin("b")
    sharing.packed(100, 1.0)
    sharing.gave(2 * ADVANCE)
    assert sharing.begin("a")
    sharing.came("a", 100)
    assert not sharing.gives


def test_sources_that_may_have_changed_are_not_given() -> None:
    """Others would believe them."""
    sharing = Sharing(Claims("b"), lambda: False)
    sharing.begin("b")
    assert not sharing.gives


def test_a_claim_ends_once_its_source_is_there() -> None:
    """Stored by this process, or found."""
    claims = Claims()
    sharing = Sharing(claims)
    for source in ("a", "b", "c"):
        assert sharing.begin(source)
    sharing.end("a")
    sharing.came("b", 100)
    assert claims.own == {"c"}
    assert sharing.is_own("c")
    sharing.close()
    assert claims.own == set()
    assert sharing.begin("d")
    assert claims.own == set()
