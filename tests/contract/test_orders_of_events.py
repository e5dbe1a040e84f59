"""Publishing and removing beside each other and beside readers: every order of their steps, for each kind of item.

What has several files is shown with its commit mark last and removed with it first, and who has done either looks
whether somebody did the other meanwhile (``store.items``). So what is there in the end is whole, and what a reader
finds on the way is whole or a miss with a reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from opbuild.kernel.interfaces import Found
from opbuild.kernel.networks import NetworkKey, StoredNetwork, Weight
from opbuild.kernel.reason import Reason
from opbuild.platform.digest import blake3_of
from opbuild.platform.files.private import is_private, publish
from opbuild.store.inventory import survey
from opbuild.store.items import _show, remove_files
from opbuild.store.networks import networks_in
from opbuild.store.operators import operators_in
from opbuild.store.weights import weights_in
from support.fuzzing import CAMPAIGN, SEED
from support.interleaving import Actor, Choose, every, run, some
from support.samples import conv, entry_of

MISSES = {"absent", "incomplete", "damaged"}
"""What a reader is told that comes between two steps."""

SWITCHES = 100_000 if CAMPAIGN else 3
"""How often the other may go on in the midst of one: see ``interleaving.every``; a campaign tries all orders."""

TRIES = CAMPAIGN or 40
"""Random orders, where all would be too many."""


@dataclass
class Kind:
    """A kind of item in a folder.

    Attributes:
        publish: Puts it there.
        look: Returns ``whole`` or why it is not used.
        folder: Where its files are.
        mark: The suffix of its commit mark.
    """

    publish: Callable[[], object]
    look: Callable[[], str]
    folder: Path
    mark: str = ".json"

    @property
    def is_marked(self) -> bool:
        """Whether it is there for whoever looks; files without their mark are rubbish that goes with the next."""
        return self.mark in {Path(name).suffix for name in self.files}

    def remove(self) -> None:
        """Remove what is listed, as ageing, pruning and clearing do."""
        for item in survey(self.folder / "kernel_meta", self.folder).items:
            if item.kind not in ("private", "note"):
                remove_files(item.files)

    @property
    def files(self) -> frozenset[str]:
        """The names of its files."""
        return frozenset(path.name for path in self.folder.rglob("*") if path.is_file() and not is_private(path.name))


def operator(folder: Path) -> Kind:
    """Return an operator: three files."""
    store = operators_in(folder / "kernel_meta")
    key, entry = entry_of(conv())

    def look() -> str:
        answer = store.lookup(key)
        if isinstance(answer, Found):
            assert answer.entry.object == entry.object
            return "whole"
        return answer.reason.code

    return Kind(lambda: store.publish(entry), look, folder)


def network(folder: Path) -> Kind:
    """Return a network: four files."""
    store, key = networks_in(folder), NetworkKey("net", {"model": "m"}, str)
    stored = StoredNetwork({"steps": []}, b"library", np.arange(9, dtype=np.uint8))

    def look() -> str:
        answer = store.lookup(key)
        if isinstance(answer, Reason):
            return answer.code
        assert (answer.record, answer.library) == (stored.record, stored.library)
        return "whole"

    return Kind(lambda: store.publish(key, stored), look, folder)


def weight(folder: Path) -> Kind:
    """Return packed weights: one file."""
    store, array = weights_in(folder / "weights"), np.arange(64, dtype=np.uint8)
    digest = blake3_of(array.data)

    def look() -> str:
        answer = store.get(digest, array.nbytes)
        return "whole" if isinstance(answer, Weight) else answer.code

    return Kind(lambda: store.put(digest, array), look, folder, ".bin")


def file(folder: Path) -> Kind:
    """Return the kind of store that is one file and renamed: memos, bundles and offline models."""
    path = folder / "net_1.model"

    def look() -> str:
        if not path.exists():
            return "absent"
        return "whole" if path.read_bytes() == b"content" else "torn"

    return Kind(lambda: publish(path, b"content"), look, folder, ".model")


KINDS = {"operator": operator, "network": network, "weight": weight, "file": file}


def _tried(
    kind: Callable[[Path], Kind], folder: Path, actors: str, is_there: bool, orders: Iterator[Choose]
) -> Counter[str]:
    """Let publishers (p), removers (r) and readers (l) do their work in some orders; return what is there in the end.

    Of an end that is neither all of the item nor nothing, the steps are returned, too.
    """
    ends: Counter[str] = Counter()
    seen: dict[frozenset[str], str] = {}
    for number, choose in enumerate(orders):
        made = kind(folder / str(number))
        if is_there:
            made.publish()
        read: list[str] = []

        def between(made: Kind = made) -> frozenset[str]:
            files = made.files
            if files not in seen:
                seen[files] = made.look()
            return files

        does: dict[str, Actor] = {"p": made.publish, "r": made.remove, "l": lambda m=made, r=read: r.append(m.look())}
        trace = run([does[letter] for letter in actors], choose, between)
        assert {*seen.values(), *read} <= {"whole", *MISSES}, (read, trace)
        end = made.look() if made.is_marked else "absent"
        if end not in ("whole", "absent"):
            ends["\n".join(["an example:", *trace])] += not ends[end]
        ends[end] += 1
    return ends


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_there", [True, False], ids=["replaced", "new"])
@pytest.mark.parametrize("actors", ["pr", "pl", "rl"])
def test_in_every_order_of_two_what_is_there_in_the_end_is_whole(
    kind: str,
    actors: str,
    is_there: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A reader that comes between two steps finds the whole item or a miss, never anything else (F07, F22).

    Who publishes tries once, and takes back what somebody has removed in part: further tries are further publishers.
    """
    monkeypatch.setattr("opbuild.store.items._TRIES", 1)
    monkeypatch.setattr("opbuild.store.operators.OTHER_DEVICES", 0)
    ends = _tried(KINDS[kind], tmp_path, actors, is_there, every(SWITCHES))
    with capsys.disabled():
        print(f"\n{kind}, {actors}: {ends['whole']} orders leave all, {ends['absent']} nothing", end="")
    assert set(ends) <= {"whole", "absent"}, ends
    assert ends["whole"] or "p" not in actors


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["operator", "network"])
@pytest.mark.parametrize("is_there", [True, False], ids=["replaced", "new"])
@pytest.mark.parametrize("actors", ["prl", "ppr", "prr", "pprrl"])
def test_in_random_orders_of_several_too(kind: str, actors: str, is_there: bool, tmp_path: Path) -> None:
    """Two that publish and two that remove at once: in the end all of it or nothing."""
    ends = _tried(KINDS[kind], tmp_path, actors, is_there, some(TRIES, SEED))
    assert set(ends) <= {"whole", "absent"}, ends


def test_one_switch_shows_that_a_publisher_does_not_look_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So few orders find what is left in part, if somebody removed some of what is being shown."""
    monkeypatch.setattr("opbuild.store.items._publish", _show)
    assert _tried(operator, tmp_path, "pr", True, every(1))["incomplete"]


def test_a_commit_mark_is_shown_last_and_goes_first(tmp_path: Path) -> None:
    """Of each kind that has one: the order is stated once, by its form."""
    for kind in (operator, network):
        made = kind(tmp_path / kind.__name__)
        shown = run([made.publish], lambda count, state: 0, lambda: 0)
        gone = run([made.remove], lambda count, state: 0, lambda: 0)
        assert next(step for step in reversed(shown) if " replace " in step).endswith(".json")
        assert next(step for step in gone if " unlink " in step).endswith(".json")


def test_who_is_removed_again_and_again_leaves_nothing_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even a mark."""
    made = network(tmp_path)
    monkeypatch.setattr("opbuild.store.items.os.path.lexists", lambda path: False)
    assert "emptied again and again" in str(made.publish())
    monkeypatch.undo()
    assert made.files == frozenset()
