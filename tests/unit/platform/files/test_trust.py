"""Whose files are believed: owners, modes, the way to a folder, and what is done about the rest."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from opbuild import events
from opbuild.config import Config
from opbuild.errors import InvalidModelError, OptionError
from opbuild.kernel.identity import remember, remembered
from opbuild.kernel.interfaces import Found, Missing
from opbuild.kernel.networks import NetworkKey
from opbuild.offline.format import WEIGHTS, Section, open_container, write_container
from opbuild.pipeline.setup import set_up
from opbuild.platform.files.trust import MEMO, PRIVATE, SETTING, Trust, UntrustedError, make_trust
from opbuild.platform.files.writing import create, inside, write_new
from opbuild.runtime.stored_network import LoadedNetwork
from opbuild.store.bundle import read_bundle, write_bundle
from opbuild.store.operators import operators_in
from opbuild.store.policy import SIZE, read_policy
from support.handmade import build, chain, image_store
from support.samples import IDENTITY, Recorder, conv, entry_of

STRANGER = 12345
SHARED = Trust(shared=True)
KEY = NetworkKey("chain", {"model": "m", "inputs": [["x", "float32", [64 * 1024]]]}, lambda: "halide-1")
Spoil = Callable[[Path], None]


def open_to_all(path: Path) -> None:
    """Let everybody write."""
    path.chmod(path.stat().st_mode | stat.S_IWOTH)


def open_to_a_group(path: Path) -> None:
    """Let a group write in which others are."""
    path.chmod(path.stat().st_mode | stat.S_IWGRP)
    os.chown(path, -1, STRANGER)


def give_away(path: Path) -> None:
    """Make it another user's."""
    os.chown(path, STRANGER, -1)


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user or group")
SPOILT = [
    pytest.param(open_to_all, "everybody may write to", "chmod go-w", id="everybody"),
    pytest.param(open_to_a_group, f"group {STRANGER} may write to", "chmod go-w", id="group", marks=needs_root),
    pytest.param(give_away, f"user {STRANGER} owns", "chown", id="owner", marks=needs_root),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A private folder."""
    path = tmp_path / "base" / "kernel_meta"
    path.mkdir(parents=True, mode=0o700)
    return path


@pytest.mark.parametrize(("spoil", "why", "what"), SPOILT)
def test_a_folder_that_others_can_write_to_is_refused(folder: Path, spoil: Spoil, why: str, what: str) -> None:
    """F58: the reason names the folder, what is wrong with it, the command that mends it, and the setting."""
    assert PRIVATE.folder_problem(folder) is None
    spoil(folder)
    problem = str(PRIVATE.folder_problem(folder))
    assert f"{why} {folder}" in problem
    assert what in problem
    assert SETTING in problem
    assert SHARED.folder_problem(folder) is None


@pytest.mark.parametrize(("spoil", "why", "what"), SPOILT)
def test_so_is_one_whose_parent_others_can_write_to(folder: Path, spoil: Spoil, why: str, what: str) -> None:
    """F58: who can write to a parent can put another folder in its place, also before it is made."""
    spoil(folder.parent)
    for below in (folder, folder / "not" / "made"):
        problem = str(PRIVATE.folder_problem(below))
        assert f"{why} {folder.parent}, on the way to {below}" in problem
        assert what in problem


def test_a_parent_with_the_sticky_bit_may_be_open(folder: Path) -> None:
    """As /tmp: nobody can rename another's folder there. The cache folder itself may not be so."""
    folder.parent.chmod(0o1777)
    assert PRIVATE.folder_problem(folder) is None
    folder.chmod(0o1777)
    assert "everybody may write" in str(PRIVATE.folder_problem(folder))


@needs_root
def test_a_sticky_parent_of_another_user_is_refused(folder: Path) -> None:
    """Its owner may rename what is in it."""
    folder.parent.chmod(0o1777)
    give_away(folder.parent)
    assert f"user {STRANGER} owns" in str(PRIVATE.folder_problem(folder))


def test_the_groups_of_root_and_of_the_user_alone_may_write(folder: Path) -> None:
    """With a umask of 002, which Debian gives, a user's own group may write to everything: it has his number."""
    folder.chmod(0o775)
    os.chown(folder, -1, os.getegid())
    expected = os.getegid() in (0, os.geteuid())
    assert (PRIVATE.folder_problem(folder) is None) == expected


def test_every_symbolic_link_on_the_way_is_followed_and_judged(tmp_path: Path, folder: Path) -> None:
    """F58: a link may lie in a private folder, in any number, and lead to one; the folders of links count too."""
    open_folder = tmp_path / "open"
    open_folder.mkdir()
    (open_folder / "second").symlink_to(os.path.relpath(folder, open_folder))
    (tmp_path / "first").symlink_to(open_folder / "second")
    assert PRIVATE.folder_problem(tmp_path / "first") is None
    open_folder.chmod(0o777)
    assert f"everybody may write to {open_folder}" in str(PRIVATE.folder_problem(tmp_path / "first"))
    open_folder.chmod(0o700)
    folder.chmod(0o777)
    assert f"everybody may write to {folder}" in str(PRIVATE.folder_problem(tmp_path / "first"))


@needs_root
def test_a_link_of_another_user_is_refused(tmp_path: Path, folder: Path) -> None:
    """In /tmp anybody can make a link under a name that is expected there, and point it elsewhere later."""
    link = tmp_path / "link"
    link.symlink_to(folder)
    os.lchown(link, STRANGER, -1)
    assert f"user {STRANGER} owns {link}" in str(PRIVATE.folder_problem(link))


@pytest.mark.parametrize("target", ["loop", "missing/further", "/nonexistent"])
def test_a_way_that_ends_nowhere_is_no_problem(tmp_path: Path, target: str) -> None:
    """A loop and a dangling link end the walk; opening such a path fails by itself."""
    (tmp_path / "loop").symlink_to(target)
    assert PRIVATE.folder_problem(tmp_path / "loop" / "kernel_meta") is None


@pytest.mark.parametrize(("spoil", "why", "what"), SPOILT)
def test_a_file_that_others_can_write_to_is_refused(tmp_path: Path, spoil: Spoil, why: str, what: str) -> None:
    """F58: as for folders; and the check is of the descriptor that is read."""
    path = tmp_path / "file"
    path.write_bytes(b"content")
    path.chmod(0o644)
    assert PRIVATE.read(path, MEMO) == b"content"
    spoil(path)
    with pytest.raises(UntrustedError) as caught:
        PRIVATE.read(path, MEMO)
    assert why in str(caught.value)
    assert what in str(caught.value)
    assert SHARED.read(path, MEMO) == b"content"


def test_what_is_checked_is_what_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F58: a file that is exchanged between opening and reading is not read; there is no second look at the path."""
    path, other = tmp_path / "file", tmp_path / "other"
    path.write_bytes(b"checked")
    other.write_bytes(b"exchanged")
    fstat = os.fstat

    def exchange(descriptor: int) -> os.stat_result:
        state = fstat(descriptor)
        if other.exists():
            other.replace(path)
        return state

    monkeypatch.setattr(os, "fstat", exchange)
    assert PRIVATE.read(path, MEMO) == b"checked"


def test_a_pipe_in_a_files_place_makes_nobody_wait(tmp_path: Path) -> None:
    """A pipe, a folder and a device are no files; opening them does not block."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/null")):
        with pytest.raises(OSError, match="not a regular file"):
            PRIVATE.read(path, MEMO)


