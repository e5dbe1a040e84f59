"""The store on disk: modes, refusals of the storage, strays, and files of other owners."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from opbuild.files.private import PREFIX
from opbuild.kernel.interfaces import Found, Missing
from opbuild.store import publish
from opbuild.store.disk import DiskStore
from support.samples import conv, entry_of, key_of


@pytest.fixture
def store(tmp_path: Path) -> DiskStore:
    """A store in a folder that does not exist yet."""
    return DiskStore(tmp_path / "rank_0" / "kernel_meta")


def reason_in(store: DiskStore) -> str:
    """Return why a store does not have an entry."""
    answer = store.lookup(key_of(conv()))
    assert isinstance(answer, Missing)
    return answer.reason.text


def names_in(folder: Path) -> list[str]:
    """Return the names of the files in a folder."""
    return [path.name for path in folder.iterdir()]


def test_an_entry_is_three_files_and_nothing_else(store: DiskStore) -> None:
    """Publishing leaves the object and its two records, no private file and no lock file (F18, F53)."""
    _, entry = entry_of(conv())
    store.publish(entry)
    assert sorted(names_in(store.folder)) == [f"{entry.name}{suffix}" for suffix in (".info", ".json", ".o")]


def test_new_folders_are_private_and_files_follow_the_umask(store: DiskStore) -> None:
    """Folders made by a build are for their user alone; files in a shared folder follow the umask (F57)."""
    before = os.umask(0o027)
    try:
        store.publish(entry_of(conv())[1])
    finally:
        os.umask(before)
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in (store.folder, store.folder.parent)] == [0o700] * 2
    assert {stat.S_IMODE(path.stat().st_mode) for path in store.folder.iterdir()} == {0o640}


def test_an_existing_folder_keeps_its_modes(tmp_path: Path) -> None:
    """A folder that was made to be shared stays shared (F57)."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o2775)
    DiskStore(folder).publish(entry_of(conv())[1])
    assert stat.S_IMODE(folder.stat().st_mode) == 0o2775


def test_a_folder_open_to_everybody_is_distrusted(tmp_path: Path) -> None:
    """Who can write the store decides what code runs, so a world-writable folder is named (F58)."""
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    assert "everybody may write" in reason_in(DiskStore(folder))
    folder.chmod(0o755)
    assert reason_in(DiskStore(folder)) == "not in the store"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_distrusted(tmp_path: Path) -> None:
    """A folder that belongs to somebody else is named (F58)."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    os.chown(folder, 12345, -1)
    assert "user 12345" in reason_in(DiskStore(folder))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO, errno.EMFILE])
@pytest.mark.parametrize("step", ["make_folder", "write_new", "replace"])
def test_a_storage_that_refuses_is_a_reason_and_leaves_nothing(
    store: DiskStore, monkeypatch: pytest.MonkeyPatch, code: int, step: str
) -> None:
    """Disk full, quota, read-only, no permission, at any step: the reason is returned, no file remains (F06, F54)."""

    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    if step == "replace":
        monkeypatch.setattr(Path, "replace", refuse)
    else:
        monkeypatch.setattr(publish, step, refuse)
    key, entry = entry_of(conv())
    assert os.strerror(code) in str(store.publish(entry))
    assert not store.folder.exists() or names_in(store.folder) == []
    monkeypatch.undo()
    assert store.publish(entry) is None
    assert isinstance(store.lookup(key), Found)


@pytest.mark.parametrize("refused", range(6))
def test_a_disk_that_fills_up_midway_leaves_no_wrong_entry(
    store: DiskStore, monkeypatch: pytest.MonkeyPatch, refused: int
) -> None:
    """Whichever write or rename fails first, the entry is absent or the old one, never a mixture (F04, F06)."""
    key, old = entry_of(conv(), code=b"old")
    _, new = entry_of(conv(), code=b"new")
    store.publish(old)
    count = 0
    write_new, replace = publish.write_new, Path.replace

    def step() -> None:
        nonlocal count
        count += 1
        if count > refused:
            raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(publish, "write_new", lambda *a: (step(), write_new(*a)))
    monkeypatch.setattr(Path, "replace", lambda *a: (step(), replace(*a)))
    assert store.publish(new) is not None
    monkeypatch.undo()
    answer = store.lookup(key)
    if refused <= 3:
        assert isinstance(answer, Found)
        assert answer.entry.object == old.object
    else:
        assert isinstance(answer, Missing)
        assert answer.reason.code == "damaged"
    assert not [name for name in names_in(store.folder) if name.startswith(PREFIX)]


@pytest.mark.parametrize("code", [errno.ENOENT, errno.ESTALE, errno.EBUSY])
def test_a_passing_refusal_is_tried_again(store: DiskStore, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
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
    assert store.publish(entry) is None
    assert isinstance(store.lookup(key), Found)


def test_an_interrupt_between_two_renames_shows_no_entry(store: DiskStore, monkeypatch: pytest.MonkeyPatch) -> None:
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
        store.publish(entry)
    monkeypatch.undo()
    answer = store.lookup(key)
    assert isinstance(answer, Missing)
    assert answer.reason.code == "incomplete"
    assert sorted(names_in(store.folder)) == [f"{entry.name}.info", f"{entry.name}.o"]


def test_private_names_never_collide(store: DiskStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers with one process id, host name and clock use different private names (F14)."""
    monkeypatch.setattr(os, "getpid", lambda: 7)
    seen: list[str] = []
    write_new = publish.write_new
    monkeypatch.setattr(publish, "write_new", lambda path, data: (seen.append(path.name), write_new(path, data)))
    for _ in range(8):
        store.publish(entry_of(conv())[1])
    assert len(set(seen)) == 24


