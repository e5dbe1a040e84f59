"""Protobuf's wire format: the fields of a message and how they are written.

See https://protobuf.dev/programming-guides/encoding. Nothing here knows a message: who reads one names its fields.
"""

from __future__ import annotations

from collections.abc import Iterator

from opbuild.platform.records import NamedTuple

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Kinds of fields."""


class Field(NamedTuple):
    """A field: where its tag, its value and the next field begin."""

    number: int
    kind: int
    tag: int
    value: int
    after: int


def fields(data: memoryview, start: int, end: int) -> Iterator[Field]:
    """Yield a message's fields.

    Raises:
        IndexError: If the message ends too early.
        ValueError: If it is no message.
    """
    position = start
    while position < end:
        tag, value = read_varint(data, position)
        after = value
        kind = tag & 7
        if kind == VARINT:
            after = read_varint(data, value)[1]
        elif kind == BYTES:
            length, value = read_varint(data, value)
            after = value + length
        elif kind in (FIXED32, FIXED64):
            after = value + (4 if kind == FIXED32 else 8)
        else:
            raise ValueError(f"kind {kind} of a field at {position}")
        if after > end:
            raise IndexError(f"a field at {position} ends at {after}, beyond {end}")
        yield Field(tag >> 3, kind, position, value, after)
        position = after


def read_varint(data: memoryview, position: int) -> tuple[int, int]:
    """Return a number and where it ends.

    Raises:
        IndexError: If the data end too early.
        ValueError: If it has more than 64 bits.
    """
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise ValueError(f"a number at {position} is too long")


def varint(value: int) -> bytes:
    """Return a number of at least 0 as it is written."""
    digits = bytearray()
    while value >= 0x80:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    digits.append(value)
    return bytes(digits)


def delimited(number: int, value: bytes) -> bytes:
    """Return a field of bytes, a text or a message."""
    return varint(number << 3 | BYTES) + varint(len(value)) + value