def test_what_opbuild_writes_nobody_else_can_write_to(tmp_path: Path) -> None:
    """F57: files follow the umask as far as others may read them, whatever it is."""
    for mask, mode in ((0o000, 0o644), (0o002, 0o644), (0o027, 0o640), (0o077, 0o600)):
        before = os.umask(mask)
        try:
            write_new(tmp_path / f"a{mask}", b"x")
            create(tmp_path / f"b{mask}").close()
            write_container(tmp_path / f"c{mask}", [Section(WEIGHTS, 0, [b"x"])])
            write_bundle(tmp_path / f"d{mask}", "t", [IDENTITY], [])
        finally:
            os.umask(before)
        assert {stat.S_IMODE((tmp_path / f"{name}{mask}").stat().st_mode) for name in "abcd"} == {mode}


@pytest.mark.parametrize("suffix", [".o", ".info", ".json"])
@pytest.mark.parametrize(("spoil", "why", "what"), SPOILT)
def test_an_entry_that_others_can_write_to_is_a_miss_and_replaced(
    folder: Path, suffix: str, spoil: Spoil, why: str, what: str
) -> None:
    """F58: each of its files is checked; what is built again in its place is private and found."""
    key, entry = entry_of(conv())
    store = operators_in(folder)
    store.publish(entry)
    spoil(folder / f"{entry.name}{suffix}")
    answer = store.lookup(key)
    assert isinstance(answer, Missing)
    assert answer.reason.code == "untrusted"
    assert suffix in answer.reason.text
    assert why in answer.reason.text
    assert what in answer.reason.text
    assert isinstance(operators_in(folder, trust=SHARED).lookup(key), Found)
    assert store.publish(entry) is None
    assert isinstance(store.lookup(key), Found)


