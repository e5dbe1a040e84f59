"""Operations of ranks together: the description that must be equal on all, the arithmetic, and their line."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import reduce
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from opbuild.graph.types import Array
from opbuild.platform.background import begin
from opbuild.platform.records import dataclass

if TYPE_CHECKING:
    from opbuild.graph.types import Array


SAME_EVERYWHERE = "every rank must do the same operations with equal shapes, types and reductions"
"""The advice where ranks differ."""

REDUCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "prod": np.multiply,
}
"""MindSpore's reductions."""


@dataclass(frozen=True)
class Collective:
    """One operation of all ranks.

    Attributes:
        kind: ``AllReduce``, ``AllGather``, ``ReduceScatter``, ``Broadcast`` or ``Barrier``.
        dtype: Element type of each rank's array.
        shape: Its shape.
        reduction: A key of ``REDUCTIONS``; empty where nothing is reduced.
        root: The rank that ``Broadcast`` takes from.
    """

    kind: str
    dtype: str = "uint8"
    shape: tuple[int, ...] = (0,)
    reduction: str = ""
    root: int = 0

    def __str__(self) -> str:
        if self.kind == "Barrier":
            return "the meeting of all ranks"
        option = self.reduction or (f"root_rank={self.root}" if self.kind == "Broadcast" else "")
        return f"{self.kind}({option}) of {self.dtype}[{','.join(map(str, self.shape))}]"


class Transport(Protocol):
    """The transport between the ranks of a job.

    Attributes:
        local_rank: This rank among those of its host.
        local_size: Their number.
        serves_threads: Whether an operation may run in another thread than the one that connected.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    serves_threads: bool

    def run(self, collective: Collective, array: Array) -> Array:
        """Take part in an operation with a dense array; return this rank's result, a fresh array."""
        ...

    def close(self) -> None:
        """Let go of the other ranks."""
        ...


def combine(collective: Collective, arrays: Sequence[Array], rank: int) -> Array:
    """Return a rank's result of a collective on all ranks' arrays, which are in the order of ranks.

    Sums and products of float16 are taken in float32 and rounded once.
    """
    if collective.kind == "AllGather":
        return np.concatenate(arrays)
    if collective.kind == "ReduceScatter":
        rows = arrays[0].shape[0] // len(arrays)
        arrays = [array[rank * rows : (rank + 1) * rows] for array in arrays]
    function = REDUCTIONS[collective.reduction]
    widened = widened_dtype(collective)
    if widened is not None:
        arrays = [array.astype(widened) for array in arrays]
    with np.errstate(all="ignore"):
        return np.asarray(reduce(function, arrays)).astype(collective.dtype, copy=False)


def widened_dtype(collective: Collective) -> np.dtype[Any] | None:
    """Return the type in which a reduction is computed, if it is not that of the arrays."""
    wide = collective.dtype == "float16" and collective.reduction in ("sum", "prod")
    return np.dtype(np.float32) if wide else None


_Task = tuple["Future[Array]", "Collective", "Array"]


def result_of(future: Future[Array]) -> Array:
    """Wait for an operation; return its result, or raise its error as if it had been raised here."""
    error = future.exception()
    if error is not None:
        raise error.with_traceback(None)  # what shows the user's line looks for it behind the innermost frames
    return future.result()


class Line:
    """Runs operations in the order in which they begin, those that are waited for later in a thread of its own.

    The thread ends with the process, whatever it waits for. Where there can be none, or the transport serves one thread
    only, an operation runs when it begins.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None  # noqa: TID251  its type alone
        self._latest: Future[Array] | None = None
        self._is_closed = False

    def start(self, collective: Collective, array: Array) -> Future[Array]:
        """Begin an operation; ``result_of`` gives its result. The array must stay as it is until that has ended."""
        future: Future[Array] = Future()
        with self._lock:
            if self._thread is None and self._transport.serves_threads:
                self._thread = begin(self._work, "opbuild-ranks")
            if self._thread is not None and not self._is_closed:
                self._latest = future
                self._tasks.put((future, collective, array))
                return future
        if self._latest is not None:
            self._latest.exception()  # it has ended then, and so have those before it
        self._do(future, collective, array)
        return future

    def run(self, collective: Collective, array: Array) -> Array:
        """Take part in an operation, behind those that have begun; see ``Transport.run``."""
        if self._latest is not None and not self._latest.done():
            return result_of(self.start(collective, array))
        return self._transport.run(collective, array)

    def close(self) -> None:
        """Let the thread end behind the operations that have begun; later ones run when they begin."""
        with self._lock:
            self._is_closed = True
            self._tasks.put(None)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            self._do(*task)

    def _do(self, future: Future[Array], collective: Collective, array: Array) -> None:
        try:
            future.set_result(self._transport.run(collective, array))
        except BaseException as error:  # raised again where the result is asked for
            future.set_exception(error)
