"""What every store promises; a new tier is done when this suite is green over it."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterable
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from opbuild.config import Config
from opbuild.kernel.entry import Entry
from opbuild.kernel.interfaces import Found, Missing, Store
from opbuild.platform.files.private import PREFIX
from opbuild.platform.files.trust import PRIVATE, Trust
from opbuild.store import items
from opbuild.store.blobs import Memory
from opbuild.store.claims import Flights
from opbuild.store.operators import ENTRIES, Operators, operators_in
from opbuild.store.peers import Peers
from opbuild.store.remote.objects import OPERATORS, Objects
from opbuild.store.remote.operators import RemoteStore, SingleFlight
from opbuild.store.tiers import PeerOperators, TieredStore
from support.remote_servers import READ_KINDS, Servers, service
from support.samples import conv, entry_of, key_of

Layer = Callable[[Any, Path], Store]
BASES: dict[str, Callable[[Path], Store]] = {
    "disk": lambda folder: operators_in(folder / "rank_0" / "kernel_meta"),
    "signed": lambda folder: operators_in(folder / "rank_0" / "kernel_meta", trust=Trust(key=b"k" * 16)),
    "memory": lambda folder: Operators(Memory()),
}
"""Where one's own entries lie."""


def _single_flight(own: Store, folder: Path) -> Store:
    remote = RemoteStore(Objects(service(f"file://{folder}/remote"), PRIVATE), 0.0)
    return TieredStore(own, [SingleFlight(own, remote, Flights(folder / "claims"))])


LAYERS: dict[str, Layer] = {
    "peers": lambda own, folder: TieredStore(own, [_peers(folder)]),
    "tiers": lambda own, folder: TieredStore(own, [Operators(Memory()), Operators(Memory())]),
    "single flight": _single_flight,
}
"""What lies round them, from the inside."""


def _peers(folder: Path) -> PeerOperators:
    peers = Peers(Config(cache_path=folder))
    return PeerOperators(lambda: [(str(peer), peer.kernel_meta) for peer in peers()], operators_in)


def _stacked(base: str, layers: Iterable[str], folder: Path) -> Store:
    store = BASES[base](folder)
    for layer in layers:
        store = LAYERS[layer](store, folder)
    return store


STACKS = {
    " < ".join((base, *layers)): (base, layers)
    for base in BASES
    for count in range(len(LAYERS) + 1)
    for layers in combinations(LAYERS, count)
}
"""Every combination of them."""


@pytest.fixture(params=[*STACKS, *READ_KINDS])
def store(request: pytest.FixtureRequest, tmp_path: Path, servers: Servers) -> Store:
    """An empty store of each combination, and one at each remote service."""
    if request.param in READ_KINDS:
        return RemoteStore(Objects(servers(request.param), PRIVATE))
    return _stacked(*STACKS[request.param], tmp_path)


@pytest.fixture(params=["disk", "memory", " < ".join(("disk", *LAYERS)), *READ_KINDS])
def busy(request: pytest.FixtureRequest, tmp_path: Path, servers: Servers) -> Store:
    """An empty store with nothing and with everything round it, and one at each remote service."""
    if request.param in READ_KINDS:
        return RemoteStore(Objects(servers(request.param), PRIVATE))
    return _stacked(*STACKS[request.param], tmp_path)