def test_strays_do_not_disturb(store: DiskStore) -> None:
    """Foreign files, orphans and sub-folders in the folder stop neither reading nor writing (F50)."""
    key, entry = entry_of(conv())
    store.publish(entry)
    (store.folder / "sub").mkdir()
    (store.folder / "orphan_1_0.o").write_bytes(b"x")
    (store.folder / "other_1_0.json").write_bytes(b"{")
    (store.folder / "nan.json").mkdir()
    assert isinstance(store.lookup(key), Found)
    assert store.publish(entry_of(conv(2))[1]) is None
    assert {store.components(name) is None for name in ("orphan_1_0", "other_1_0", "nan")} == {True}


@pytest.mark.parametrize("age", [-86400.0, 2 * 86400.0, 1.7e9])
def test_private_files_of_dead_writers_are_removed(store: DiskStore, age: float) -> None:
    """What a killed writer left goes, whatever its clock said; what is being written stays (F53, F56)."""
    store.publish(entry_of(conv())[1])
    dead = store.folder / f"{PREFIX}dead-0"
    live = store.folder / f"{PREFIX}live-0"
    dead.write_bytes(b"x")
    live.write_bytes(b"x")
    now = dead.stat().st_mtime
    os.utime(dead, (now - age, now - age))
    store.names()
    assert not dead.exists()
    assert live.exists()


def test_entry_times_do_not_matter(store: DiskStore) -> None:
    """Entries from tomorrow or 1970 are hits (F56)."""
    key, entry = entry_of(conv())
    store.publish(entry)
    for when in (0.0, 4e9):
        for path in store.folder.iterdir():
            os.utime(path, (when, when))
        assert isinstance(store.lookup(key), Found)


def test_a_hit_writes_nothing(store: DiskStore) -> None:
    """A look-up changes no file and no time stamp of change, so a read-only mount serves hits (F55)."""
    key, entry = entry_of(conv())
    store.publish(entry)

    def state() -> list[tuple[str, int, int]]:
        paths = [store.folder, *sorted(store.folder.iterdir())]
        return [(path.name, path.stat().st_mtime_ns, path.stat().st_ctime_ns) for path in paths]

    before = state()
    assert isinstance(store.lookup(key), Found)
    assert state() == before


def test_a_lookup_lists_no_folder(store: DiskStore, monkeypatch: pytest.MonkeyPatch) -> None:
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
    DiskStore(tmp_path / "old").publish(entry)
    (tmp_path / "old").rename(tmp_path / "new")
    (tmp_path / "link").symlink_to(tmp_path / "new")
    assert isinstance(DiskStore(tmp_path / "new").lookup(key), Found)
    assert isinstance(DiskStore(tmp_path / "link").lookup(key), Found)
