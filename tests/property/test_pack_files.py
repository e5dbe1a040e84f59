"""Pack files: what is packed is had again, whatever it is, in whatever order it is asked for; damage is told."""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from opbuild.kernel.artifact import OBJECT
from opbuild.store import pack
from opbuild.store.pack import FamilySources, Object, PackFile, pack_bytes
from support.packed import object_in
from support.samples import IDENTITY, LEVEL, conv, key_of

MOST = 12
"""Objects of a file."""

BLOCK = 600
"""Bytes of a block here, so that a few objects make several."""

DESCRIPTORS = [conv(number) for number in range(MOST + 1)]
KEYS = [key_of(desc, LEVEL, IDENTITY, "code") for desc in DESCRIPTORS]
"""Of one operator more than files have."""

contents = st.lists(
    st.binary(max_size=40)
    | st.builds(lambda piece, times: piece * times, st.binary(min_size=1, max_size=8), st.integers(1, 200)),
    min_size=1,
    max_size=MOST,
)
places = st.integers(0, MOST - 1)


def listed(objects: list[bytes]) -> list[Object]:
    """Return objects with descriptors and made-up pipelines."""
    return [
        Object(desc.components(), key.operator, f"{number:032x}", each, *launch_of(number))
        for number, (desc, key, each) in enumerate(zip(DESCRIPTORS, KEYS, objects, strict=False))
    ]


def launch_of(number: int) -> tuple[Any, ...]:
    """Return kind and launch of every third object, which is another device's."""
    return ("cubin", {"warps": number, "grid": [[number, 2]]}) if number % 3 == 2 else ()


def packed(objects: list[Object]) -> bytes:
    """Return the bytes of a pack file with these objects, in small blocks."""
    with mock.patch.object(pack, "_BLOCK", BLOCK):
        return pack_bytes(LEVEL.name, "conv", IDENTITY, FamilySources("code", "text"), objects)


@given(contents, st.lists(places, max_size=30))
@example([b"", b"x" * BLOCK, b"", b"y"], [3, 2, 1, 0])
def test_objects_are_had_again_in_any_order(objects: list[bytes], order: list[int]) -> None:
    """A block is unpacked as far as was asked for, and later further; a file is made again from what is read of it."""
    data = packed(listed(objects))
    file = PackFile(data)
    for number in (place % len(objects) for place in order):
        assert object_in(file, KEYS[number]) == objects[number]
        found = file.artifact(KEYS[number])
        assert found is not None
        assert (found.kind, found.launch) == (launch_of(number) or (OBJECT, {}))
    assert object_in(file, KEYS[-1]) is None
    listing = file.objects()
    assert [each.object for each in listing] == objects
    assert packed(listing) == data


@given(contents, st.integers(0, 10_000), st.integers(1, 255))
def test_of_a_damaged_file_each_object_is_the_right_one_or_none(objects: list[bytes], place: int, flip: int) -> None:
    """One byte is another one: what is unpacked is what was packed, or the file is said to be damaged."""
    damaged = bytearray(packed(listed(objects)))
    damaged[place % len(damaged)] ^= flip
    with suppress(ValueError):
        file = PackFile(bytes(damaged))
        for key, expected in zip(KEYS, objects, strict=False):
            with suppress(ValueError):
                assert object_in(file, key) == expected


@given(contents, st.binary(min_size=1, max_size=9), st.booleans(), places)
def test_a_block_that_is_not_as_long_as_its_list_says_is_damaged(
    objects: list[bytes], end: bytes, is_longer: bool, place: int
) -> None:
    """Its last object is none, and what lies before is the right one or none."""
    block, really = b"".join(objects), pack._compressed
    wrong = block + end if is_longer or not block else block[: -len(end)]
    with mock.patch.object(pack, "_compressed", lambda data: really(wrong if data == block else data)):
        file = PackFile(pack_bytes(LEVEL.name, "conv", IDENTITY, FamilySources("code", "text"), listed(objects)))
    with suppress(ValueError):
        assert object_in(file, KEYS[place % len(objects)]) == objects[place % len(objects)]
    with pytest.raises(ValueError, match="another size"):
        object_in(file, KEYS[len(objects) - 1])
