"""Counting the lines of Python that something runs: a measure of its work that is the same on every machine."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any


def lines_of(do: Callable[[], object]) -> int:
    """Return how many lines a function runs, also in threads that it starts; each turn of a loop is counted."""
    count = 0

    def trace(_frame: Any, event: str, _argument: Any) -> Any:
        nonlocal count
        count += event != "return"
        return trace

    before = sys.gettrace()
    threading.settrace(trace)
    sys.settrace(trace)
    try:
        do()
    finally:
        sys.settrace(before)
        threading.settrace(None)  # type: ignore[arg-type]
    return count
