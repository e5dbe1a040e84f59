"""A folder on storage that others share, which stops to answer or is full."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from opbuild.kernel.reason import Reason
from opbuild.pipeline import remote
from opbuild.platform.files.private import PREFIX, private_stem
from opbuild.store.remote.retry import FAILURES
from opbuild.store.remote.service import Service
from opbuild.store.remote.shared_folder import LEAST_RATE, SharedFolder, answer
from support.forked import in_fork
from support.full_disk import python_on_a_small_disk
from support.remote_servers import service
from support.together import run_together

FULL = """
import json, sys
from opbuild.store.remote.address import parse_address
from opbuild.store.remote.service import Service
remote = Service(parse_address("remote", f"file://{sys.argv[1]}"), seconds=60.0)
written = remote.put([("a/small", b"abc")]), remote.put([("a/large", bytes(2**20))])
read = remote.get("a/large", 2**21), remote.get("a/small", 10).decode()
print(json.dumps([*written, *read, remote.names("a/")]))
"""


def test_a_disk_that_is_full_refuses_and_is_read_on(tmp_path: Path) -> None:
    """Nobody sees half an object; what was there is."""
    done = python_on_a_small_disk(["-c", FULL, str(tmp_path / "disk")], tmp_path / "disk", "200k")
    assert done.returncode == 0, done.stderr
    full, absent = ["refused", "it is full"], ["absent", "it has no such object"]
    written, refused, large, small, names = json.loads(done.stdout)
    assert (written, refused[:2], large[:2], small, names) == (None, full, absent, "abc", ["small"])


def test_storage_that_stops_to_answer_is_slow(tmp_path: Path) -> None:
    """As a mount whose server went away: who opens a file waits for ever, but no build does."""
    os.mkfifo(tmp_path / "x")
    remote = service(f"file://{tmp_path}", 0.25)
    assert {remote.get("x", 10) for _ in range(FAILURES)} == {Reason("slow", "no answer in time")}
    assert remote.reading.reason is not None
    with (tmp_path / "x").open("wb", 0):  # whoever still waits may go
        pass


REQUESTS: dict[str, Callable[[Service], object]] = {
    "get": lambda remote: remote.get("a/x", 10),
    "size": lambda remote: remote.size("a/x"),
    "names": lambda remote: remote.names("a/"),
    "put": lambda remote: remote.put([("a/x", b"x")]),
    "put new": lambda remote: remote.put_new("a/y", b"x"),
    "delete": lambda remote: remote.delete("a/x"),
}


@pytest.mark.parametrize("request_", REQUESTS)
def test_nothing_that_is_asked_of_it_waits_for_ever(
    request_: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither reading nor writing, listing or removing; what was asked is done where the storage answers again."""
    again, way = threading.Event(), SharedFolder._path

    def held(self: SharedFolder, name: str) -> Path:
        again.wait()
        return way(self, name)

    monkeypatch.setattr(SharedFolder, "_path", held)
    assert REQUESTS[request_](service(f"file://{tmp_path}", 0.05)) == Reason("slow", "no answer in time")
    again.set()
    assert REQUESTS[request_](service(f"file://{tmp_path}")) != Reason("slow", "no answer in time")


def test_what_comes_slowly_but_comes_is_waited_for() -> None:
    """Bytes that came give it more time, at the least rate; where no more come it is slow."""
    for pieces in (3, 99):
        came, enough = [0], threading.Event()

        def nbytes(pieces: int = pieces, came: list[int] = came, enough: threading.Event = enough) -> int:
            if came[0] < 3 * LEAST_RATE // 100:
                came[0] += LEAST_RATE // 100
            if came[0] >= pieces * LEAST_RATE // 100:
                enough.set()
            return came[0]

        waited = answer(enough.wait, 0.01, nbytes)
        assert waited == (True if pieces == 3 else Reason("slow", "no answer in time"))
        enough.set()


def test_a_folder_needs_no_opendal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is written, read, listed and emptied where the package is not installed; a server is refused by its name."""
    for name in [*sys.modules]:
        if name.partition(".")[0] == "opendal":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opendal", None)
    remote = service(f"file://{tmp_path}/new/shared")
    assert remote.get("a/x", 10) == Reason("absent", "it has no such object")
    assert remote.names("a/") == ()
    assert remote.put([("a/x", b"abc"), ("a/y", b"d")]) is None
    assert remote.put_new("a/x", b"other") == Reason("exists", "the object is there")
    assert (remote.get("a/x", 3), remote.size("a/x"), remote.names("a/")) == (b"abc", 3, ("x", "y"))
    assert remote.get("a/x", 2) == Reason("damaged", "it has more than 2 bytes")
    assert remote.delete("a/x", "a/nothing") is None
    assert remote.names("a/") == ("y",)
    refused = service("https://127.0.0.1:9").get("x", 10)
    assert refused == Reason("refused", "the package opendal is not installed: pip install 'opbuild[remote]'")


def test_a_fork_of_a_process_that_asked_it_asks_too(tmp_path: Path) -> None:
    """Its requests are threads' of its own."""
    remote = service(f"file://{tmp_path}")
    assert remote.put([("x", b"abc")]) is None
    assert in_fork(lambda: bytes(remote.get("x", 10)).decode()) == "abc"  # type: ignore[arg-type]


def test_what_a_killed_writer_left_is_not_listed_and_goes(tmp_path: Path) -> None:
    """At once where it died on this host; what another host may still write stays, unseen."""
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    own = f"{private_stem()}0"
    left = own.replace(f".{os.getpid()}-", f".{dead.pid}-")
    others = f"{PREFIX}{'0' * 32}-{'1' * 16}.1-0"
    for name in (own, left, others, "x"):
        (tmp_path / name).touch()
    assert service(f"file://{tmp_path}").names() == ("x",)
    assert {path.name for path in tmp_path.iterdir()} == {own, others, "x"}


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_the_child_of_a_fork_writes_by_itself(tmp_path: Path) -> None:
    """The thread that writes stayed in the parent, which is just writing something."""
    store, go_on, begun = remote.service_at(f"file://{tmp_path}"), threading.Event(), threading.Event()

    def written() -> None:
        begun.set()
        go_on.wait(60)

    def work() -> list[object]:
        done: list[object] = []
        remote._uploads(store).add(lambda: done.append("written"))
        return [remote._uploads(store).wait(), done]

    remote._uploads(store).add(written)
    assert begun.wait(60)
    try:
        assert in_fork(work) == [[], ["written"]]
    finally:
        go_on.set()


def test_a_process_has_one_service_of_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many threads ask for it first: its failures count for all."""
    made: list[object] = []

    def slow(*given: object) -> object:
        time.sleep(0.01)
        made.append(given)
        return object()

    monkeypatch.setattr(remote, "Service", slow)
    found: list[object] = []
    assert run_together(lambda _: found.append(remote.service_at(f"file://{tmp_path}/one")), 4) == []
    assert (len(made), len({*map(id, found)})) == (1, 1)
    remote.service_at.cache_clear()  # type: ignore[attr-defined]
