"""Ranks that ``mpiexec`` or ``srun`` started: collectives of MPI, each preceded by a comparison of operations.

All calls are the ones that do not block, so that a rank that waits can sleep, look at what the others say, and give
up.
"""

from __future__ import annotations

import atexit
import secrets
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from opbuild.config import Config
from opbuild.errors import RankError
from opbuild.graph.types import Array
from opbuild.platform.files.meeting import publish_meeting_file, read_meeting_file
from opbuild.platform.paths import Path
from opbuild.ranks.collective import SAME_EVERYWHERE, Collective, combine, widened_dtype
from opbuild.ranks.hub import difference
from opbuild.ranks.launcher import JobFolder, remove_folder
from opbuild.ranks.progress import Waiter, progress_of
from opbuild.text.plural import counted

DESCRIPTION = 256
"""Bytes in which ranks tell each other what they do."""

SPINS = 200
SLEEPS = (50e-6, 1e-3)
"""Tests without a pause, then the first and the longest pause between tests, in seconds."""


def load_mpi() -> Any:
    """Return ``mpi4py.MPI``; loading it initialises MPI."""
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise RankError(
            f"ranks that MPI started communicate through mpi4py, which cannot be loaded: {error}",
            "install the extra: pip install 'opbuild[mpi]', or start the ranks with 'opbuild launch', which needs none",
        ) from error
    return MPI


class MpiTransport:
    """Reaches the other ranks through MPI.

    Attributes:
        folder: The job's folder if this rank shares one with rank 0.
        serves_threads: Whether MPI, as it was initialised, lets threads take turns.

    Raises:
        RankError: If MPI is not there, is another one than the one that started the ranks, or not all ranks come.
    """

    def __init__(self, config: Config) -> None:
        self._mpi = load_mpi()
        self._lock = threading.Lock()
        world = self._mpi.COMM_WORLD
        if world.size != config.rank_size:
            library = self._mpi.Get_library_version().splitlines()[0]
            raise RankError(
                f"the job has {counted(config.rank_size, 'rank')}, and MPI finds {world.size}",
                f"use the mpiexec that belongs to mpi4py's library ({library.strip()}); "
                "RANK_SIZE, if set, must be the number of processes",
            )
        self._failed = 0
        self._shared: Path | None = None
        self.folder = config.job_folder
        self.rank, self.size = config.rank_id, config.rank_size
        self.serves_threads = self._mpi.Query_thread() >= self._mpi.THREAD_SERIALIZED
        atexit.register(self._end)  # before MPI's own end, which waits for all ranks
        self._watch_exceptions()
        self._waiter = Waiter(config, config.job_folder)
        self._wait(world.Ibarrier(), str(Collective("Barrier")))
        self._comm = world.Split(0, config.rank_id)
        ranks = self._comm.allgather(config.rank_id)
        if ranks != list(range(config.rank_size)):
            raise RankError(f"RANK_ID of the ranks is {', '.join(map(str, ranks))}", "number them from 0")
        host = self._comm.Split_type(self._mpi.COMM_TYPE_SHARED)
        self.local_rank, self.local_size = host.rank, host.size
        if self.folder is None:
            self.folder = self._waiter.folder = self._share_folder()

    def run(self, collective: Collective, array: Array) -> Array:
        """Take part in an operation; see ``Transport``."""
        with self._lock:
            self._compare(collective)
            return self._operate(collective, array)

    def close(self) -> None:
        """Let go of the other ranks; MPI itself ends with the process."""
        if self.folder is not None:
            progress_of(self.folder, self.rank).say(state="ended")

    def fail(self, code: int) -> None:
        """Let the process's end end all ranks with this exit code, as other ranks may wait for this one."""
        self._failed = code

    def _operate(self, collective: Collective, array: Array) -> Array:
        comm, kind = self._comm, collective.kind
        if kind == "Barrier":
            return array
        if kind == "Broadcast":
            result = array.copy()
            self._wait(comm.Ibcast(self._bytes(result), collective.root), str(collective))
            return result
        is_float = collective.dtype.startswith("float")
        if kind == "AllGather" or (is_float and collective.reduction in ("max", "min")):  # MPI's forget NaN
            return self._gathered(collective, array)
        sent = np.ascontiguousarray(array, widened_dtype(collective) or array.dtype)
        shape = array.shape if kind == "AllReduce" else (array.shape[0] // self.size, *array.shape[1:])
        result = np.empty(shape, sent.dtype)
        function = comm.Iallreduce if kind == "AllReduce" else comm.Ireduce_scatter_block
        self._wait(function(sent, result, getattr(self._mpi, collective.reduction.upper())), str(collective))
        return result.astype(array.dtype, copy=False)

    def _gathered(self, collective: Collective, array: Array) -> Array:
        """Return this rank's result, computed from the arrays of all ranks."""
        every = np.empty((self.size, *array.shape), array.dtype)
        self._wait(self._comm.Iallgather(self._bytes(array), self._bytes(every)), str(collective))
        return combine(collective, list(every), self.rank)

    def _bytes(self, array: Array) -> list[Any]:
        return [array.reshape(-1).view(np.uint8), self._mpi.BYTE]

    def _compare(self, collective: Collective) -> None:
        """Meet all ranks, and see that they do the same; if one does not, all of them fail."""
        own = np.zeros(DESCRIPTION, np.uint8)
        text = str(collective).encode()[:DESCRIPTION]
        own[: len(text)] = np.frombuffer(text, np.uint8)
        every = np.empty((self.size, DESCRIPTION), np.uint8)
        self._wait(self._comm.Iallgather(self._bytes(own), self._bytes(every)), str(collective))
        if (every != own).any():
            texts = {rank: each.tobytes().rstrip(b"\0").decode(errors="replace") for rank, each in enumerate(every)}
            raise RankError(difference(texts), SAME_EVERYWHERE)

    def _wait(self, request: Any, what: str) -> None:
        def ready(seconds: float) -> bool:
            end, pause = time.monotonic() + seconds, SLEEPS[0]
            for _ in range(SPINS):
                if request.Test():
                    return True
            while not request.Test():
                if time.monotonic() >= end:
                    return False
                time.sleep(pause)
                pause = min(2 * pause, SLEEPS[1])
            return True

        self._waiter.wait(what, ready)

    def _share_folder(self) -> Path | None:
        """Return a folder that rank 0 makes; None if this rank is on another host and does not see it."""
        own = ("", "")
        if self.rank == 0:
            folder, token = JobFolder(), secrets.token_hex(16)
            publish_meeting_file(folder.path / "token", token.encode())
            atexit.register(folder.remove)
            own = (str(folder.path), token)
        path, token = self._comm.bcast(own)
        try:
            is_shared = read_meeting_file(Path(path) / "token", len(token)) == token.encode()
        except OSError:
            is_shared = False
        self._shared = Path(path) if is_shared else None
        return self._shared

    def _watch_exceptions(self) -> None:
        """Take note of an exception that nobody catches."""
        before: Callable[..., Any] = sys.excepthook

        def note(*details: Any) -> None:
            before(*details)
            self.fail(1)

        sys.excepthook = note

    def _end(self) -> None:
        if self._failed:
            if self._shared is not None:
                remove_folder(self._shared)
            sys.stdout.flush()
            sys.stderr.flush()
            self._mpi.COMM_WORLD.Abort(self._failed)
        else:
            self.close()
