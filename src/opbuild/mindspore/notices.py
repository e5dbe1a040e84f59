"""Notices: facts that a user should know though nothing failed."""

from __future__ import annotations

import sys


def warn(text: str) -> None:
    """Write a warning to the standard error stream, where there is one."""
    if sys.stderr is not None:
        sys.stderr.write(f"opbuild: warning: {text}\n")
