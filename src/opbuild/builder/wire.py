"""Messages between the builder and its compile server: a JSON header, then bytes as they are.

    4 bytes: length of the header    4 bytes: length of the payload    header    payload

Little-endian, both lengths unsigned. No pickle: neither side can be made to run what the other sends.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from typing import Any

from opbuild.errors import CompileError
from opbuild.kernel.artifact import OBJECT, Artifact
from opbuild.platform.files.trust import NETWORK, RECORD, parse_json
from opbuild.text.canonical import canonical_json

_LENGTHS = struct.Struct("<II")

_FIELDS: dict[object, dict[str, type | tuple[type, ...]]] = {
    "ready": {},
    "note": {"text": str},
    "started": {"id": int},
    "done": {"id": int, "milliseconds": (int, float), "changed": str, "pipeline": str, "files": list},
    "failed": {"id": int, "step": str, "text": str},
    "fatal": {"text": str, "hint": str},
    "compiling": {},
    "object": {"pipeline": str, "files": list},
    "error": {"step": str, "text": str},
}
"""What is said by whoever compiles, a server or a process of one operator, and what each has."""


def pack(header: dict[str, Any], *payload: bytes) -> bytes:
    """Return one message; the pieces of its payload follow each other."""
    text, content = json.dumps(header).encode(), b"".join(payload)
    return _LENGTHS.pack(len(text), len(content)) + text + content


def write_all(descriptor: int, data: bytes) -> None:
    """Write bytes to a pipe, however few it takes at once."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


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
            if header_size > RECORD or payload_size > NETWORK:
                raise ValueError(f"a message of {header_size} and {payload_size} bytes is none")
            end = _LENGTHS.size + header_size + payload_size
            if len(self._buffer) < end:
                break
            middle = _LENGTHS.size + header_size
            header = parse_json(bytes(self._buffer[_LENGTHS.size : middle]))
            if not isinstance(header, dict):
                raise ValueError("a message's header is not a JSON object")
            messages.append((header, bytes(self._buffer[middle:end])))
            del self._buffer[:end]
        return messages


def artifact_files(artifact: Artifact) -> dict[str, bytes]:
    """Return an artifact as the files of an answer, by suffix: its bytes, and its kind if that is no object.

    Raises:
        CompileError: If it is none.
    """
    if not isinstance(artifact, Artifact):
        raise CompileError(f"the compiler returned {type(artifact).__name__}")
    files = {".o": artifact.data}
    if artifact.kind != OBJECT:
        files[_LAUNCHED] = canonical_json([artifact.kind, dict(artifact.launch)]).encode()
    return files


def artifact_of(files: Mapping[str, bytes]) -> Artifact | None:
    """Return the artifact in the files of an answer; None if there is none.

    Raises:
        ValueError: If they are something else.
    """
    if ".o" not in files:
        return None
    if _LAUNCHED not in files:
        return Artifact(files[".o"])
    told = parse_json(files[_LAUNCHED])
    if not isinstance(told, list) or [*map(type, told)] != [str, dict]:
        raise ValueError("it is not said how it is launched")
    return Artifact(files[".o"], "", *told)


_LAUNCHED = ".launch"
"""The suffix of the file with what an artifact is that is no object, and how it is launched."""


def check_answer(header: dict[str, Any], payload: bytes) -> None:
    """Refuse an answer that no compiler gives.

    Raises:
        ValueError: If a field is missing or is something else, or the files are not what was sent.
    """
    kind = header.get("kind")
    fields = _FIELDS.get(kind) if isinstance(kind, str) else None
    if fields is None or not isinstance(header.get("id", 0), int):
        raise ValueError("an answer is of no kind")
    if not all(isinstance(header.get(name), each) for name, each in fields.items()):
        raise ValueError("an answer lacks what it must have")
    if "files" in fields and not _are_files(header["files"], len(payload)):
        raise ValueError("an answer has other files than it says")


def _are_files(files: list[Any], nbytes: int) -> bool:
    named = [each for each in files if isinstance(each, list) and list(map(type, each)) == [str, int] and each[1] >= 0]
    has_object = not named or ".o" in dict(named)  # none where the pipeline is known
    return named == files and sum(size for _, size in named) == nbytes and has_object
