"""A compile server rests between builds and serves the next one, and never stays for long."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from opbuild.builder import build, client
from opbuild.builder.client import IdleServer
from opbuild.config import Config
from opbuild.platform.sources import SourceFiles
from support.samples import conv, disk_builder, needed
from support.until import until


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Let nothing rest at first, and list the processes of the servers that are started."""
    pids: list[int] = []
    real = subprocess.Popen.__init__

    def listing(process: subprocess.Popen[bytes], *args: object, **kwargs: object) -> None:
        real(process, *args, **kwargs)
        pids.append(process.pid)

    idle = IdleServer()
    monkeypatch.setattr(build, "IDLE_SERVER", idle)
    monkeypatch.setattr(client.subprocess.Popen, "__init__", listing)
    yield pids
    server = idle._take()
    if server is not None:
        server.close()


def alive(pid: int) -> bool:
    """Return whether a process runs."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def build_one(config: Config, tile: int) -> None:
    """Build one operator in a builder of its own."""
    with disk_builder(config) as builder:
        assert builder.build(needed(conv(tile)), "net").built == 1


def test_builds_one_after_the_other_share_a_server(config: Config, started: list[int]) -> None:
    """Operator by operator, one server is started, not one for each."""
    for tile in range(3):
        build_one(config, tile)
    assert len(started) == 1
    assert alive(started[0])


def test_other_settings_get_a_server_of_their_own(config: Config, started: list[int]) -> None:
    """A server for another number of workers is not reused, and does not stay."""
    build_one(config, 0)
    build_one(replace(config, workers=config.workers + 1), 1)
    assert len(started) == 2
    assert not alive(started[0])


def test_edited_sources_get_a_server_of_their_own(
    config: Config, started: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that loaded the sources before they were edited would compile what the key does not say."""
    source = tmp_path / "package" / "backend" / "operator.py"
    source.parent.mkdir(parents=True)
    source.write_text("before")
    monkeypatch.setattr("opbuild.builder.client.SourceFiles", partial(SourceFiles, tmp_path / "package"))
    build_one(config, 0)
    source.write_text("afterwards")
    build_one(config, 1)
    assert len(started) == 2


def test_a_resting_server_that_died_is_replaced(config: Config, started: list[int]) -> None:
    """A server killed while it rests costs the start of another."""
    build_one(config, 0)
    os.kill(started[0], 9)
    assert until(lambda: not alive(started[0]))
    build_one(config, 1)
    assert len(started) == 2


def test_a_server_does_not_rest_for_ever(config: Config, started: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle server ends by itself."""
    monkeypatch.setattr(build, "IDLE_SERVER", IdleServer(seconds=0.05))
    build_one(config, 0)
    assert until(lambda: not alive(started[0]))


def test_builds_at_the_same_time_have_a_server_each_and_leave_one(config: Config, started: list[int]) -> None:
    """Threads never share a server; at the end one rests."""
    threads = [threading.Thread(target=build_one, args=(config, tile)) for tile in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(alive(pid) for pid in started) == 1


def test_a_forked_process_leaves_its_parents_server_alone(config: Config, started: list[int]) -> None:
    """A fork that exits in the ordinary way, exit handlers and all, does not end what its parent keeps."""
    script = f"""
import sys, os, time
sys.path[:0] = {sys.path!r}
from support.samples import *
from opbuild.config import Config
from opbuild.platform.sources import SourceFiles
from pathlib import Path
config = Config(cache_path=Path({str(config.cache_path)!r}), workers=1)
def one(tile):
    with disk_builder(config) as builder:
        builder.build(needed(conv(tile)), "net")
one(0)
from opbuild.builder.client import IDLE_SERVER
server = IDLE_SERVER._server
if os.fork() == 0:
    assert IDLE_SERVER._server is None
    one(1)
    sys.exit(0)
assert os.wait()[1] == 0
assert IDLE_SERVER._server is server and server.alive
print(server._process.pid)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not alive(int(done.stdout))