def test_a_store_that_others_can_write_to_is_neither_read_nor_written(folder: Path) -> None:
    """F58: every look-up misses for that reason, and nothing is added."""
    key, entry = entry_of(conv())
    operators_in(folder).publish(entry)
    folder.chmod(0o777)
    store = operators_in(folder)
    answer = store.lookup(key)
    assert isinstance(answer, Missing)
    assert answer.reason.code == "untrusted"
    assert "everybody may write" in str(store.publish(entry_of(conv(2))[1]))
    assert len(list(folder.iterdir())) == 3
    assert isinstance(operators_in(folder, trust=SHARED).lookup(key), Found)


def test_a_network_that_others_can_write_to_is_a_miss(tmp_path: Path) -> None:
    """F58: record, library, small constants and weights; what is remembered is not believed, and costs nothing else."""
    store = image_store(tmp_path)
    weights = store.packer()
    built = build(chain(64 * 1024), weights)
    store.save(KEY, built.record, built.library, built.constants, weights)
    paths = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.suffix for path in paths} == {".so", ".bin", ".json", ".seen"}
    for path in paths:
        mode = path.stat().st_mode
        path.chmod(0o666)
        only_remembers = path.suffix == ".seen" or (path.suffix == ".json" and path.parent.name == "weights")
        image = store.load(KEY)
        assert isinstance(image, LoadedNetwork) if only_remembers else "everybody may write" in str(image), path
        assert isinstance(image_store(tmp_path, trust=SHARED).load(KEY), LoadedNetwork)
        path.chmod(mode)
        assert isinstance(store.load(KEY), LoadedNetwork)


def test_a_cache_that_others_can_write_to_is_left_alone_with_one_warning(config: Config) -> None:
    """F58: the network is built in memory; the one warning says why and what to do; the setting uses the cache."""
    for folder in (config.kernel_meta, config.network_meta, config.network_meta / "weights", config.cache_folder):
        folder.mkdir(parents=True, exist_ok=True)
        mode = folder.stat().st_mode
        folder.chmod(0o777)
        seen = Recorder()
        setup = set_up(config, None, seen)
        assert not setup.config.uses_folder
        (warning,) = seen.of(events.Warned)
        assert f"everybody may write to {folder}" in warning.message
        assert f"chmod go-w {folder}" in warning.message
        assert SETTING in warning.message
        trusting = Config(cache_path=config.cache_path, trust_shared_cache=True)
        seen = Recorder()
        assert set_up(trusting, None, seen).config.uses_folder
        assert seen.of(events.Warned) == []
        folder.chmod(mode)


def test_settings_that_others_can_write_do_not_count(tmp_path: Path) -> None:
    """F58: op_cache.ini decides what is removed, so a stranger's is not obeyed, and a warning says so."""
    file = tmp_path / "op_cache.ini"
    file.write_text(f"[op_compiler_cache]\n{SIZE}=7\nremain_cache_size_ratio=7\n")
    assert read_policy(file)[0].max_megabytes == 7
    file.chmod(0o666)
    policy, (warning,) = read_policy(file)
    assert policy.max_megabytes == 500
    assert "everybody may write" in warning
    assert read_policy(file, trust=SHARED)[0].max_megabytes == 7


