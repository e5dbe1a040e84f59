"""Messages between the builder and its compile server: a JSON header, then bytes as they are.

    4 bytes: length of the header    4 bytes: length of the payload    header    payload

Little-endian, both lengths unsigned. No pickle: neither side can be made to run what the other sends.
"""

from __future__ import annotations

import json
import os
import struct
from typing import Any

_LENGTHS = struct.Struct("<II")


def pack(header: dict[str, Any], *payload: bytes) -> bytes:
    """Return one message; the pieces of its payload follow each other."""
    text, content = json.dumps(header).encode(), b"".join(payload)
    return _LENGTHS.pack(len(text), len(content)) + text + content


def write_all(descriptor: int, data: bytes) -> None:
    """Write bytes to a pipe, however few it takes at once."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _header(text: bytes) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("a message's header is nested too deeply") from None


class Unpacker:
    """Cuts a stream of bytes into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[dict[str, Any], bytes]]:
        """Add bytes and return the messages that are complete.

        Raises:
            ValueError: If the stream is not one of messages.
        """
        self._buffer += data
        messages = []
        while len(self._buffer) >= _LENGTHS.size:
            header_size, payload_size = _LENGTHS.unpack_from(self._buffer)
            end = _LENGTHS.size + header_size + payload_size
            if len(self._buffer) < end:
                break
            middle = _LENGTHS.size + header_size
            header = _header(bytes(self._buffer[_LENGTHS.size : middle]))
            if not isinstance(header, dict):
                raise ValueError("a message's header is not a JSON object")
            messages.append((header, bytes(self._buffer[middle:end])))
            del self._buffer[:end]
        return messages
