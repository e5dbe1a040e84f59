"""Errors that end no process: of threads, and where Python can only print them. They fail the test that sees them.

Of the tests' own process pytest knows them (``filterwarnings`` in pyproject.toml). Here is what other processes say.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Iterator
from typing import Any
from unittest import mock

_BEGINS = re.compile(r"^.*Exception (?:in thread|ignored) .*$", re.MULTILINE)
_INTERRUPTED = re.compile(r"^KeyboardInterrupt\b", re.MULTILINE)
"""The end of what somebody ended at the terminal, where Python waits for what is to be done at the end."""
_MOST = 8000
"""Characters of what is said after the first one that are looked at, and shown."""

_checks = [True]


def set_checking(*, on: bool) -> None:
    """Have processes of the tests that follow checked, or not."""
    _checks[0] = on


def unnoticed_errors(said: str | bytes | None) -> str:
    """Return the first error of opbuild's in a process's words that ended no more than a thread; empty: none."""
    text = said.decode(errors="replace") if isinstance(said, bytes) else said or ""
    begins = [begin.start() for begin in _BEGINS.finditer(text)]
    errors = (text[start:end][:_MOST] for start, end in zip(begins, [*begins[1:], None], strict=False))
    return next((error for error in errors if "opbuild" in error and not _INTERRUPTED.search(error)), "")


def check_said(*streams: str | bytes | None) -> None:
    """Fail if a process says that something ended unnoticed.

    Raises:
        AssertionError: With what it says.
    """
    for said in streams if _checks[0] else ():
        assert not (error := unnoticed_errors(said)), error


@contextlib.contextmanager
def checking_processes() -> Iterator[None]:
    """Check what each process says whose pipes are read to their ends, as ``subprocess.run`` does, too."""
    communicate = subprocess.Popen.communicate

    def checked(process: Any, *arguments: Any, **named: Any) -> tuple[Any, Any]:
        said = communicate(process, *arguments, **named)
        check_said(*said)
        return said

    with mock.patch.object(subprocess.Popen, "communicate", checked):
        yield
