"""The process's context on its GPU: one stream of requests, what is given back, and when there is no use in going on.

Whatever is asked for is served in order, on one stream. Any thread may ask: the context is made the thread's own first,
since another library may have made another one so. A process that was forked has no context: CUDA's does not live on.
"""

from __future__ import annotations

import ctypes
import os
from collections import deque
from functools import partial
from itertools import count
from typing import Any

from opbuild.errors import RunError
from opbuild.platform.finalizers import Finalizer, WeakValues
from opbuild.platform.locks import Lock
from opbuild.runtime.devices.cuda.driver import (
    FATAL,
    FORKED_HINT,
    OUT_OF_MEMORY,
    Driver,
    DriverError,
    check_card,
    find_card,
    no_memory,
)
from opbuild.text.plural import counted, first_of

_NON_BLOCKING = 1
_NO_TIMES = 2  # CU_EVENT_DISABLE_TIMING
_REMEMBERED = 256
"""Kernels that an error of one of them can name: those asked for last."""


class Context:
    """The primary context of the process's GPU, which other libraries in the process share.

    Args:
        library: The driver's library; default: the system's.

    Raises:
        TargetError: If there is no GPU that is served.
        DriverError: If it gives no context.

    Attributes:
        card: The GPU.
        stream: Where requests are served in order.
        recording: A stream on which nothing runs: calls are recorded there as graphs.
        is_recorded: Held by who records.
        asked: The kernels that were asked for since something was awaited, the last ones.
    """

    def __init__(self, library: Any = None) -> None:
        self.driver = Driver(library)
        self.card = find_card(self.driver)
        check_card(self.card)
        self.is_recorded = Lock()
        self.asked = deque[str](maxlen=_REMEMBERED)
        self._lost: RunError | None = None
        self._held: dict[int, Finalizer] = {}
        self._numbers = count()
        doing = f"{self.card.name} cannot be used"
        self._handle = self.handle("cuDevicePrimaryCtxRetain", self.card.number, doing=doing)
        self.call("cuCtxSetCurrent", self._handle, doing=doing)
        self.stream, self.recording = (self.handle("cuStreamCreate", _NON_BLOCKING, doing=doing) for _ in range(2))
        _CONTEXTS[id(self)] = self

    def enter(self) -> None:
        """Make the context this thread's own.

        Raises:
            RunError: If it is lost.
        """
        if self._lost is not None:
            raise type(self._lost)(self._lost.message, self._lost.hint)
        self.call("cuCtxSetCurrent", self._handle)

    def call(self, name: str, *arguments: Any, doing: str = "") -> None:
        """Call a function of the driver; see ``Driver.call``."""
        code = self.driver.functions[name](*arguments)
        if code:
            raise self.error(name, code, doing)

    def handle(self, name: str, *arguments: Any, doing: str = "") -> int:
        """Return the handle, or the address, that a function writes to where its first argument points."""
        made = ctypes.c_uint64()
        self.call(name, ctypes.byref(made), *arguments, doing=doing)
        return made.value

    def error(self, name: str, code: int, doing: str = "") -> DriverError:
        """Return the error of a function of the driver.

        One after which nothing is served may come of any kernel that was not awaited, and comes again from now on.
        """
        is_fatal = code in FATAL
        error = self.driver.error(name, code, (self._suspects() or doing) if is_fatal else doing)
        if is_fatal and self._lost is None:
            self._lost = RunError(f"the GPU's context was lost before: {error.message}", error.hint)
        return error

    def wait(self) -> None:
        """Wait until all is done that was asked for.

        Raises:
            DriverError: If something failed.
        """
        self.call("cuStreamSynchronize", self.stream)
        self.asked.clear()

    def order(self, first: int, second: int) -> None:
        """Have what a stream is asked for from now on done after all that another one was asked for."""
        if first == second:
            return
        event = self.handle("cuEventCreate", _NO_TIMES)
        try:
            self.call("cuEventRecord", event, first)
            self.call("cuStreamWaitEvent", second, event, 0)
        finally:
            self.driver.functions["cuEventDestroy_v2"](event)  # the driver keeps it until nothing waits for it

    def allocate(self, nbytes: int) -> int:
        """Return the address of memory that holds anything.

        Raises:
            RunError: If there is none.
        """
        try:
            return self.handle("cuMemAlloc_v2", max(nbytes, 1))
        except DriverError as error:
            if error.code != OUT_OF_MEMORY:
                raise
            raise no_memory(self.driver, nbytes, error) from None

    def give_back(self, owner: object, function: str, handle: int, *, is_shared: bool = False) -> None:
        """Have a function of the driver called with a handle once its owner is gone and what is under way is done.

        Where other libraries have used it, that is all that was asked for on any stream.
        """
        functions, number = self.driver.functions, next(self._numbers)
        wait = partial(functions["cuStreamSynchronize"], self.stream)
        self._held[number] = Finalizer(
            owner,
            partial(functions["cuCtxSetCurrent"], self._handle),
            functions["cuCtxSynchronize"] if is_shared else wait,
            partial(functions[function], handle),
            partial(self._held.pop, number, None),
        )

    def leave_behind(self) -> None:
        """Give nothing back any more, in a process that was forked: all belongs to its parent."""
        for each in self._held.values():
            each.detach()
        self._held.clear()
        message = "this process was forked from one that uses the GPU, and cannot use it: its context is the parent's"
        self._lost = RunError(message, FORKED_HINT)

    def _suspects(self) -> str:
        """Return the kernels that were asked for and not awaited, one of which failed."""
        names = [*dict.fromkeys(self.asked)]
        if len(names) == 1:
            return f"kernel {names[0]} failed"
        return f"one of {counted(len(names), 'kernel')} failed ({first_of(names, 5)})" if names else ""


_CONTEXTS = WeakValues[int, Context]()


def _after_fork() -> None:
    for _, context in _CONTEXTS.items():
        context.leave_behind()


os.register_at_fork(after_in_child=_after_fork)
