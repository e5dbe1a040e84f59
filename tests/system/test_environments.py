"""Strange surroundings: the network is built and runs, with one warning where the cache could not be used."""

from __future__ import annotations

import itertools
import os
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import opbuild
from opbuild.cli.store.folder import Cache
from opbuild.config import Config
from opbuild.errors import OpbuildError, OptionError
from support.forked import CanNotBeSetUpError, in_fork, mount, own_mounts
from support.small_network import SHAPE, Built, SmallNetwork

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

NOTHING_STORED, ALL_STORED = [1, 1], [0, 0]


def twice(network: SmallNetwork, cache: Any, prepare: Callable[[], Any] = lambda: None) -> list[int]:
    """Build two times in a fork; return the number of warnings of each, after checking what they say.

    ``prepare`` may return another cache folder.
    """

    def work() -> list[int]:
        with network.replayed():
            place = prepare() or cache
            first = network.build(place)
            again = network.build(place)
        return [_checked(first, again), len(again.warnings)]

    return list(in_fork(work))


def _checked(first: Built, again: Built) -> int:
    """Return how often the first build warned: once if the second is no hit, and only then."""
    assert (first.report.built, first.report.image) == (2, False)
    assert bool(first.warnings) != again.report.image, (first.warnings, again.report)
    return len(first.warnings)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "spaces and 'quotes' and \"more\"", "缓存/目录é", "new\nline", "x" * 250, "colon:semicolon;|",
        "[red]x[/red]",
        "-rf", "%s{}$HOME~", "not utf-8 \udcff", "~",
    ],
)  # fmt: skip
def test_any_name_of_a_folder_will_do(small_network: SmallNetwork, tmp_path: Path, name: str) -> None:
    """Spaces, quotes, Chinese, a new line, 250 characters, bytes that are no text: stored and found again."""
    with small_network.replayed():
        cache = os.path.join(tmp_path, name)  # noqa: PTH118  a path as users give it
        assert small_network.build(cache).warnings == []
        assert small_network.build(cache).report.image


def _too_long(folder: Path) -> Path:
    return folder.joinpath(*["x" * 200] * 25)


def _near_the_longest(folder: Path) -> Path:
    while len(str(folder)) < 4000:
        folder /= "x" * min(200, 4050 - len(str(folder)))
    return folder


def _dangling(folder: Path) -> Path:
    (folder / "link").symlink_to(folder / "nothing")
    return folder / "link"


def _loop(folder: Path) -> Path:
    (folder / "one").symlink_to(folder / "other")
    (folder / "other").symlink_to(folder / "one")
    return folder / "one"


def _file(folder: Path) -> Path:
    (folder / "file").write_text("not a folder")
    return folder / "file"


def _below_a_link(folder: Path) -> Path:
    (folder / "real").mkdir()
    (folder / "link").symlink_to("real")
    return folder / "link" / "cache"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "warnings"),
    [
        (_below_a_link, ALL_STORED),
        (_near_the_longest, NOTHING_STORED),
        (_too_long, NOTHING_STORED),
        (lambda folder: folder / ("x" * 256), NOTHING_STORED),
        (_dangling, NOTHING_STORED),
        (_loop, NOTHING_STORED),
        (_file, NOTHING_STORED),
        (lambda _: "/dev/null", NOTHING_STORED),
        (lambda _: "/proc/self", NOTHING_STORED),
    ],
    ids=[
        "below-a-link",
        "near-PATH_MAX",
        "above-PATH_MAX",
        "256-characters",
        "dangling",
        "loop",
        "file",
        "dev",
        "proc",
    ],
)
def test_a_place_that_cannot_be_a_folder_is_one_warning(
    small_network: SmallNetwork, tmp_path: Path, place: Callable[[Path], Any], warnings: list[int]
) -> None:
    """Links that lead nowhere, paths that are too long, files: each run builds in memory and says once why (F54)."""
    with small_network.replayed():
        cache = place(tmp_path)
        first, again = small_network.build(cache), small_network.build(cache)
    assert [_checked(first, again), len(again.warnings)] == warnings


def test_a_path_with_a_null_is_refused(small_network: SmallNetwork) -> None:
    """No file system can have it: an error that names the option."""
    with pytest.raises(OptionError, match="cache_path"):
        small_network.build("with\0null")


def _mounted(options: str) -> Callable[[Path], Callable[[], None]]:
    def prepare(folder: Path) -> Callable[[], None]:
        def work() -> None:
            own_mounts()
            mount("-t", "tmpfs", "-o", options, "tmpfs", str(folder))

        return work

    return prepare


def _unwritable(folder: Path) -> Callable[[], None]:
    """A folder of root's for a user without a name or a home."""
    return lambda: _become_nobody(folder, owner=0)


def _nobody(folder: Path) -> Callable[[], None]:
    return lambda: _become_nobody(folder, owner=12345)


def _nobody_who_gives_no_rights(folder: Path) -> Callable[[], None]:
    """Files that their own maker cannot open afterwards."""

    def work() -> None:
        _become_nobody(folder, owner=12345)
        os.umask(0o777)

    return work


def _become_nobody(folder: Path, owner: int) -> None:
    if os.geteuid() != 0:
        raise CanNotBeSetUpError("another user needs root")
    os.chown(folder, owner, owner)
    for name in ("HOME", "USER", "LOGNAME"):
        os.environ.pop(name, None)
    "".encode("utf-8-sig")  # the interpreter's own files may be out of this user's reach
    os.setgroups([])
    os.setgid(12345)
    os.setuid(12345)


