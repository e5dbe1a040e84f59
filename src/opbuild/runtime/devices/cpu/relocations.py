"""Relocations of the machines that code is made for: what each asks for, and how an instruction holds the answer.

Sources: the ELF supplements of the System V ABI for AMD64 and AArch64.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping

from opbuild.platform.records import dataclass

Write = Callable[[bytearray, int, int, int], None]
"""Writes an answer into an image, given the place in the image, the target's address, and the place's address."""


class UnreachableError(ValueError):
    """The target is further away than the instruction can say."""


@dataclass(frozen=True)
class Kind:
    """A kind of relocations.

    Attributes:
        write: Writes the answer.
        by_table: Whether what is meant is not the target, but its entry in the table of addresses.
    """

    write: Write
    by_table: bool = False


@dataclass(frozen=True)
class LinkRules:
    """The rules by which code is linked for a machine.

    Attributes:
        kinds: The kinds of relocations by number, but for ``absolute``.
        absolute: The number of an address of 64 bits, which the loader completes.
        entry: The number of the loader's relocation for an entry of the table of addresses.
        relative: The number of the loader's relocation for an address in the library itself.
        page: Bytes of the largest page that there is.
        stub: Bytes of a jump through the table of addresses.
        write_stub: Writes one; the target is the entry.
    """

    kinds: Mapping[int, Kind]
    absolute: int
    entry: int
    relative: int
    page: int
    stub: int
    write_stub: Write


def _within(value: int, bits: int) -> int:
    """Return the lowest bits of a signed number that has no more."""
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise UnreachableError(f"a target is {value} bytes away")
    return value & (1 << bits) - 1


def _combine(image: bytearray, place: int, bits: int) -> None:
    """Set bits of an instruction of 32 bits."""
    struct.pack_into("<I", image, place, struct.unpack_from("<I", image, place)[0] | bits)


# -- AMD64 -------------------------------------------------------------------------------------------------------------


def _distance(image: bytearray, place: int, target: int, at: int) -> None:
    struct.pack_into("<I", image, place, _within(target - at, 32))


def _amd64_stub(image: bytearray, place: int, entry: int, at: int) -> None:
    image[place : place + 2] = b"\xff\x25"  # jmp *entry(%rip)
    _distance(image, place + 2, entry, at + 6)


_BY_TABLE = Kind(_distance, by_table=True)
_AMD64 = LinkRules(
    {2: Kind(_distance), 4: Kind(_distance), 9: _BY_TABLE, 41: _BY_TABLE, 42: _BY_TABLE},
    absolute=1, entry=6, relative=8, page=1 << 12, stub=8, write_stub=_amd64_stub,
)  # fmt: skip

# -- AArch64 -----------------------------------------------------------------------------------------------------------

_PAGE = 12


def _page_distance(image: bytearray, place: int, target: int, at: int) -> None:
    pages = _within((target >> _PAGE) - (at >> _PAGE), 21)
    _combine(image, place, (pages & 3) << 29 | pages >> 2 << 5)


def _low_bits(scale: int) -> Write:
    """Return a writer of the place of a target in its page, in units of ``2 ** scale`` bytes."""

    def write(image: bytearray, place: int, target: int, _at: int) -> None:
        low = target & (1 << _PAGE) - 1
        if low & (1 << scale) - 1:
            raise UnreachableError(f"a target is not at a multiple of {1 << scale} bytes")
        _combine(image, place, low >> scale << 10)

    return write


def _arm_call(image: bytearray, place: int, target: int, at: int) -> None:
    _combine(image, place, _within(target - at, 28) >> 2)


def _arm_stub(image: bytearray, place: int, entry: int, at: int) -> None:
    struct.pack_into("<III", image, place, 0x90000010, 0xF9400211, 0xD61F0220)  # adrp x16; ldr x17, [x16]; br x17
    _page_distance(image, place, entry, at)
    _low_bits(3)(image, place + 4, entry, at + 4)


_ARM = LinkRules(
    {
        261: Kind(_distance),
        275: Kind(_page_distance),
        276: Kind(_page_distance),
        277: Kind(_low_bits(0)),
        278: Kind(_low_bits(0)),
        284: Kind(_low_bits(1)),
        285: Kind(_low_bits(2)),
        286: Kind(_low_bits(3)),
        299: Kind(_low_bits(4)),
        282: Kind(_arm_call),
        283: Kind(_arm_call),
        311: Kind(_page_distance, by_table=True),
        312: Kind(_low_bits(3), by_table=True),
    },
    absolute=257, entry=1025, relative=1027, page=1 << 16, stub=12, write_stub=_arm_stub,
)  # fmt: skip

LINK_RULES = {62: _AMD64, 183: _ARM}
"""By ELF's numbers."""
