"""What others put where ranks and builds meet: each kind of thing at each name that is opened there.

It is refused, with a message that names it; nobody waits, and nothing elsewhere is read, written or removed.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opbuild.config import Config
from opbuild.errors import RankError
from opbuild.kernel.interfaces import UNCLAIMED
from opbuild.platform.files.meeting import read_meeting_file
from opbuild.ranks import launcher as job_folders
from opbuild.ranks.collective import Collective
from opbuild.ranks.hub import Hub, short_path
from opbuild.ranks.launcher import JobFolder
from opbuild.ranks.local import LocalTransport
from opbuild.ranks.progress import Snapshot, read_snapshot, write_snapshot
from opbuild.store.claims import Flights, FolderClaims, sweep_claims
from opbuild.store.peers import Peers, announce, job_problem
from support.samples import conv, key_of

SOMEBODY = 12345
CLAIM = f"claims/{key_of(conv()).stem}.claim"
TURN = "claims/network.claim"

Plant = Callable[[Path, Path], None]


def _of_another(path: Path, victim: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make files of another user")
    path.write_bytes(b"theirs")
    os.chown(path, SOMEBODY, SOMEBODY)


def _for_all(path: Path, victim: Path) -> None:
    path.write_bytes(b"theirs")
    path.chmod(0o666)


def _socket(path: Path, victim: Path) -> None:
    with socket.socket(socket.AF_UNIX) as link, short_path(path) as short:
        link.bind(short)


KINDS: dict[str, Plant] = {
    "link to a file": lambda path, victim: path.symlink_to(victim / "file"),
    "link to a folder": lambda path, victim: path.symlink_to(victim),
    "link to nothing": lambda path, victim: path.symlink_to(victim / "new"),
    "second name": lambda path, victim: path.hardlink_to(victim / "file"),
    "pipe": lambda path, _: os.mkfifo(path),
    "socket": _socket,
    "another user's": _of_another,
    "for all to write": _for_all,
}
FOLDERS = {
    "link to a folder": KINDS["link to a folder"],
    "link to nothing": KINDS["link to nothing"],
    "pipe": KINDS["pipe"],
    "for all to write": lambda path, _: (path.mkdir(), path.chmod(0o777)),
}


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A folder elsewhere, with a file and what the ranks' folders have."""
    folder = tmp_path / "victim"
    folder.mkdir()
    for name in ("file", "0", "1", "0.json", "1.json", "0.0", "1.0", Path(CLAIM).name, Path(TURN).name):
        (folder / name).write_bytes(b'[["/elsewhere", "/elsewhere"]]')
    return folder


def _state(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}


def _planted(job: Path, name: str, kind: str, kinds: dict[str, Any], victim: Path) -> Path:
    job.mkdir()
    path = job / name
    path.parent.mkdir(mode=0o700, exist_ok=True)
    kinds[kind](path, victim)
    return path


def _tell_and_ask(job: Path, folder: Path) -> None:
    """Do all that a build does by the folder of its job."""
    config = Config(cache_path=folder / "cache", job_folder=job, rank_id=0, rank_size=2)
    announce(config)
    assert all("elsewhere" not in str(peer.kernel_meta) for peer in Peers(config)())
    write_snapshot(job, 0, Snapshot())
    read_snapshot(job, 1)
    claim = FolderClaims(job / "claims").take(key_of(conv()))
    assert claim is UNCLAIMED or hasattr(claim, "release")
    claim.release()
    with Flights(job / "claims").turn("network"):
        pass
    sweep_claims(job / "claims")


BUILD = ["progress/0.json", "progress/1.json", "stores/0", "stores/1", CLAIM, TURN]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", BUILD, ids=["own progress", "progress", "own stores", "stores", "claim", "turn"])
def test_a_build_leaves_alone_what_others_put_into_the_jobs_folder(
    name: str, kind: str, victim: Path, tmp_path: Path
) -> None:
    """It is named, and the build goes on as if there were nothing."""
    path = _planted(tmp_path / "job", name, kind, KINDS, victim)
    before = _state(victim)
    assert str(path) in job_problem(tmp_path / "job")
    _tell_and_ask(tmp_path / "job", tmp_path)
    assert _state(victim) == before


