"""Many processes that need the same operators: each is compiled once, and nobody waits for the dead."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opbuild import events
from opbuild.builder import queue
from opbuild.config import Config
from opbuild.kernel.entry import Entry
from opbuild.kernel.interfaces import Found, Holder, Missing
from opbuild.kernel.key import Key
from opbuild.kernel.reason import Reason
from opbuild.platform.files.writing import make_folder
from opbuild.store.blobs import Folder
from opbuild.store.claims import FolderClaims, sweep_claims
from opbuild.store.operators import Operators, operators_in
from support.samples import Recorder, conv, disk_builder, key_of, needed

BUILDER = f"""
import fcntl, json, sys
sys.path[:0] = {sys.path!r}
from pathlib import Path
from support.samples import conv, disk_builder, needed
from opbuild.config import Config
from opbuild.store.claims import FolderClaims
from opbuild.store.operators import operators_in
job = json.loads(sys.argv[1])
if job["no_locks"]:
    fcntl.flock = lambda descriptor, operation: None
base = Path(job["cache"])
variants = [{{"fake": "runtime"}} if job["runtime"] and tile == 0 else {{}} for tile in range(job["operators"])]
wanted = needed(*(conv(tile, milliseconds=job["milliseconds"], **each) for tile, each in enumerate(variants)))
config = Config(cache_path=base, workers=job["workers"])
more = {{"runtime_store": operators_in(config.network_meta)}} if job["runtime"] else {{}}
print("ready", flush=True)
sys.stdin.readline()
with disk_builder(config, claims=FolderClaims(base / "claims"), **more) as builder:
    builder.warm_up()
    result = builder.build(wanted, "net")
