"""Reading an object's symbols."""

from __future__ import annotations

import pytest

from opbuild.kernel.artifact import NotAnObjectError, read_symbols
from support.fake_compiler import fake_object


def test_symbols_are_read() -> None:
    """Defined and undefined global symbols are told apart and sorted."""
    symbols = read_symbols(fake_object(b"code", ("b", "a"), ("y", "x")))
    assert symbols.defined == ("a", "b")
    assert symbols.undefined == ("x", "y")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "empty"),
        (b"not an object at all", "does not begin as an ELF file"),
        (b"\x7fELF\x02\x02" + bytes(100), "little-endian"),
        (b"\x7fELF", "little-endian"),
        (fake_object(b"c", ("a",))[:100], "cut or damaged"),
        (b"\x7fELF\x02\x01" + bytes(10) + b"\x03" + bytes(100), "not a relocatable object"),
    ],
)
def test_what_is_no_object_is_refused_with_the_reason(data: bytes, why: str) -> None:
    """Bytes that are not a whole relocatable object are refused (F05, F07)."""
    with pytest.raises(NotAnObjectError, match=why):
        read_symbols(data)


def test_no_prefix_of_an_object_raises_anything_else() -> None:
    """However an object is cut, the answer is the same error."""
    whole = fake_object(b"code" * 10, ("kernel",), ("malloc",))
    for size in range(len(whole)):
        with pytest.raises(NotAnObjectError):
            read_symbols(whole[:size])