@pytest.fixture(params=[name for name, (base, _) in STACKS.items() if base == "disk"])
def on_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """An empty store of each combination that writes to files of its own."""
    return _stacked(*STACKS[request.param], tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of those, which does not exist yet."""
    return tmp_path / "rank_0" / "kernel_meta"


def names_in(folder: Path) -> list[str]:
    """Return the names of the files in a folder."""
    return [path.name for path in folder.iterdir()]


def names_of(store: Any) -> tuple[str, ...]:
    """Return the names of a store's own entries, sorted."""
    if isinstance(store, RemoteStore):
        return tuple(sorted(store.entry(stem).name for stem in store.stems()))
    return store.listed.names()


def components_of(store: Any, name: str) -> Any:
    """Return the key's components of an entry; None if there is none."""
    if isinstance(store, RemoteStore):
        entry = store.entry(name.rpartition("_")[0])
        return entry.info["key"]["components"] if isinstance(entry, Entry) else None
    return store.listed.components(name)


def remove(store: Any, name: str) -> None:
    """Remove an entry of a store's own."""
    if isinstance(store, RemoteStore):
        store.objects.delete(OPERATORS + name.rpartition("_")[0])
    else:
        store.listed.blobs.delete(*(name + suffix for suffix in ENTRIES.suffixes))


def test_an_empty_store_answers_absent(store: Store) -> None:
    """What was never published is missing for exactly that reason (F69)."""
    answer = store.lookup(key_of(conv()))
    assert isinstance(answer, Missing)
    assert answer.reason.code == "absent"
    assert names_of(store) == ()
    assert components_of(store, "conv_relu_1_0") is None


def test_what_was_published_is_found_byte_for_byte(store: Store) -> None:
    """A look-up returns the object and both records as they were published (F36)."""
    key, entry = entry_of(conv())
    assert store.publish(entry) is None
    answer = store.lookup(key)
    assert isinstance(answer, Found)
    found = answer.entry
    assert (found.name, found.symbol, found.object) == (entry.name, entry.symbol, entry.object)
    record = {name: value for name, value in found.record.items() if name != "signature"}
    assert (found.info, record) == (entry.info, entry.record)


def test_entries_are_named_and_described(store: Store) -> None:
    """Names are listed sorted, and each entry's key components can be read."""
    published = [entry_of(conv(tile)) for tile in range(3)]
    for _, entry in published:
        store.publish(entry)
    assert names_of(store) == tuple(sorted(entry.name for _, entry in published))
    assert all(components_of(store, entry.name) == key.components for key, entry in published)


def test_publishing_again_replaces(store: Store) -> None:
    """The last writer's entry is the one found, whole (F17)."""
    desc = conv()
    key, first = entry_of(desc, code=b"first")
    _, second = entry_of(desc, code=b"second")
    assert store.publish(first) is None
    assert store.publish(first) is None
    assert store.publish(second) is None
    answer = store.lookup(key)
    assert isinstance(answer, Found)
    assert answer.entry.object == second.object
    assert names_of(store) == (second.name,)


def test_what_an_operator_was_compiled_from_is_remembered(store: Store) -> None:
    """Whatever the sources are now, the store says by pipeline from which ones there are entries."""
    one, first = entry_of(conv(1), pipeline="1" * 32, sources="one")
    _, second = entry_of(conv(1), pipeline="2" * 32, sources="two")
    other, third = entry_of(conv(2), pipeline="3" * 32, sources="one")
    nobody, unknown = entry_of(conv(3))
    for entry in (first, second, third, unknown):
        assert store.publish(entry) is None
    asked = [one.of_origin("new"), other, nobody]
    assert store.origins(asked) == [{"1" * 32: "one", "2" * 32: "two"}, {"3" * 32: "one"}, {}]
    found = store.lookup(asked[0].of_origin("two"))
    assert isinstance(found, Found)
    assert found.entry.pipeline == "2" * 32


def test_the_latest_sources_of_a_pipeline_are_remembered(store: Store) -> None:
    """What was stored again under other sources is found under those."""
    for sources in ("one", "two"):
        store.publish(entry_of(conv(1), pipeline="1" * 32, sources=sources)[1])
    assert store.origins([key_of(conv(1))]) == [{"1" * 32: "two"}]


def test_another_devices_entry_is_found(store: Store) -> None:
    """What device 3 built serves this device: the code is the same (F35, F64)."""
    key, entry = entry_of(conv(), device_id=3)
    store.publish(entry)
    answer = store.lookup(key)
    assert isinstance(answer, Found)
    assert answer.entry.name.endswith("_3")


def test_other_operators_do_not_disturb(store: Store) -> None:
    """A look-up answers for its own key whatever else is stored."""
    key, entry = entry_of(conv(1))
    for tile in range(2, 6):
        store.publish(entry_of(conv(tile))[1])
    assert isinstance(store.lookup(key), Missing)
    store.publish(entry)
    assert isinstance(store.lookup(key), Found)


def test_evicting_removes_one_entry(store: Store) -> None:
    """An evicted entry is absent, the others stay; evicting nothing is harmless (F22)."""
    key, entry = entry_of(conv(1))
    other_key, other = entry_of(conv(2))
    store.publish(entry)
    store.publish(other)
    remove(store, entry.name)
    remove(store, entry.name)
    answer = store.lookup(key)
    assert isinstance(answer, Missing)
    assert answer.reason.code == "absent"
    assert isinstance(store.lookup(other_key), Found)
    assert names_of(store) == (other.name,)


@pytest.mark.slow
def test_threads_share_a_store(busy: Store) -> None:
    """Threads that publish, look up and evict at once get whole entries or none, and no exception (F23)."""
    published = [entry_of(conv(tile)) for tile in range(4)]
    problems: list[object] = []

    def work() -> None:
        try:
            for round_ in range(8 if isinstance(busy, RemoteStore) else 30):
                key, entry = published[round_ % 4]
                busy.publish(entry)
                answer = busy.lookup(key)
                if isinstance(answer, Found) and answer.entry.object != entry.object:
                    problems.append(answer)
                if round_ % 7 == 0:
                    remove(busy, entry.name)
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


def test_an_entry_is_three_files_and_nothing_else(on_disk: Store, folder: Path) -> None:
    """Publishing leaves the object and its two records, no private file and no lock file (F18, F53)."""
    _, entry = entry_of(conv())
    on_disk.publish(entry)
    assert sorted(names_in(folder)) == [f"{entry.name}{suffix}" for suffix in (".info", ".json", ".o")]


@pytest.mark.parametrize(
    ("code", "step"),
    list(
        zip(
            [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO, errno.EMFILE],
            2 * ["make_folder", "write_new", "replace"],
            strict=True,
        )
    ),
)
def test_a_storage_that_refuses_is_a_reason_and_leaves_nothing(
    on_disk: Store, folder: Path, monkeypatch: pytest.MonkeyPatch, code: int, step: str
) -> None:
    """Disk full, quota, read-only, no permission, at any step: the reason is returned, no file remains (F06, F54)."""

    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    if step == "replace":
        monkeypatch.setattr(Path, "replace", refuse)
    else:
        monkeypatch.setattr(items, step, refuse)
    key, entry = entry_of(conv())
    assert os.strerror(code) in str(on_disk.publish(entry))
    assert not folder.exists() or names_in(folder) == []
    monkeypatch.undo()
    assert on_disk.publish(entry) is None
    assert isinstance(on_disk.lookup(key), Found)


@pytest.mark.parametrize("refused", range(6))
def test_a_disk_that_fills_up_midway_leaves_no_wrong_entry(
    on_disk: Store, folder: Path, monkeypatch: pytest.MonkeyPatch, refused: int
) -> None:
    """Whichever write or rename fails first, others find none or the old one, never a mixture (F04, F06)."""
    key, old = entry_of(conv(), code=b"old")
    _, new = entry_of(conv(), code=b"new")
    on_disk.publish(old)
    count = 0
    write_new, replace = items.write_new, Path.replace

    def step() -> None:
        nonlocal count
        count += 1
        if count > refused:
            raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(items, "write_new", lambda *a: (step(), write_new(*a)))
    monkeypatch.setattr(Path, "replace", lambda *a: (step(), replace(*a)))
    assert on_disk.publish(new) is not None
    monkeypatch.undo()
    answer = on_disk.lookup(key)
    if refused <= 3:
        assert isinstance(answer, Found)
        assert answer.entry.object == old.object
    else:
        assert isinstance(answer, Found)
        assert answer.entry is new  # in memory
        another = operators_in(folder).lookup(key)
        assert isinstance(another, Missing)
        assert another.reason.code == "damaged"
    assert not [name for name in names_in(folder) if name.startswith(PREFIX)]


@pytest.mark.parametrize("code", [errno.ENOENT, errno.ESTALE, errno.EBUSY])
def test_a_passing_refusal_is_tried_again(on_disk: Store, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """What network file systems answer now and then does not cost the entry (F12)."""
    calls = 0
    replace = Path.replace

    def once(*paths: Path) -> Path:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise OSError(code, os.strerror(code))
        return replace(*paths)

    monkeypatch.setattr(Path, "replace", once)
    key, entry = entry_of(conv())
    assert on_disk.publish(entry) is None
    assert isinstance(on_disk.lookup(key), Found)


def test_an_interrupt_between_two_renames_shows_no_entry(
    on_disk: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in the middle of publishing leaves nothing that loads and no private file (F04)."""
    calls = 0
    replace = Path.replace

    def interrupted(*paths: Path) -> Path:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        return replace(*paths)

    monkeypatch.setattr(Path, "replace", interrupted)
    key, entry = entry_of(conv())
    with pytest.raises(KeyboardInterrupt):
        on_disk.publish(entry)
    monkeypatch.undo()
    answer = on_disk.lookup(key)
    assert isinstance(answer, Missing)
    assert answer.reason.code == "incomplete"
    assert sorted(names_in(folder)) == [f"{entry.name}.info", f"{entry.name}.o"]


def test_strays_do_not_disturb(on_disk: Store, folder: Path) -> None:
    """Foreign files, orphans and sub-folders in the folder stop neither reading nor writing (F50)."""
    key, entry = entry_of(conv())
    on_disk.publish(entry)
    (folder / "sub").mkdir()
    (folder / "orphan_1_0.o").write_bytes(b"x")
    (folder / "other_1_0.json").write_bytes(b"{")
    (folder / "nan.json").mkdir()
    assert isinstance(on_disk.lookup(key), Found)
    assert on_disk.publish(entry_of(conv(2))[1]) is None
    assert {components_of(on_disk, name) is None for name in ("orphan_1_0", "other_1_0", "nan")} == {True}


def test_entry_times_do_not_matter(on_disk: Store, folder: Path) -> None:
    """Entries from tomorrow or 1970 are hits (F56)."""
    key, entry = entry_of(conv())
    on_disk.publish(entry)
    for when in (0.0, 4e9):
        for path in folder.iterdir():
            os.utime(path, (when, when))
        assert isinstance(on_disk.lookup(key), Found)


def test_a_hit_writes_nothing(on_disk: Store, folder: Path) -> None:
    """A look-up changes no file and no time stamp of change, so a read-only mount serves hits (F55)."""
    key, entry = entry_of(conv())
    on_disk.publish(entry)

    def state() -> list[tuple[str, int, int]]:
        paths = [folder, *sorted(folder.iterdir())]
        return [(path.name, path.stat().st_mtime_ns, path.stat().st_ctime_ns) for path in paths]

    before = state()
    assert isinstance(on_disk.lookup(key), Found)
    assert state() == before
