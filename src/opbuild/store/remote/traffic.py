"""Traffic: the requests to a remote store, and the bytes that came and went."""

from __future__ import annotations

from opbuild.platform.locks import Lock


class Traffic:
    """The traffic to and fro: requests, and bytes of contents. Threads may share it."""

    def __init__(self) -> None:
        self.requests = self.bytes_read = self.bytes_written = 0
        self._lock = Lock()

    def count(self, requests: int = 0, bytes_read: int = 0, bytes_written: int = 0) -> None:
        """Add to it."""
        with self._lock:
            self.requests += requests
            self.bytes_read += bytes_read
            self.bytes_written += bytes_written
