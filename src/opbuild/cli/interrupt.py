"""Ctrl-C: answered at once, whatever a command is doing, and ended with one line.

The first one raises ``KeyboardInterrupt``, so that what is open is closed. While a library works the interpreter does
not get to that: then a thread ends the process, since all that opbuild keeps may be killed at any moment. A second
Ctrl-C ends it at once. A command that has something to bring to its end may have the first one ask for that.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from opbuild.platform.background import begin
from opbuild.text.visible import visible

INTERRUPTED = 130
"""The exit code of a command that was interrupted."""

GRACE = 0.3
"""Seconds in which a command may close what is open before the process is ended."""

_MOMENT = 0.02
"""Seconds until a signal is sent again, when what dropped it has returned."""


class Interrupted(BaseException):
    """The user interrupted the command; all that was open is closed.

    It stands for ``KeyboardInterrupt`` above the commands: click would make an empty line and an error of that.
    """


class Interrupts:
    """The handling of Ctrl-C in a process that is a command; ``happened`` since the process watches for it."""

    def __init__(self) -> None:
        self.happened = False
        self.left = False
        self._watching = False
        self._wakeup = -1
        self._describe: Callable[[], str] | None = None
        self._stopping = threading.Lock()
        self._last = threading.Lock()

    def watch(self) -> None:
        """Answer from now on, unless this process was told to ignore Ctrl-C."""
        if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            return
        self._watching = True
        read, write = os.pipe()
        os.set_blocking(write, False)
        self._wakeup = write
        self._listen()
        begin(lambda: self._answer(read), "opbuild-interrupt")

    def _listen(self) -> None:
        signal.signal(signal.SIGINT, self._on_signal)
        signal.set_wakeup_fd(self._wakeup, warn_on_full_buffer=False)

    @contextmanager
    def asking_first(self, text: str) -> Iterator[Callable[[], bool]]:
        """Let the first Ctrl-C inside the block ask for its end: it says a text; the function given tells whether.

        The next one, and where Ctrl-C is not watched each, is as ever.
        """
        asked = threading.Event()

        def ask(*_: object) -> None:
            asked.set()
            self._listen()
            _say(text)

        if self._watching:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGINT, ask)
        try:
            yield asked.is_set
        finally:
            if self._watching:
                self._listen()

    def leave(self) -> None:
        """Leave Ctrl-C to Python: the program of the user's that runs now may have its own use for it."""
        if signal.getsignal(signal.SIGINT) == self._on_signal:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            self._watching = False
            self.left = True

    def repeat(self) -> None:
        """Send the program the signal once more, a moment later: it was raised where Python drops errors."""
        main = threading.main_thread().ident
        if main is not None:
            timer = threading.Timer(_MOMENT, signal.pthread_kill, (main, signal.SIGINT))
            timer.daemon = True
            timer.start()

    @contextmanager
    def described(self, describe: Callable[[], str]) -> Iterator[None]:
        """Say what ``describe`` returns, perhaps in another thread, if a command is interrupted inside the block."""
        later, self._describe = self._describe, describe
        try:
            yield
        except KeyboardInterrupt:
            text = self._text()
            later = lambda: text  # noqa: E731  what is said last
            raise
        finally:
            self._describe = later

    def say_last(self) -> None:
        """Say, once, that the command was interrupted and how far it got."""
        if not self._watching or self._last.acquire(blocking=False):
            with suppress(OSError, ValueError):
                print(visible(self._line()), file=sys.stderr, flush=True)
        self._describe = None

    def settle(self) -> int:
        """Say the last line and let the process end undisturbed; return its exit code."""
        self.say_last()
        return self.ignore(INTERRUPTED)

    def ignore(self, code: int) -> int:
        """Let nothing disturb the end of the process, whose work is done; return its exit code."""
        if self._watching:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        return code

    def _line(self) -> str:
        text = self._text()
        return f"interrupted: {text}" if text else "interrupted"

    def _text(self) -> str:
        with suppress(Exception):  # it may look at what is just being changed
            return self._describe() if self._describe is not None else ""
        return ""

    def _on_signal(self, *_: object) -> None:
        if self.happened:
            self._end()
        self.happened = True
        self._say_stopping()
        raise KeyboardInterrupt

    def _answer(self, read: int) -> None:
        """Wait for the signal beside the command, which may be where no handler is called."""
        while os.read(read, 1) != bytes([signal.SIGINT]):
            pass
        self._say_stopping()
        again = threading.Event()

        def wait_for_another() -> None:
            while os.read(read, 1) != bytes([signal.SIGINT]):
                pass
            again.set()

        begin(wait_for_another, "opbuild-interrupt")
        again.wait(GRACE)
        self._end()

    def _say_stopping(self) -> None:
        if self._stopping.acquire(blocking=False):
            _say("stopping")

    def _end(self) -> None:
        if self._last.acquire(blocking=False):
            _say(self._line())
        os._exit(INTERRUPTED)


def is_interrupt(error: BaseException | None) -> bool:
    """Whether an error is an interrupt, or was made of one, as Python below 3.12 does in ``__set_name__``."""
    return error is not None and (isinstance(error, KeyboardInterrupt) or is_interrupt(error.__cause__))


INTERRUPTS = Interrupts()
"""Those of this process."""


def _say(line: str) -> None:
    """Write a line to the standard error, over a bar that may be drawn there and hides the cursor."""
    start = "\r\x1b[2K\x1b[?25h" if os.isatty(2) else ""
    with suppress(OSError):
        os.write(2, f"{start}{line}\n".encode(errors="replace"))