print(json.dumps({{
    "built": [decision.name for decision in result.decisions if decision.outcome == "built"],
    "shared": [str(decision.reason) for decision in result.decisions if decision.outcome == "shared"],
    "runtime": result.runtime.decisions[0].outcome if result.runtime else "",
    "objects": [entry.sha256 for entry in result.entries.values()],
}}))
"""


def build_together(cache: Path, count: int, **job: Any) -> list[dict[str, Any]]:
    """Start processes that build the same network into one folder at the same moment; return what each reports."""
    job = {
        "cache": str(cache),
        "operators": 12,
        "milliseconds": 10,
        "workers": 1,
        "no_locks": False,
        "runtime": False,
    } | job
    command = [sys.executable, "-c", BUILDER, json.dumps(job)]
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(count)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    printed = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * count
    return [json.loads(line) for line in printed]


def test_eight_cold_processes_compile_each_operator_once(tmp_path: Path) -> None:
    """Eight processes, cold, one folder: equal results, every operator and the runtime compiled once (F24, F17)."""
    reports = build_together(tmp_path, 8, runtime=True)
    built = [name for report in reports for name in report["built"]]
    assert sorted(built) == sorted(set(built))
    assert len(built) == 12
    assert sum(report["runtime"] == "built" for report in reports) == 1
    assert len({tuple(report["objects"]) for report in reports}) == 1
    assert all(reason.startswith("built by ") for report in reports for reason in report["shared"])
    assert not (tmp_path / "claims").exists()


@pytest.mark.slow
def test_without_locks_operators_are_compiled_more_than_once_and_right(tmp_path: Path) -> None:
    """Where locks do nothing, as on some network file systems, results are the same and nobody waits (F16)."""
    reports = build_together(tmp_path, 3, no_locks=True)
    assert len({tuple(report["objects"]) for report in reports}) == 1
    assert sum(len(report["built"]) for report in reports) >= 12


HOLDER = f"""
import sys
sys.path[:0] = {sys.path!r}
from pathlib import Path
from support.samples import *
from opbuild.store.claims import FolderClaims
from support.fake_compiler import FakeCompiler
from opbuild.config import Config
builder = disk_builder(Config(cache_path=Path(sys.argv[1]), workers=1))
claim = FolderClaims(Path(sys.argv[2]), rank=3).take(builder.key(conv(1)))
print("held", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def holder(config: Config) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the claim on ``conv(1)`` and does nothing."""
    command = [sys.executable, "-c", HOLDER, str(config.cache_path), str(config.cache_path / "claims")]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_a_killed_holder_is_succeeded_at_once(
    config: Config, holder: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What others compile is said with process and rank; after a kill -9 their operator is compiled here (F18)."""
    monkeypatch.setattr(queue, "SAID_AFTER", 0.0)
    seen = Recorder()

    def observe(event: events.Event) -> None:
        seen(event)
        if isinstance(event, events.Waiting):
            os.kill(holder.pid, signal.SIGKILL)

    with disk_builder(config, observe, claims=FolderClaims(config.cache_path / "claims")) as builder:
        result = builder.build(needed(conv(1), conv(2)), "net")
        name = builder.key(conv(1)).name(0)
    assert result.built == 2
    said = seen.of(events.Waiting)
    assert {event.name for event in said} == {name}
    assert f"process {holder.pid} on " in said[0].holder
    assert said[0].holder.endswith("(rank 3)")
    assert not (config.cache_path / "claims").exists()


def test_no_wait_is_longer_than_a_compile_may_take(config: Config, holder: subprocess.Popen[str]) -> None:
    """A holder that hangs costs one time limit; then its operator is compiled without a claim (F18)."""
    config = replace(config, compile_timeout=0.2)
    with disk_builder(config, claims=FolderClaims(config.cache_path / "claims")) as builder:
        assert builder.build(needed(conv(1)), "net").built == 1
    assert holder.poll() is None


def test_force_neither_waits_nor_claims(config: Config, holder: subprocess.Popen[str]) -> None:
    """A forced build compiles its own while another process holds a claim, and leaves that alone (F21)."""
    claims = FolderClaims(config.cache_path / "claims")
    with disk_builder(config, claims=claims, force=True) as builder:
        assert builder.build(needed(conv(1)), "net").built == 1
        assert isinstance(claims.take(builder.key(conv(1))), Holder)
    assert holder.poll() is None


def test_a_process_that_forks_does_not_hand_on_its_claims(tmp_path: Path) -> None:
    """A fork that lives on does not keep a claim of its parent's alive, nor give it up (F18)."""
    script = f"""
import os, sys, time
sys.path[:0] = {sys.path!r}
from pathlib import Path
from support.samples import *
from opbuild.store.claims import FolderClaims
claim = FolderClaims(Path(sys.argv[1])).take(key_of(conv()))
ready, tell = os.pipe()
if os.fork() == 0:
    claim.release()
    os.write(tell, b"x")
    time.sleep(60)
os.read(ready, 1)  # the fork lets go of its parent's claims as soon as it runs
print(os.path.exists(claim._path), flush=True)
sys.stdin.readline()
"""
    claims = FolderClaims(tmp_path / "claims")
    command = [sys.executable, "-c", script, str(claims.folder)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        assert isinstance(claims.take(key_of(conv())), Holder)
        process.kill()
        process.wait()
        claim = claims.take(key_of(conv()))
        assert not isinstance(claim, Holder)
        claim.release()
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


class LateStore(Operators):
    """A store on a network file system: what others publish is seen only after a minute of a clock."""

    def __init__(self, folder: Path, clock: list[float]) -> None:
        super().__init__(Folder(folder))
        self.clock = clock
        self.own: set[str] = set()

    def publish(self, entry: Entry, linked_from: Path | None = None) -> str | None:
        """Publish; one sees oneself what one has published."""
        self.own.add(entry.name)
        return super().publish(entry)

    def lookup(self, key: Key) -> Found | Missing:
        """Find what is one's own, or old enough."""
        if key.name(0) in self.own or self.clock[0] >= 60.0:
            return super().lookup(key)
        return Missing(Reason("absent", "not in the store"))


def test_what_becomes_visible_late_is_compiled_again_and_nobody_waits(config: Config) -> None:
    """Where another's files show after 60 s, each process proceeds with its own copy at once (F15)."""
    clock = [0.0]
    sums = []
    for _ in range(3):
        with disk_builder(config, claims=FolderClaims(config.cache_path / "claims")) as builder:
            builder.store = LateStore(config.kernel_meta, clock)
            result = builder.build(needed(conv(1), conv(2)), "net")
        assert result.built == 2
        sums.append([entry.sha256 for entry in result.entries.values()])
    assert sums[0] == sums[1] == sums[2]
    clock[0] = 61.0
    with disk_builder(config) as builder:
        builder.store = LateStore(config.kernel_meta, clock)
        assert builder.build(needed(conv(1), conv(2)), "net").reused == 2


@pytest.mark.parametrize("obstacle", ["file", "flock", "refused"])
def test_where_there_can_be_no_claims_everything_is_built(
    config: Config, obstacle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A side file that cannot be made or locked costs nothing but compiling twice (F20)."""
    folder = config.cache_path / "claims"
    if obstacle == "file":
        config.cache_path.mkdir()
        folder.write_bytes(b"")
    elif obstacle == "flock":
        monkeypatch.setattr(fcntl, "flock", refuse)
    else:
        monkeypatch.setattr("opbuild.store.claims._FLAGS", os.O_RDWR | os.O_DIRECTORY)
    with disk_builder(config, claims=FolderClaims(folder)) as builder:
        assert builder.build(needed(conv(1), conv(2)), "net").built == 2
        assert builder.build(needed(conv(1), conv(2)), "net").reused == 2
    with disk_builder(config, claims=FolderClaims(folder)) as other:
        assert other.build(needed(conv(1), conv(3)), "net").built == 1


def refuse(*arguments: object, **options: object) -> int:
    """Fail as a file system without locks does."""
    raise OSError(95, "Operation not supported")


def test_claims_that_were_left_behind_go_and_those_in_use_stay(config: Config, holder: subprocess.Popen[str]) -> None:
    """Ageing removes the files of claims that nobody holds, whoever left them (F53)."""
    folder = config.cache_path / "claims"
    (folder / "conv_relu_1.claim").write_bytes(b"{")
    (folder / "conv_relu_2.claim").mkdir()
    before = {path.name for path in folder.iterdir()}
    sweep_claims(folder)
    assert before - {path.name for path in folder.iterdir()} == {"conv_relu_1.claim"}
    holder.kill()
    holder.wait()
    (folder / "conv_relu_2.claim").rmdir()
    sweep_claims(folder)
    assert not folder.exists()


def test_a_claim_is_not_an_entry(config: Config) -> None:
    """Claims lie beside the store and are none of its entries (F53)."""
    claims = FolderClaims(config.kernel_meta)
    claim = claims.take(key_of(conv()))
    assert not isinstance(claim, Holder)
    assert operators_in(config.kernel_meta).names() == ()
    claim.release()
    claim.release()
    assert list(config.kernel_meta.iterdir()) == []


def test_a_folder_that_goes_while_it_is_made_costs_no_claim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever ends removes the folder, perhaps just as another process makes it: both would compile the same (F24)."""
    made: list[Path] = []

    def removed_once(folder: Path) -> None:
        made.append(folder)
        if len(made) == 1:
            raise NotADirectoryError(errno.ENOTDIR, "gone again", str(folder))
        make_folder(folder)

    monkeypatch.setattr("opbuild.store.claims.make_folder", removed_once)
    key = key_of(conv(1))
    claim = FolderClaims(tmp_path / "claims").take(key)
    assert isinstance(FolderClaims(tmp_path / "claims").take(key), Holder)
    assert not isinstance(claim, Holder)
    claim.release()
