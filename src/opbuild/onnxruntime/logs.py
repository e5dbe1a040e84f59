"""Messages of a session: which of them are shown, by ONNX Runtime's levels, and where."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from opbuild.events import Event, Warned, is_new
from opbuild.platform.records import NamedTuple
from opbuild.text.plural import counted
from opbuild.text.visible import visible

if TYPE_CHECKING:
    from opbuild.api import Network

VERBOSE, INFO, WARNING, ERROR, FATAL = range(5)
"""How grave a message is."""

PROCESS = -1
"""The level of a session that has none of its own."""

Callback = Callable[[int, str, str, str, str], object]

_INVALID = "Invalid logging severity. 0:Verbose, 1:Info, 2:Warning, 3:Error, 4:Fatal"

_SAID = set[str]()


class _Default:
    """The level and the callback of a process."""

    level: int = WARNING
    callback: Callback | None = None


class Log(NamedTuple):
    """The log of a session or of a call.

    Attributes:
        level: Messages below it are not shown.
        logid: What stands before each.
    """

    level: int = PROCESS
    logid: str = ""

    @property
    def is_default(self) -> bool:
        """Whether it shows what is shown anyway."""
        return self.level in (PROCESS, WARNING) and not self.logid and is_default()

    def shows(self, severity: int) -> bool:
        """Return whether messages of a severity are shown."""
        return severity >= (_Default.level if self.level == PROCESS else self.level)

    def say(self, severity: int, text: str) -> None:
        """Show a message, unless it is below the level."""
        if not self.shows(severity):
            return
        text = visible(text)
        if _Default.callback is None or not _told(severity, self.logid, text):
            _show(severity, f"{self.logid}: {text}" if self.logid else text)

    def observe(self, event: Event) -> None:
        """Say what the user should know while a network is built."""
        if isinstance(event, Warned):
            warn_once(event.message, self)

    def describe(self, network: Network) -> None:
        """Say where a network is from."""
        if self.shows(INFO):
            built, reused = counted(network.report.built, "operator"), network.report.reused
            self.say(INFO, f"network {network.name}: {built} compiled, {reused} reused")


def is_default() -> bool:
    """Return whether the process has the level and the callback that it began with."""
    return _Default.level == WARNING and _Default.callback is None


def warn_once(text: str, log: Log | None = None) -> None:
    """Warn, unless the same was shown already."""
    log = log or Log()
    if log.shows(WARNING) and is_new(text, _SAID):
        log.say(WARNING, text)


def _told(severity: int, logid: str, text: str) -> bool:
    """Tell the callback; return whether it took it."""
    callback: Any = _Default.callback
    try:
        callback(severity, "onnxruntime", logid, "opbuild", text)
    except Exception as error:  # whatever it is, the message is shown, and the call goes on
        _show(ERROR, f"the callback of the logger failed: {error!r}")
        return False
    return True


def _show(severity: int, text: str) -> None:
    if severity >= WARNING:
        warnings.warn(f"opbuild: {text}", UserWarning, stacklevel=_frames_inside())
        return
    import logging  # a start shows nothing

    logging.getLogger("opbuild").log(logging.INFO if severity == INFO else logging.DEBUG, "%s", text)


def _frames_inside() -> int:
    """Return the number of frames from the caller to the first that is not opbuild's."""
    count, frame = 0, sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith("opbuild."):
        count, frame = count + 1, frame.f_back
    return count + 1


def set_default_logger_severity(severity: int) -> None:
    """Take how grave a message must be to be shown, from 0 to 4.

    Raises:
        RuntimeError: If it is another number.
    """
    if not VERBOSE <= severity <= FATAL:
        raise RuntimeError(_INVALID)
    _Default.level = int(severity)


def set_default_logger_verbosity(verbosity: int) -> None:
    """Warn that verbose messages have no levels."""
    if verbosity:
        warn_once("set_default_logger_verbosity is ignored: verbose messages have no levels")


def set_default_logger_callback(callback: Callback | None, severity: int = WARNING) -> None:
    """Have messages told to a function instead of Python's warnings and ``logging``.

    Args:
        callback: Takes the severity, the category, the session's ``logid``, the place in the code and the text; None:
            none is told any more.
        severity: How grave a message must be.

    Raises:
        RuntimeError: If the severity is another number, or the callback is no function.
    """
    if not VERBOSE <= severity <= FATAL:
        raise RuntimeError(_INVALID)
    if callback is not None and not callable(callback):
        raise RuntimeError("callback must be a callable")
    _Default.callback = callback
    if callback is not None:
        _Default.level = int(severity)
