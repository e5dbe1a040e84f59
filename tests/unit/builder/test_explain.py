"""Explaining why an operator is new: the nearest entry, and how much is looked at to find it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from opbuild.builder.explain import IN_A_BUILD, WHEN_ASKED, Effort, Explainer
from opbuild.kernel.reason import Reason
from opbuild.store.blobs import Folder, Memory
from opbuild.store.operators import Operators
from support.samples import conv, entry_of, key_of

ABSENT = Reason("absent", "not in the store")


class Counting(Operators):
    """A store that counts what is asked of it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(Folder(folder))
        self.asked = {"names": 0, "last_use": 0, "components": 0}

    def names(self, at_most: int | None = None) -> tuple[str, ...]:
        """Count and list."""
        self.asked["names"] += 1
        return super().names(at_most)

    def last_use(self, name: str) -> float:
        """Count and look."""
        self.asked["last_use"] += 1
        return super().last_use(name)

    def components(self, name: str) -> object:  # type: ignore[override]
        """Count and read."""
        self.asked["components"] += 1
        return super().components(name)


@pytest.fixture
def store(tmp_path: Path) -> Counting:
    """A store of 40 convolutions, tile 1 to 40, used one after the other, and of one pooling."""
    store = Counting(tmp_path)
    for tile in range(1, 41):
        _, entry = entry_of(conv(tile))
        store.publish(entry)
        os.utime(tmp_path / f"{entry.name}.json", (1e9 + tile, 1e9))
    store.publish(entry_of(conv(1, op_types=("MaxPool",)))[1])
    return store


def explain(store: Operators, effort: Effort) -> str:
    """Return why a convolution with an attribute that none has is new."""
    return str(Explainer(store, effort=effort).explain(key_of(conv(17, other=1)), ABSENT))


def test_all_entries_of_a_type_are_compared_where_they_are_few(store: Counting) -> None:
    """The nearest one differs in one field only, and only its type's are read, each once."""
    assert explain(store, IN_A_BUILD).startswith("variant other none -> 1 since conv_relu_")
    assert store.asked == {"names": 1, "last_use": 0, "components": 40}


def test_of_many_entries_those_that_were_used_last_are_compared(store: Counting) -> None:
    """Tile 17 is none of the last five; whose last use is asked for is bounded too."""
    said = explain(store, Effort(files=None, times=None, reads=5))
    names = {entry_of(conv(tile))[1].name for tile in range(36, 41)}
    assert said.rpartition(" ")[2] in names
    assert store.asked == {"names": 1, "last_use": 40, "components": 5}
    store.asked = dict.fromkeys(store.asked, 0)
    explain(store, Effort(files=None, times=20, reads=5))
    assert store.asked == {"names": 1, "last_use": 20, "components": 5}


def test_only_so_many_files_are_listed_in_all_stores_together(store: Counting, tmp_path: Path) -> None:
    """Stores of other targets get what is left; where nothing was seen, the entry is just not in the store."""
    other = Counting(tmp_path)
    explainer = Explainer(Operators(Memory()), lambda: [store, other], Effort(files=30, times=None, reads=64))
    key = key_of(conv(1, op_types=("Softmax",)))
    assert explainer.explain(key, ABSENT) == ABSENT
    assert explainer.explain(key, ABSENT) == ABSENT
    assert (store.asked["names"], other.asked["names"]) == (1, 1)
    assert len(store.names(30)) <= 30
    assert store.names(0) == ()


def test_whoever_asks_for_the_reasons_gets_the_nearest_of_a_thousand() -> None:
    """A build looks at less than the command that only explains, and neither without end."""
    assert IN_A_BUILD.files is not None
    assert WHEN_ASKED.files is None
    assert IN_A_BUILD.reads < WHEN_ASKED.reads < 10_000
