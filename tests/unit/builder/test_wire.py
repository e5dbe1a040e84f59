"""Messages between the builder and its server."""

from __future__ import annotations

import pytest

from opbuild.builder.wire import Unpacker, pack


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_messages_come_through_however_the_stream_is_cut(size: int) -> None:
    """Headers and payloads are whole again, in order, whatever pieces the pipe delivers."""
    messages = [({"id": 1}, b""), ({"text": "ü\n"}, b"\0\1\2" * 100), ({}, b"x")]
    stream = b"".join(pack(header, payload) for header, payload in messages)
    unpacker = Unpacker()
    received = [
        message for start in range(0, len(stream), size) for message in unpacker.feed(stream[start : start + size])
    ]
    assert received == messages


def test_what_is_no_message_is_refused() -> None:
    """A stream that lost its place is an error, not a wait for ever."""
    with pytest.raises(ValueError, match="not a JSON object"):
        Unpacker().feed(b"\2\0\0\0\0\0\0\0[]")
    with pytest.raises(ValueError, match="Expecting value"):
        Unpacker().feed(b"\2\0\0\0\0\0\0\0!!")