def test_a_memo_that_others_can_write_is_not_believed(tmp_path: Path) -> None:
    """F58: which compiler a cache's objects are from is not believed; the memo is replaced by a private one."""
    memo = tmp_path / "compiler.json"
    remember(memo, IDENTITY)
    assert remembered(memo) == IDENTITY
    memo.chmod(0o666)
    assert remembered(memo) is None
    assert remembered(memo, SHARED) == IDENTITY
    remember(memo, IDENTITY)
    assert remembered(memo) == IDENTITY
    assert stat.S_IMODE(memo.stat().st_mode) & 0o022 == 0


def test_an_offline_model_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    """F58: its library is code too; the weights of a file that others write to would change under the network."""
    path = tmp_path / "model.om"
    write_container(path, [Section(WEIGHTS, 0, [b"weights"])])
    assert open_container(path).section(WEIGHTS).tobytes() == b"weights"
    open_to_all(path)
    with pytest.raises(InvalidModelError, match="everybody may write"):
        open_container(path)
    assert open_container(path, trust=SHARED).section(WEIGHTS).tobytes() == b"weights"


def test_a_bundle_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    """F58: as an offline model."""
    path = tmp_path / "bundle"
    write_bundle(path, "target", [IDENTITY], [])
    assert read_bundle(path).target == "target"
    open_to_all(path)
    with pytest.raises(OptionError, match="everybody may write"):
        read_bundle(path)
    assert read_bundle(path, SHARED).target == "target"


def test_what_was_checked_of_an_offline_model_is_what_runs(tmp_path: Path) -> None:
    """F58: the bytes that were compared with their digest are the process's own, whatever becomes of the file."""
    path = tmp_path / "model.om"
    write_container(path, [Section(kind, 0, [b"checked" * 100]) for kind in range(1, 8)])
    container = open_container(path)
    with path.open("r+b") as file:
        file.write(b"\xff" * path.stat().st_size)
    assert {kind: container.section(kind).tobytes() == b"checked" * 100 for kind in range(1, 8)} == {
        kind: kind != WEIGHTS for kind in range(1, 8)
    }


@pytest.mark.parametrize("location", ["", "/etc/passwd", "../model", "a/../../model", "..", "a\0b", "out", "deep/out"])
def test_a_name_in_a_file_leads_nowhere_outside_its_folder(tmp_path: Path, location: str) -> None:
    """F58: absolute, upward, empty, or through a symbolic link that leads out."""
    folder = tmp_path / "folder"
    (folder / "deep").mkdir(parents=True)
    (tmp_path / "model").write_bytes(b"x")
    for link in (folder / "out", folder / "deep" / "out"):
        link.symlink_to(tmp_path / "model")
    with pytest.raises(OSError, match="outside the folder"):
        inside(folder, location)


def test_a_name_in_a_file_leads_to_files_below_its_folder(tmp_path: Path) -> None:
    """Also through a link that stays there; a pipe, on which a reader would wait, is no file."""
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "data").write_bytes(b"x")
    (tmp_path / "link").symlink_to("deep/data")
    os.mkfifo(tmp_path / "pipe")
    for location in ("deep/data", "link", "./deep/data", "not there"):
        assert inside(tmp_path, location) == tmp_path / location
    with pytest.raises(OSError, match="not a regular file"):
        inside(tmp_path, "pipe")


def test_the_settings_come_from_the_environment() -> None:
    """``OPBUILD_TRUST_SHARED_CACHE`` is a flag; without it nothing that others can write to counts."""
    assert make_trust(Config.from_environment(environ={})) == PRIVATE
    assert make_trust(Config.from_environment(environ={"OPBUILD_TRUST_SHARED_CACHE": "1"})) == SHARED
    with pytest.raises(OptionError, match="OPBUILD_TRUST_SHARED_CACHE"):
        Config.from_environment(environ={"OPBUILD_TRUST_SHARED_CACHE": "perhaps"})
