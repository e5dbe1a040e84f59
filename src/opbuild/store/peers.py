"""Peers: the folders of a job's other ranks, from which this rank takes entries, and where its claims lie.

Ranks are found by the names of their folders, ``rank_<id>`` beside one's own, or ``device<k>/rank_<id>`` beside
``device<k>``. A job with a folder of its own (``OPBUILD_JOB_DIR``) finds those elsewhere too:

    <job>/stores/<rank>    JSON: for each cache of the rank the absolute paths of kernel_meta and network_meta
    <job>/claims/          who compiles what
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Iterator
from typing import Any

from opbuild.config import Config
from opbuild.platform.files.meeting import planted_files, publish_meeting_file, read_meeting_file
from opbuild.platform.files.trust import MEMO, parse_json
from opbuild.platform.paths import Path
from opbuild.platform.records import NamedTuple

CLAIMS = ".opbuild_claims"
"""The folder of claims beside the ranks' folders; it is there only while operators are compiled."""

MOST_PEERS = 64
"""Ranks whose folders are looked at, those after one's own first: one day looking takes longer than compiling."""

_RANK = re.compile(r"rank_([0-9]{1,10})")
_DEVICE = re.compile(r"device[0-9]{1,10}")
_NAMED = re.compile(r"rank_|device|[0-9]")
_STORES = "stores"
_SETTLED = 10**8
"""Nanoseconds after which another change of a folder surely gives it another time."""


class Peer(NamedTuple):
    """Another rank's folders: of operators, and of networks and the compiler's runtime library."""

    rank: int
    kernel_meta: Path
    network_meta: Path

    def __str__(self) -> str:
        return f"rank {self.rank}"


def claims_folder(config: Config) -> Path:
    """Return the folder where all that may need the same operators claim them."""
    if config.job_folder is not None:
        return config.job_folder / "claims"
    if config.op_compiler_cache_dir is not None:
        return config.cache_folder / CLAIMS
    base = config.cache_folder.parent
    return (base.parent if _DEVICE.fullmatch(base.name) else base) / CLAIMS


def job_problem(folder: Path) -> str:
    """Return the files of somebody else where a job's ranks tell each other their progress; empty if there are none."""
    return planted_files(*(folder / name for name in ("claims", "progress", _STORES)))


def announce(config: Config) -> None:
    """Tell the job's other ranks where this one keeps its operators; a folder that refuses tells nobody."""
    if config.job_folder is None:
        return
    path = config.job_folder / _STORES / str(config.rank_id)
    own = [str(config.kernel_meta), str(config.network_meta)]
    known = _read(path)
    if own not in known:
        with contextlib.suppress(OSError, ValueError):
            publish_meeting_file(path, json.dumps([*known, own]).encode())


class Peers:
    """Finds the other ranks, again at each call, since they come while this one builds."""

    def __init__(self, config: Config) -> None:
        self._own = config.kernel_meta
        self._rank = config.rank_id
        self._job = _Listing(config.job_folder / _STORES) if config.job_folder is not None else None
        self._beside = _PeerFolder(config.cache_folder.parent) if config.op_compiler_cache_dir is None else None
        self._announced: dict[str, list[list[str]]] = {}

    def __call__(self) -> tuple[Peer, ...]:
        """Return the other ranks, those after this one first."""
        found = {peer.kernel_meta: peer for peer in (*self._by_job(), *self._by_name())}
        found.pop(self._own, None)
        ranked = sorted(found.values(), key=lambda peer: (peer.rank <= self._rank, peer.rank, peer.kernel_meta))
        return tuple(ranked[:MOST_PEERS])

    def _by_job(self) -> Iterator[Peer]:
        if self._job is None:
            return
        names, changed = self._job.names()
        if changed:
            self._announced = {name: _read(self._job.folder / name) for name in names if name.isdecimal()}
        for name, stores in self._announced.items():
            for kernel_meta, network_meta in stores:
                yield Peer(int(name), Path(kernel_meta), Path(network_meta))

    def _by_name(self) -> Iterator[Peer]:
        for rank, folder in self._beside.ranks() if self._beside is not None else ():
            yield Peer(rank, folder / "kernel_meta", folder / "network_meta")


class _PeerFolder:
    """The folders of ranks beside one's own."""

    def __init__(self, base: Path) -> None:
        self._bases = {base.name: _Listing(base)}
        self._devices = _Listing(base.parent) if _DEVICE.fullmatch(base.name) else None

    def ranks(self) -> Iterator[tuple[int, Path]]:
        if self._devices is not None:
            names, changed = self._devices.names()
            for name in names if changed else ():
                if _DEVICE.fullmatch(name):
                    self._bases.setdefault(name, _Listing(self._devices.folder / name))
        for listing in self._bases.values():
            for name in listing.names()[0]:
                if match := _RANK.fullmatch(name):
                    yield int(match[1]), listing.folder / name


class _Listing:
    """The names in a folder, which need not be there, read again when it has changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._state: tuple[int, int] | None = None
        self._names: tuple[str, ...] = ()

    def names(self) -> tuple[tuple[str, ...], bool]:
        """Return the names, and whether they were read again."""
        try:
            stat = self.folder.stat()
            if self._state == (stat.st_ino, stat.st_mtime_ns):
                return self._names, False
            self._names = tuple(name for name in os.listdir(self.folder) if _NAMED.match(name))  # noqa: PTH208  names only
        except OSError:
            self._state, self._names = None, ()
            return (), True
        settled = abs(time.time_ns() - stat.st_mtime_ns) > _SETTLED
        self._state = (stat.st_ino, stat.st_mtime_ns) if settled else None
        return self._names, True


def _read(path: Path) -> list[list[str]]:
    """Return the announcements of a rank; none if they cannot be read."""
    try:
        said = parse_json(read_meeting_file(path, MEMO))
    except (OSError, ValueError):
        return []
    return [pair for pair in said if _is_pair(pair)] if isinstance(said, list) else []


def _is_pair(said: Any) -> bool:
    return (
        isinstance(said, list)
        and len(said) == 2
        and all(isinstance(path, str) and path.startswith("/") and "\0" not in path for path in said)
    )
