"""This process's connection to the other ranks of its job: made once, used by operators and by programs."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING

import numpy as np

from opbuild.config import Config
from opbuild.errors import RankError
from opbuild.graph.types import START, WAIT, Array, Node
from opbuild.platform.paths import Path

if TYPE_CHECKING:
    from concurrent.futures import Future

    from opbuild.ranks.collective import Collective, Line, Transport
    from opbuild.ranks.mpi import MpiTransport


class Alone:
    """The one rank of a job of one."""

    rank = local_rank = 0
    size = local_size = 1
    serves_threads = False

    def run(self, collective: Collective, array: Array) -> Array:
        """Return the array: every operation of one rank does."""
        return array.copy()

    def close(self) -> None:
        """Do nothing."""


class _World:
    lock = threading.Lock()
    transport: Transport | None = None
    line: Line | None = None
    mpi: MpiTransport | None = None
    tickets = count()
    begun: dict[int, Future[Array]] = {}  # noqa: RUF012 - there is one world


_WORLD = _World()


def connect(config: Config) -> Transport:
    """Connect to the other ranks, once; waits until all ranks do.

    Raises:
        RankError: If nothing connects the ranks, or not all come.
    """
    with _WORLD.lock:
        if _WORLD.transport is None:
            _WORLD.transport = _connected(config)
        return _WORLD.transport


def connected() -> Transport:
    """Return the connection."""
    if _WORLD.transport is None:
        raise RankError("the ranks are not connected", "call opbuild.mindspore.communication.init() first")
    return _WORLD.transport


def disconnect() -> None:
    """Let go of the other ranks, if there are any."""
    with _WORLD.lock:
        transport, _WORLD.transport = _WORLD.transport, None
        line, _WORLD.line = _WORLD.line, None
    if line is not None:
        line.close()
    if transport is not None:
        transport.close()


def joined_folder() -> Path | None:
    """Return the folder that the ranks of MPI share, once they are connected."""
    return _WORLD.mpi.folder if _WORLD.mpi is not None else None


def fail(code: int) -> None:
    """Take note that this process fails: where nobody else ends the other ranks, its end does."""
    if _WORLD.mpi is not None:
        _WORLD.mpi.fail(code)


def evaluate_collective(node: Node, inputs: Sequence[Array | None]) -> list[Array]:
    """Return a rank's result of an operator of all ranks."""
    array = inputs[0]
    if array is None:
        raise RankError(f"{node.op_type} node {node.name!r} has no input", "give it a tensor")
    if node.op_type.endswith(WAIT):
        from opbuild.ranks.collective import result_of

        return [result_of(_WORLD.begun.pop(int(array)))]
    options = {key: node.attrs[key] for key in ("reduction", "root") if key in node.attrs}
    if not node.op_type.endswith(START):
        return [run(node.op_type, array, **options)]
    ticket = next(_WORLD.tickets)
    _WORLD.begun[ticket] = _line().start(*_described(node.op_type.removesuffix(START), array, **options))
    return [np.array(ticket, np.int64)]


def run(kind: str, array: Array, reduction: str = "", root: int = 0) -> Array:
    """Take part in an operation of all ranks.

    Args:
        kind: ``AllReduce``, ``AllGather``, ``ReduceScatter`` or ``Broadcast``.
        array: This rank's array.
        reduction: ``sum``, ``max``, ``min`` or ``prod``, for kinds that reduce.
        root: The rank whose array ``Broadcast`` gives to all.
    """
    return _line().run(*_described(kind, array, reduction, root))


def _described(kind: str, array: Array, reduction: str = "", root: int = 0) -> tuple[Collective, Array]:
    from opbuild.ranks.collective import Collective

    dense = np.ascontiguousarray(array).reshape(array.shape)
    return Collective(kind, str(dense.dtype), dense.shape, reduction, root), dense


def _line() -> Line:
    with _WORLD.lock:
        if _WORLD.line is None:
            from opbuild.ranks.collective import Line

            _WORLD.line = Line(connected())
        return _WORLD.line


def _connected(config: Config) -> Transport:
    if config.rank_id >= config.rank_size:
        raise RankError(f"RANK_ID is {config.rank_id} and RANK_SIZE is {config.rank_size}", "ranks are numbered from 0")
    if config.rank_size == 1:
        return Alone()
    from opbuild.ranks.hub import has_hub

    if config.job_folder is not None and has_hub(config.job_folder):
        from opbuild.ranks.local import LocalTransport

        return LocalTransport(config, config.job_folder)
    if config.by_mpi:
        from opbuild.ranks.mpi import MpiTransport

        _WORLD.mpi = MpiTransport(config)
        return _WORLD.mpi
    raise RankError(
        f"RANK_SIZE is {config.rank_size}, and nothing connects the ranks",
        "start them with 'opbuild launch -n N SCRIPT.py' or 'mpiexec -n N opbuild run SCRIPT.py'",
    )
