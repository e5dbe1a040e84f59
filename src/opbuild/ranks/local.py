"""Ranks of one host that ``opbuild launch`` started: data in files of the job's folder, meetings at the hub.

Each rank has two files that it alone writes and all map. It writes its data into one, says so at the hub, and when all
have done so reads the others'. The next operation uses the other file: when a rank passes a meeting, all have finished
reading what was written before the meeting that preceded it, so the first file is free again.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import select
import threading

import numpy as np

from opbuild.config import Config
from opbuild.errors import RankError
from opbuild.graph.types import Array
from opbuild.platform.files.meeting import open_meeting_file, planted_files
from opbuild.platform.paths import Path
from opbuild.ranks.collective import SAME_EVERYWHERE, Collective, combine
from opbuild.ranks.hub import CHUNK, GO, LOST, NO, connect
from opbuild.ranks.progress import Waiter

EXCHANGE = "exchange"
SLOTS = 2


class LocalTransport:
    """Reaches the other ranks of ``opbuild launch``.

    Raises:
        RankError: If the launcher is gone, or not all ranks come.
    """

    serves_threads = True

    def __init__(self, config: Config, folder: Path) -> None:
        self.rank = self.local_rank = config.rank_id
        self.size = self.local_size = config.rank_size
        self._waiter = Waiter(config, folder)
        self._folder = folder / EXCHANGE
        self._maps: dict[tuple[int, int], mmap.mmap] = {}
        self._count = 0
        self._unread = b""
        self._lock = threading.Lock()
        if problem := planted_files(self._folder):
            raise RankError(f"rank {self.rank} cannot exchange data: {problem}", "give each job a folder of its own")
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            self._link = connect(folder)
        except OSError as error:
            raise RankError(
                f"rank {self.rank} does not reach its launcher: {error.strerror or error}",
                "start the ranks with 'opbuild launch'",
            ) from error
        self._send(str(self.rank))
        self._synchronize(Collective("Barrier"))

    def run(self, collective: Collective, array: Array) -> Array:
        """Take part in an operation; see ``Transport``."""
        with self._lock:
            slot, self._count = self._count % SLOTS, self._count + 1
            if collective.kind != "Broadcast" or collective.root == self.rank:
                self._write(slot, array)
            self._synchronize(collective)
            return self._read(collective, slot, array)

    def close(self) -> None:
        """Let go of the launcher and of the files."""
        self._link.close()
        for mapped in self._maps.values():
            with contextlib.suppress(BufferError):
                mapped.close()
        self._maps.clear()

    def _read(self, collective: Collective, slot: int, own: Array) -> Array:
        """Return this rank's result from the files of all."""
        if collective.kind == "Broadcast":
            return self._array_of_rank(collective.root, slot, own).copy()
        arrays = [own if rank == self.rank else self._array_of_rank(rank, slot, own) for rank in range(self.size)]
        return combine(collective, arrays, self.rank)

    def _array_of_rank(self, rank: int, slot: int, like: Array) -> Array:
        if not like.nbytes:
            return np.zeros_like(like)
        mapped = self._map(rank, slot, like.nbytes)
        return np.frombuffer(mapped, like.dtype, like.size).reshape(like.shape)

    def _write(self, slot: int, array: Array) -> None:
        if array.nbytes:
            flat = np.frombuffer(self._map(self.rank, slot, array.nbytes), np.uint8, array.nbytes)
            flat[:] = array.reshape(-1).view(np.uint8)

    def _map(self, rank: int, slot: int, nbytes: int) -> mmap.mmap:
        """Return a rank's file of a slot, mapped with at least so many bytes; this rank's own grows to them."""
        mapped = self._maps.get((rank, slot))
        if mapped is not None and len(mapped) >= nbytes:
            return mapped
        path = self._folder / f"{rank}.{slot}"
        own = rank == self.rank
        try:
            file = open_meeting_file(path, os.O_RDWR | os.O_CREAT if own else os.O_RDONLY)
            try:
                if own:
                    os.posix_fallocate(file, 0, nbytes)  # a full disk is an error here, not a signal when it is written
                access = mmap.ACCESS_WRITE if own else mmap.ACCESS_READ
                mapped = mmap.mmap(file, os.fstat(file).st_size, access=access)
                if len(mapped) < nbytes:
                    raise OSError(errno.EINVAL, f"it has {len(mapped)} bytes")
            finally:
                os.close(file)
        except (OSError, ValueError) as error:
            raise RankError(
                f"rank {self.rank} cannot exchange {nbytes} bytes through {path}: {error}",
                "free space in the folder for temporary files, or set TMPDIR to another",
            ) from error
        self._maps[rank, slot] = mapped
        return mapped

    def _synchronize(self, collective: Collective) -> None:
        """Wait until all ranks are here and do the same."""
        self._send(str(collective))
        self._waiter.wait(str(collective), self._receive_answer)
        line, _, self._unread = self._unread.partition(b"\n")
        answer = line.decode(errors="replace")
        if answer.startswith(LOST):
            raise RankError(answer.removeprefix(LOST), "look at what it said itself, and start the job again")
        if answer != GO:
            raise RankError(answer.removeprefix(NO), SAME_EVERYWHERE)

    def _send(self, line: str) -> None:
        """Say something, unless the launcher has let go of this rank: then it has said why."""
        with contextlib.suppress(OSError):
            self._link.sendall(f"{line}\n".encode())

    def _receive_answer(self, seconds: float) -> bool:
        if b"\n" in self._unread:
            return True
        poll = select.poll()
        poll.register(self._link, select.POLLIN)
        if not poll.poll(1e3 * seconds):
            return False
        try:
            data = self._link.recv(CHUNK)
        except OSError:
            data = b""
        if not data:
            raise RankError(f"rank {self.rank}: the launcher of this job is gone", "start the job again")
        self._unread += data
        return b"\n" in self._unread