def _folder_that_is_gone(folder: Path) -> Callable[[], str]:
    def work() -> str:
        (folder / "gone").mkdir()
        os.chdir(folder / "gone")
        (folder / "gone").rmdir()
        return "."

    return work


def _gone_and_absolute(folder: Path) -> Callable[[], Path]:
    def work() -> Path:
        _folder_that_is_gone(folder)()
        return folder / "cache"

    return work


def _without_memory_files(folder: Path) -> Callable[[], None]:
    return lambda: mock.patch.object(os, "memfd_create", mock.Mock(side_effect=OSError(38, "no"))).start() and None


def _on_a_system_without_memory_files(folder: Path) -> Callable[[], None]:
    return lambda: delattr(os, "memfd_create")


def _without_a_temporary_folder(folder: Path) -> Callable[[], None]:
    def work() -> None:
        refuse = mock.Mock(side_effect=FileNotFoundError(2, "No usable temporary directory found"))
        mock.patch.object(tempfile, "gettempdir", refuse).start()
        mock.patch.object(tempfile, "_get_default_tempdir", refuse).start()
        tempfile.tempdir = None

    return work


@pytest.mark.slow
@pytest.mark.parametrize(
    ("surroundings", "warnings"),
    [
        (_nobody, ALL_STORED),
        (_nobody_who_gives_no_rights, [1, 2]),  # nor can it read the settings that it made
        (_unwritable, NOTHING_STORED),
        (_mounted("ro"), NOTHING_STORED),
        (_mounted("noexec"), ALL_STORED),
        (_mounted("size=4k"), NOTHING_STORED),
        (_mounted("size=64k"), NOTHING_STORED),
        (_mounted("size=300k"), NOTHING_STORED),
        (_mounted("nr_inodes=8"), NOTHING_STORED),
        (_folder_that_is_gone, NOTHING_STORED),
        (_gone_and_absolute, ALL_STORED),
        (_without_memory_files, ALL_STORED),
        (_on_a_system_without_memory_files, ALL_STORED),
        (_without_a_temporary_folder, ALL_STORED),
    ],
    ids=[
        "no-name-no-home", "no-rights", "not-writable", "read-only", "noexec", "full", "soon-full", "full-of-weights",
        "no-inodes", "working-folder-gone", "working-folder-gone-absolute", "no-memfd", "no-memfd-at-all",
        "no-temporary-folder",
    ],
)  # fmt: skip
def test_strange_surroundings_are_one_warning_at_most(
    small_network: SmallNetwork, tmp_path: Path, surroundings: Callable[[Path], Callable[[], Any]], warnings: list[int]
) -> None:
    """Real mounts, users and limits (F54, F60, F61): right results, and a warning only if nothing could be kept."""
    for folder in (tmp_path, small_network.replayed_from, *small_network.replayed_from.rglob("*")):
        folder.chmod(0o755)  # what is replayed stands in for a compiler that every user can reach
    for parent in {*tmp_path.parents, *small_network.path.parents}:
        if tempfile.gettempdir() in map(str, parent.parents) and parent.stat().st_uid == os.geteuid():
            parent.chmod(0o755)
    try:
        assert twice(small_network, tmp_path, surroundings(tmp_path)) == warnings
    except CanNotBeSetUpError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("years", [-1, 1, -60])
def test_a_clock_that_is_wrong_and_jumps_changes_nothing(
    small_network: SmallNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, years: int
) -> None:
    """Years off, and back and forth while it builds: stored, found again, no warning (F56)."""
    true, true_ns, calls = time.time, time.time_ns, itertools.count()

    def off() -> float:
        return years * 31_557_600.0 * (next(calls) % 3)

    monkeypatch.setattr(time, "time", lambda: true() + off())
    monkeypatch.setattr(time, "time_ns", lambda: true_ns() + int(off()) * 10**9)
    with small_network.replayed():
        assert small_network.build(tmp_path).warnings == []
        again = small_network.build(tmp_path)
    assert (again.report.image, again.warnings) == (True, [])


def test_a_relative_path_stays_where_it_was(
    small_network: SmallNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that changes its folder between two signatures goes on with the same cache and the same model."""
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    (tmp_path / "first" / "net.onnx").write_bytes(small_network.path.read_bytes())
    monkeypatch.chdir(tmp_path / "first")
    with small_network.replayed():
        network = opbuild.compile("net.onnx", cache_path="cache", input_shapes={"x": SHAPE})
        monkeypatch.chdir(tmp_path / "second")
        more = network(np.concatenate([small_network.x] * 2))
    np.testing.assert_allclose(more, np.concatenate([small_network.y] * 2), rtol=1e-5)
    assert list((tmp_path / "second").iterdir()) == []
    assert len(list((tmp_path / "first" / "cache" / "rank_0" / "network_meta").glob("net*.so"))) >= 2


def test_few_files_are_enough_or_an_error_says_so(small_network: SmallNetwork, tmp_path: Path) -> None:
    """The limit on open files goes down until nothing works: right results or clear errors, no wrong entry (F06)."""

    def built_with(limit: int) -> str:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        with small_network.replayed():
            try:
                small_network.build(tmp_path)
            except OpbuildError:
                return "error"
        return "right"

    highest = max(map(int, os.listdir("/proc/self/fd"))) + 1  # noqa: PTH208  names are enough
    outcomes = [in_fork(lambda limit=limit: built_with(limit)) for limit in range(highest + 24, highest - 1, -3)]
    assert outcomes[0] == "right"
    assert set(outcomes) <= {"right", "error"}
    assert list(Cache.of(Config(cache_path=tmp_path)).problems()) == []
    with small_network.replayed():
        small_network.build(tmp_path)
        assert small_network.build(tmp_path).report.image
