"""The store on disk alone: modes, private names, what is not listed; what any store of files does is its contract's."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from unittest.mock import Mock

import pytest

from opbuild.kernel.interfaces import Found, Missing
from opbuild.platform.files.private import PREFIX
from opbuild.store import items, operators
from opbuild.store.operators import Operators, operators_in
from support.samples import conv, entry_of


@pytest.fixture
def store(tmp_path: Path) -> Operators:
    """A store in a folder that does not exist yet."""
    return operators_in(tmp_path / "rank_0" / "kernel_meta")


def test_new_folders_are_private_and_files_follow_the_umask(store: Operators) -> None:
    """Folders made by a build are for their user alone; files in a shared folder follow the umask (F57)."""
    before = os.umask(0o027)
    try:
        store.publish(entry_of(conv())[1])
    finally:
        os.umask(before)
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in (store.blobs.path, store.blobs.path.parent)] == [
        0o700
    ] * 2
    assert {stat.S_IMODE(path.stat().st_mode) for path in store.blobs.path.iterdir()} == {0o640}


def test_an_existing_folder_keeps_its_modes(tmp_path: Path) -> None:
    """A folder that was made to be shared stays shared (F57)."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o2775)
    operators_in(folder).publish(entry_of(conv())[1])
    assert stat.S_IMODE(folder.stat().st_mode) == 0o2775


def test_private_names_never_collide(store: Operators, monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers with one process id, host name and clock use different private names (F14)."""
    monkeypatch.setattr(os, "getpid", lambda: 7)
    seen: list[str] = []
    write_new = items.write_new
    monkeypatch.setattr(items, "write_new", lambda path, data: (seen.append(path.name), write_new(path, data)))
    for _ in range(8):
        store.publish(entry_of(conv())[1])
    assert len(set(seen)) == 24


@pytest.mark.parametrize("age", [-86400.0, 2 * 86400.0, 1.7e9])
def test_private_files_of_dead_writers_are_removed(store: Operators, age: float) -> None:
    """Files of a killed writer go, whatever their clock said; one that is being written stays (F53, F56)."""
    store.publish(entry_of(conv())[1])
    dead = store.blobs.path / f"{PREFIX}dead-0"
    live = store.blobs.path / f"{PREFIX}live-0"
    dead.write_bytes(b"x")
    live.write_bytes(b"x")
    now = dead.stat().st_mtime
    os.utime(dead, (now - age, now - age))
    store.names()
    assert not dead.exists()
    assert live.exists()


def test_a_lookup_lists_no_folder(store: Operators, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hits, misses and publishing open files by name: their cost does not grow with the store (F51, F66)."""

    def refuse(*_: object) -> None:
        raise AssertionError("the folder was listed")

    monkeypatch.setattr(os, "scandir", refuse)
    monkeypatch.setattr(os, "listdir", refuse)
    key, entry = entry_of(conv())
    assert isinstance(store.lookup(key), Missing)
    store.publish(entry)
    assert isinstance(store.lookup(key), Found)


def test_a_moved_folder_hits(tmp_path: Path) -> None:
    """No path is stored: a cache that was moved, or is reached through a link, serves as before (F37, F41)."""
    key, entry = entry_of(conv())
    operators_in(tmp_path / "old").publish(entry)
    (tmp_path / "old").rename(tmp_path / "new")
    (tmp_path / "link").symlink_to(tmp_path / "new")
    assert isinstance(operators_in(tmp_path / "new").lookup(key), Found)
    assert isinstance(operators_in(tmp_path / "link").lookup(key), Found)


def test_what_the_storage_refuses_stays_in_memory(store: Operators, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk: whatever needed it again compiled it again, as each new size does that no program serves."""
    key, entry = entry_of(conv())
    monkeypatch.setattr(items, "write_new", Mock(side_effect=OSError(errno.ENOSPC, "the disk is full")))
    assert "the disk is full" in str(store.publish(entry))
    assert store.lookup(key) == Found(entry)
    assert store.names() == ()
    assert isinstance(operators_in(store.blobs.path).lookup(key), Missing)


def test_few_of_those_that_the_storage_refuses_stay_in_memory(
    store: Operators, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server whose sizes never come twice does not grow without end."""
    monkeypatch.setattr(operators, "MOST_REFUSED", 2)
    monkeypatch.setattr(items, "write_new", Mock(side_effect=OSError(errno.ENOSPC, "the disk is full")))
    made = [entry_of(conv(channels)) for channels in (8, 16, 24)]
    for _, entry in made:
        store.publish(entry)
    assert [isinstance(store.lookup(key), Found) for key, _ in made] == [False, False, True]
