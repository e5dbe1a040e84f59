"""The line in which a process's operations of all ranks stand: one after the other, beside the thread that asks."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TYPE_CHECKING

from opbuild.platform.background import begin

if TYPE_CHECKING:
    from opbuild.graph.types import Array
    from opbuild.ranks.collective import Collective, Transport

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

    Args:
        transport: Runs each.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None  # noqa: TID251  its type alone
        self._latest: Future[Array] | None = None

    def start(self, collective: Collective, array: Array) -> Future[Array]:
        """Begin an operation; ``result_of`` gives its result.

        Args:
            collective: The operation.
            array: This rank's dense array; it must stay as it is until the operation has ended.
        """
        future: Future[Array] = Future()
        with self._lock:
            if self._thread is None and self._transport.serves_threads:
                self._thread = begin(self._work, "opbuild-ranks")
            if self._thread is not None:
                self._latest = future
                self._tasks.put((future, collective, array))
                return future
        self._do(future, collective, array)
        return future

    def run(self, collective: Collective, array: Array) -> Array:
        """Take part in an operation, behind those that have begun; see ``Transport.run``."""
        if self._latest is not None and not self._latest.done():
            return result_of(self.start(collective, array))
        return self._transport.run(collective, array)

    def close(self) -> None:
        """Let the thread end behind the operations that have begun."""
        self._tasks.put(None)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            self._do(*task)

    def _do(self, future: Future[Array], collective: Collective, array: Array) -> None:
        try:
            future.set_result(self._transport.run(collective, array))
        except BaseException as error:  # raised again where the result is asked for
            future.set_exception(error)
