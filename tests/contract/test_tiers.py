"""The promises of a tiered store whatever is below it, and a builder's use of entries that a tier lends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from opbuild.builder.build import Builder
from opbuild.config import Config
from opbuild.kernel.artifact import Artifact
from opbuild.kernel.entry import make_entry
from opbuild.kernel.interfaces import Found, Missing
from opbuild.kernel.key import Key
from opbuild.store.blobs import Memory
from opbuild.store.operators import Operators
from opbuild.store.tiers import TieredStore
from support.fake_compiler import FakeCompiler, fake_object
from support.samples import LEVEL, conv, entry_of, key_of, needed


class _Tier:
    """A tier of one name that says how its entries are lent, and remembers what it was asked for."""

    def __init__(self, source: str, *, stays: bool = False) -> None:
        self.store = Operators(Memory())
        self.source, self.stays = source, stays
        self.asked: list[Key] = []

    def lookup(self, key: Key) -> Found | Missing:
        self.asked.append(key)
        answer = self.store.lookup(key)
        return replace(answer, source=self.source, stays=self.stays) if isinstance(answer, Found) else answer

    def origins(self, keys: Sequence[Key]) -> list[Mapping[str, str]]:
        return self.store.origins(keys)


def test_the_nearest_entry_is_found() -> None:
    """The near store is asked first, then the tiers in their order, and no further than where there is an entry."""
    near, first, second = Operators(Memory()), _Tier("first"), _Tier("second")
    store = TieredStore(near, [first, second])
    key, entry = entry_of(conv(), code=b"second")
    second.store.publish(entry)
    answer = store.lookup(key)
    assert isinstance(answer, Found)
    assert answer.source == "second"
    first.store.publish(entry_of(conv(), code=b"first")[1])
    answer = store.lookup(key)
    assert isinstance(answer, Found)
    assert answer.source == "first"
    store.publish(entry_of(conv(), code=b"near")[1])
    asked = len(first.asked)
    answer = store.lookup(key)
    assert isinstance(answer, Found)
    assert answer.source == ""
    assert len(first.asked) == asked
    assert len(second.asked) == 1


def test_what_no_tier_has_is_missing_for_the_near_stores_reason() -> None:
    """Why something is built is what happened to one's own entry, not that others have none (F71)."""
    answer = TieredStore(Operators(Memory()), [_Tier("first")]).lookup(key_of(conv()))
    assert isinstance(answer, Missing)
    assert answer.reason.code == "absent"


def test_only_the_near_store_is_written_to_and_listed() -> None:
    """Publishing leaves the tiers as they are."""
    near, tier = Operators(Memory()), _Tier("first")
    store = TieredStore(near, [tier])
    kept = entry_of(conv(1))[1]
    tier.store.publish(kept)
    store.publish(entry_of(conv(2))[1])
    assert tier.store.names() == (kept.name,)
    assert store.listed.names() == near.names() != ()


@pytest.mark.parametrize("stays", [False, True])
def test_what_is_lent_becomes_ones_own_unless_it_stays(config: Config, stays: bool) -> None:
    """A build copies a tier's entry into the near store, unless the tier always has it; nothing is compiled."""
    near, tier = Operators(Memory()), _Tier("the other store", stays=stays)
    desc = conv()
    with Builder(TieredStore(near, [tier]), FakeCompiler(), LEVEL, config) as builder:
        key = builder.key(desc)
        made = make_entry(desc, key, 0, Artifact(fake_object(b"code", (key.symbol,))), 1.0)
        tier.store.publish(made)
        result = builder.build(needed(desc), "net")
    assert result.built == 0
    assert [job.outcome for job in result.decisions] == ["reused" if stays else "shared"]
    assert "the other store" in result.decisions[0].reason.text
    assert near.names() == (() if stays else (made.name,))
