"""Single flight: of several processes of a host that lack the same one asks for it, the others take its result.

    <claims>/<name>.claim    locked by who asks; what it holds grows with each thing that came, and says how it ended

The lock ends with its process, so that nobody waits for the dead: whoever is next asks. Who has waited for long for one
that says nothing more goes on alone. Turns only save work: where there can be none everybody asks.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator

from opbuild.platform.paths import Path
from opbuild.store.claims import SUFFIX, close_claim, give_up, is_claim, lock_claim, open_claim

PATIENCE = 10.0
"""Seconds without a word of him who asks, after which nobody waits for him: twice what one request may take."""

_LEAST_PAUSE, _LONGEST_PAUSE, _PAUSES_GROW = 0.002, 0.05, 1.5
"""Seconds until it is looked again whether it is one's turn."""

_ENDED = b"ended "
_LENGTH = 64


class Flight:
    """The exclusive turn of a process at something that one process of a host does at a time.

    Args:
        descriptor: Of the file that it has locked; None: nobody waits for this process.
        said: How the turn ended that it waited for.

    Attributes:
        said: The same; empty: this process has to ask.
    """

    def __init__(self, descriptor: int | None = None, said: str = "") -> None:
        self._descriptor = descriptor
        self.said = said
        self._things = 0

    def came(self) -> None:
        """Tell those who wait that something came, for which it is worth to wait on; any thread may."""
        self._things += 1
        self._write(b"%d" % self._things)

    def end(self, said: str) -> None:
        """Tell those who wait how it ended, if that spares them to ask."""
        self._write(_ENDED + said.encode())

    def _write(self, text: bytes) -> None:
        if self._descriptor is not None:
            with contextlib.suppress(OSError):  # a full disk: the others ask themselves
                os.pwrite(self._descriptor, text.ljust(_LENGTH), 0)


class Flights:
    """Turns by locks on files in one folder. Threads and processes may share it.

    Args:
        folder: Where the files lie while somebody asks; made when it is needed.
        patience: For how long it is waited without a word; None: ``PATIENCE``.
        clock: Returns seconds.
        sleep: Lets so many of them pass.
    """

    def __init__(
        self,
        folder: Path,
        patience: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._folder = folder
        self._patience = PATIENCE if patience is None else patience
        self._clock, self._sleep = clock, sleep

    @contextlib.contextmanager
    def turn(self, name: str) -> Iterator[Flight]:
        """Wait until nobody else of this host asks for something, and give the turn to ask.

        Args:
            name: What is asked for; a file's name.
        """
        path = self._folder / (name + SUFFIX)
        descriptor = open_claim(path)
        if descriptor is None:
            yield Flight()
            return
        is_held = False
        try:
            is_held, said = self._waited(descriptor)
            yield Flight(descriptor if is_held else None, said)
        finally:
            if is_held:
                give_up(descriptor, path)
            else:
                close_claim(descriptor)

    def _waited(self, descriptor: int) -> tuple[bool, str]:
        """Wait; return whether this process has the turn now, and the last message of the one whom it waited for."""
        with contextlib.suppress(OSError):  # there are no locks here
            if not is_claim(descriptor):
                return False, ""
            said, has_waited, pause = b"", False, _LEAST_PAUSE
            since = self._clock()
            while not lock_claim(descriptor):
                now, has_waited = _said(descriptor), True
                if now != said:
                    said, since = now, self._clock()
                elif self._clock() - since >= self._patience:
                    return False, ""
                self._sleep(pause)
                pause = min(pause * _PAUSES_GROW, _LONGEST_PAUSE)
            is_gone = os.fstat(descriptor).st_nlink == 0  # removed by him who ended: others have another file now
            last = _said(descriptor)
            ended = last.removeprefix(_ENDED).decode() if has_waited and last.startswith(_ENDED) else ""
            if is_gone:
                return False, ended
            os.pwrite(descriptor, b"0".ljust(_LENGTH), 0)
            return True, ended
        return False, ""


def _said(descriptor: int) -> bytes:
    return os.pread(descriptor, _LENGTH, 0).strip()
