"""Names in Redis, asked for by its own protocol: OpenDAL can read and write it, but not list it."""

from __future__ import annotations

import socket
from typing import Any, BinaryIO

_COUNT = "1000"
"""Names that Redis looks at for one answer."""

_MOST = 64 * 2**20
"""Bytes of a part of an answer."""


def names_in(connection: socket.socket, folder: str, database: str, user: str, password: str) -> tuple[str, ...]:
    """Return the names of the objects in a folder, which ends with a slash, sorted.

    Raises:
        PermissionError: If Redis wants other credentials.
        OSError: If it says what it should not, or breaks off.
    """
    if password:
        _ask(connection, "AUTH", *([user] if user else []), password)
    _ask(connection, "SELECT", database)
    found, cursor = set[str](), "0"
    while True:
        cursor, names = _ask(connection, "SCAN", cursor, "MATCH", f"{folder}*", "COUNT", _COUNT)
        found.update(name.removeprefix(folder) for name in names)
        if cursor == "0":
            return tuple(sorted(name for name in found if "/" not in name))


def _ask(connection: socket.socket, *words: str) -> Any:
    """Return the answer of Redis to a command: text, a number or a list of these."""
    parts = [f"${len(word.encode())}\r\n{word}\r\n" for word in words]
    connection.sendall(f"*{len(words)}\r\n{''.join(parts)}".encode())
    with connection.makefile("rb") as answer:
        return _parsed(answer)


def _parsed(answer: BinaryIO) -> Any:
    line = answer.readline(_MOST)
    kind, rest = line[:1], line[1:].strip().decode(errors="replace")
    if kind == b"-":
        raise PermissionError(rest.split()[0]) if rest.startswith(("NOAUTH", "WRONGPASS")) else OSError(rest)
    if kind in (b"+", b":"):
        return rest
    size = int(rest) if kind in (b"$", b"*") and rest.isdigit() else -1
    if not 0 <= size <= _MOST:
        raise OSError("it answers what it should not")
    if kind == b"*":
        return [_parsed(answer) for _ in range(size)]
    return answer.read(size + 2)[:-2].decode(errors="replace")