@pytest.mark.parametrize("kind", FOLDERS)
@pytest.mark.parametrize("name", ["progress", "stores", "claims"])
def test_a_build_leaves_alone_folders_that_are_not_its_own(name: str, kind: str, victim: Path, tmp_path: Path) -> None:
    """A link would lead everything elsewhere; into a folder for all others may put anything."""
    path = _planted(tmp_path / "job", name, kind, FOLDERS, victim)
    before = _state(victim)
    assert str(path) in job_problem(tmp_path / "job")
    _tell_and_ask(tmp_path / "job", tmp_path)
    assert _state(victim) == before
    assert path.is_symlink() or not path.is_dir() or list(path.iterdir()) == []


def _exchanged(job: Path) -> dict[int, Any]:
    """Return the results of two ranks that add up their numbers, or their errors."""
    found: dict[int, Any] = {}

    def work(rank: int) -> None:
        with contextlib.ExitStack() as ending:
            try:
                config = Config(rank_id=rank, rank_size=2, connect_timeout=1e6, exec_timeout=0.0)
                transport = ending.enter_context(contextlib.closing(LocalTransport(config, job)))
                found[rank] = transport.run(Collective("AllReduce", "uint8", (30,), "sum"), np.ones(30, np.uint8))[0]
            except RankError as error:
                found[rank] = str(error)

    threads = [threading.Thread(target=work, args=(rank,), daemon=True) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["exchange/0.0", "exchange/1.0"])
def test_ranks_exchange_nothing_by_files_of_others(name: str, kind: str, victim: Path, tmp_path: Path) -> None:
    """Each ends at once, and says which file it is."""
    path = _planted(tmp_path / "job", name, kind, KINDS, victim)
    before = _state(victim)
    Hub(tmp_path / "job", 2)
    assert all(str(path) in said for said in _exchanged(tmp_path / "job").values())
    assert _state(victim) == before


@pytest.mark.parametrize("kind", FOLDERS)
def test_ranks_exchange_nothing_by_a_folder_of_others(kind: str, victim: Path, tmp_path: Path) -> None:
    """Each ends at once, and says which folder it is."""
    path = _planted(tmp_path / "job", "exchange", kind, FOLDERS, victim)
    before = _state(victim)
    Hub(tmp_path / "job", 2)
    assert all(str(path) in said for said in _exchanged(tmp_path / "job").values())
    assert _state(victim) == before


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_is_planted_after_the_ranks_have_met_is_refused_too(
    kind: str, victim: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file is looked at when it is opened, not only before."""
    job = tmp_path / "job"
    _planted(job, "exchange/0.0", kind, KINDS, victim)
    before = _state(victim)
    Hub(job, 2)
    monkeypatch.setattr("opbuild.ranks.local.planted_files", lambda *_: "")
    monkeypatch.setattr("opbuild.ranks.hub.GRACE", 0.1)
    found = _exchanged(job)
    assert str(job / "exchange" / "0.0") in found[0]
    assert "rank 0 closed its connection" in found[1]
    assert _state(victim) == before


@pytest.mark.parametrize("kind", KINDS)
def test_ranks_do_not_meet_by_what_is_no_hub(kind: str, victim: Path, tmp_path: Path) -> None:
    """A rank says that it does not reach its launcher, at once."""
    _planted(tmp_path / "job", "hub", kind, KINDS, victim)
    before = _state(victim)
    assert all("does not reach its launcher" in said for said in _exchanged(tmp_path / "job").values())
    assert _state(victim) == before


@pytest.mark.parametrize("kind", KINDS)
def test_a_token_of_another_is_not_read(kind: str, victim: Path, tmp_path: Path) -> None:
    """Ranks of MPI on another host may find anything under the path of rank 0's folder."""
    path = _planted(tmp_path / "job", "token", kind, KINDS, victim)
    with pytest.raises(OSError, match=re.escape(str(path))):
        read_meeting_file(path, 100)


@pytest.mark.parametrize("kind", KINDS)
def test_folders_of_jobs_that_were_killed_go_with_what_was_put_there(
    kind: str, victim: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock that is none keeps a folder; nothing elsewhere is touched."""
    _planted(tmp_path / "opbuild-job-abcdefgh", "lock", kind, KINDS, victim)
    before = _state(victim)
    monkeypatch.setattr(job_folders, "YOUNG", -1.0)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    JobFolder().remove()
    assert _state(victim) == before
