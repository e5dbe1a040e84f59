"""Profile: when a session was made and how long its calls took, as a file of Chrome's trace events.

ONNX Runtime's has each operator too; ``opbuild profile`` tells those.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from opbuild.platform.paths import Path


class Profile:
    """The profile of a session.

    Attributes:
        start: Nanoseconds of ``time.monotonic_ns`` when it began.

    Args:
        prefix: What the file's name begins with.
    """

    def __init__(self, prefix: str) -> None:
        self.start = time.monotonic_ns()
        self._path = Path(f"{prefix}_{time.strftime('%Y-%m-%d_%H-%M-%S')}.json")
        self._events: list[str] = []

    @contextmanager
    def event(self, name: str) -> Iterator[None]:
        """Write down how long the block takes."""
        began = time.monotonic_ns()
        try:
            yield
        finally:
            now = time.monotonic_ns()
            fields = {
                "cat": "Session",
                "pid": os.getpid(),
                "tid": threading.get_native_id(),
                "dur": (now - began) // 1000,
                "ts": (began - self.start) // 1000,
                "ph": "X",
                "name": name,
                "args": {},
            }
            self._events.append(json.dumps(fields))

    def write(self) -> str:
        """Write the file and return its name.

        Raises:
            OSError: If it cannot be written.
        """
        self._path.write_text("[\n" + ",\n".join(self._events) + "\n]\n", encoding="utf-8")
        return str(self._path)
