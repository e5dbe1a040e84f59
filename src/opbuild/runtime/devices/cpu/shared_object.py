"""Shared objects in ELF's form: where the parts of a library are laid, and the tables by which a loader knows them.

Source: System V ABI, chapter 5. There are no section headers: loaders read segments.
"""

from __future__ import annotations

import struct

from opbuild.platform.records import dataclass, field
from opbuild.runtime.devices.cpu.objects import ARRAYS, FINI_ARRAY, INIT_ARRAY, NO_BITS, ObjectSection
from opbuild.runtime.devices.cpu.parts import Linked, Referent

_HEADER = struct.Struct("<4sBBB9xHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_SHARED = 3
_LOAD, _DYNAMIC, _STACK, _READ_ONLY = 1, 2, 0x6474E551, 0x6474E552
_RUN, _WRITE, _READ = 1, 2, 4
_GLOBAL, _WEAK = 1 << 4, 2 << 4
_SOMEWHERE = 1
"""The number of a section that defines a symbol; which one does not count."""

_HASH, _STRINGS, _SYMBOLS, _RELOCATIONS = 4, 5, 6, 7
_RELOCATIONS_SIZE, _RELOCATION_SIZE, _STRINGS_SIZE, _SYMBOL_SIZE = 8, 9, 10, 11
_ARRAY_TAGS = {INIT_ARRAY: (25, 27), FINI_ARRAY: (26, 28)}


@dataclass(eq=False)
class _Segment:
    """Bytes with the same rights; addresses are in the memory of a process, from where the library begins."""

    flags: int
    address: int
    offset: int
    file_size: int = 0
    size: int = 0


@dataclass(eq=False)
class _FileLayout:
    """The segments so far.

    Each begins where the file has come to, and one page later in memory: no page has two rights, and none is padding in
    the file.
    """

    page: int
    segments: list[_Segment] = field(default_factory=list)

    def begin(self, flags: int) -> None:
        """Begin a segment."""
        offset = self.file_size
        self.segments.append(_Segment(flags, offset + self.page * len(self.segments), offset))

    @property
    def file_size(self) -> int:
        """How long the file is."""
        return self.segments[-1].offset + self.segments[-1].file_size if self.segments else 0

    def take(self, size: int, alignment: int = 8, *, in_file: bool = True) -> tuple[int, int]:
        """Return the address and the offset of so many bytes more of the latest segment."""
        segment = self.segments[-1]
        address = -(-(segment.address + segment.size) // alignment) * alignment
        segment.size = address + size - segment.address
        if in_file:
            segment.file_size = segment.size
        return address, segment.offset + address - segment.address

    def place(self, sections: list[ObjectSection]) -> None:
        """Give sections their places."""
        for section in sections:
            section.address, section.offset = self.take(
                section.size, section.alignment, in_file=section.kind != NO_BITS
            )

    def fill_page(self) -> None:
        """Let the latest segment end with a page, so that all of it can become read-only."""
        segment = self.segments[-1]
        segment.size = -(segment.address + segment.size) // self.page * -self.page - segment.address


class SharedObject:
    """A library's file.

    Args:
        linked: Its parts.
    """

    def __init__(self, linked: Linked) -> None:
        self._linked, self._machine = linked, linked.machine
        self._exports = linked.exports()
        self._names = [*linked.imports, *self._exports]
        self._numbers = {name: number for number, name in enumerate(self._names, 1)}
        self._strings = b"\0" + b"".join(name.encode() + b"\0" for name in self._names)
        self._layout = _FileLayout(self._machine.page)
        count = len(linked.table) + sum(use.kind is None for use in linked.uses)
        self._relocations_size = _RELOCATION.size * count
        self._lay_out()
        self._image = bytearray(self._layout.file_size)

    def _lay_out(self) -> None:
        linked, take = self._linked, self._layout.take
        groups: list[list[ObjectSection]] = [[], [], [], []]
        for section in linked.sections:
            groups[_group(section)].append(section)
        constants, code, completed, variables = groups
        self._arrays = {kind: [each for each in completed if each.kind == kind] for kind in ARRAYS}
        symbols = 1 + len(self._names)
        self._layout.begin(_READ)
        take(_HEADER.size + _SEGMENT.size * (6 + bool(variables)))
        self._hash = take(8 + 8 * symbols)
        self._symbols = take(_SYMBOL.size * symbols)
        self._relocations = take(self._relocations_size)
        self._string_table = take(len(self._strings))
        self._layout.place(constants)
        self._layout.begin(_READ | _RUN)
        self._layout.place(code)
        self._stubs = take(self._machine.stub * len(linked.stubs), 16)
        self._layout.begin(_READ | _WRITE)
        self._layout.place([each for each in completed if each.kind not in ARRAYS])
        for sections in self._arrays.values():
            self._layout.place(sections)
        self._table = take(8 * len(linked.table))
        self._dynamic_size = 16 * (9 + 2 * sum(map(bool, self._arrays.values())))
        self._dynamic = take(self._dynamic_size)
        self._layout.fill_page()
        if variables:
            self._layout.begin(_READ | _WRITE)
            self._layout.place(sorted(variables, key=lambda each: each.kind == NO_BITS))

    def data(self) -> bytes:
        """Return its bytes.

        Raises:
            UnreachableError: If a target is further away than an instruction can say.
        """
        for section in self._linked.sections:
            self._image[section.offset : section.offset + len(section.data)] = section.data
        self._write_headers()
        self._write_symbols()
        self._write_code()
        self._write_relocations()
        self._write_dynamic()
        return bytes(self._image)

    def _write_headers(self) -> None:
        segments = [(_LOAD, each.flags, each) for each in self._layout.segments]
        dynamic = _Segment(0, *self._dynamic, *2 * [self._dynamic_size])
        parts = [*segments, (_DYNAMIC, _READ | _WRITE, dynamic), (_READ_ONLY, _READ, self._layout.segments[2])]
        _HEADER.pack_into(
            self._image, 0, b"\x7fELF", 2, 1, 1, _SHARED, self._linked.elf_machine, 1, 0, _HEADER.size, 0,
            self._linked.flags, _HEADER.size, _SEGMENT.size, len(parts) + 1, 64, 0, 0,
        )  # fmt: skip
        for number, (kind, flags, part) in enumerate(parts):
            page = self._machine.page if kind == _LOAD else 8
            _SEGMENT.pack_into(
                self._image, _HEADER.size + _SEGMENT.size * number,
                kind, flags, part.offset, part.address, part.address, part.file_size, part.size, page,
            )  # fmt: skip
        place = _HEADER.size + _SEGMENT.size * len(parts)
        _SEGMENT.pack_into(self._image, place, _STACK, _READ | _WRITE, 0, 0, 0, 0, 0, 16)

    def _write_symbols(self) -> None:
        count = len(self._names) + 1
        buckets, chains, start = [0] * count, [0] * count, 1
        for number, name in enumerate(self._names, 1):
            if number <= len(self._linked.imports):
                fields = (_WEAK if self._linked.imports[name] else _GLOBAL, 0, 0, 0, 0)
            else:
                section, symbol = self._exports[name]
                fields = (_GLOBAL | symbol.kind, 0, _SOMEWHERE, section.address + symbol.value, symbol.size)
            _SYMBOL.pack_into(self._image, self._symbols[1] + _SYMBOL.size * number, start, *fields)
            start += len(name.encode()) + 1
            bucket = _hash(name) % count
            chains[number], buckets[bucket] = buckets[bucket], number
        struct.pack_into(f"<{2 + 2 * count}I", self._image, self._hash[1], count, count, *buckets, *chains)
        place = self._string_table[1]
        self._image[place : place + len(self._strings)] = self._strings

    def _address(self, target: Referent) -> int:
        if target.section is not None:
            return target.section.address + target.value
        return self._stubs[0] + self._machine.stub * self._linked.stubs[target.name]

    def _write_code(self) -> None:
        entries = {target: self._table[0] + 8 * number for target, number in self._linked.table.items()}
        for name, number in self._linked.stubs.items():
            address, offset = (start + self._machine.stub * number for start in self._stubs)
            self._machine.write_stub(self._image, offset, entries[Referent(None, 0, name)], address)
        for use in self._linked.uses:
            if use.kind is not None:
                target = entries[use.target] if use.kind.by_table else self._address(use.target)
                at = use.section.address + use.offset
                use.kind.write(self._image, use.section.offset + use.offset, target + use.addend, at)

    def _write_relocations(self) -> None:
        found = [
            self._completed(use.section.address + use.offset, use.target, use.addend, self._machine.absolute)
            for use in self._linked.uses
            if use.kind is None
        ]
        found += [
            self._completed(self._table[0] + 8 * number, target, 0, self._machine.entry)
            for target, number in self._linked.table.items()
        ]
        for number, fields in enumerate(found):
            _RELOCATION.pack_into(self._image, self._relocations[1] + _RELOCATION.size * number, *fields)

    def _completed(self, place: int, target: Referent, addend: int, kind: int) -> tuple[int, int, int]:
        """Return the loader's relocation of an address at a place."""
        if target.section is not None:
            return place, self._machine.relative, target.section.address + target.value + addend
        return place, self._numbers[target.name] << 32 | kind, addend

    def _write_dynamic(self) -> None:
        entries = [
            (_HASH, self._hash[0]),
            (_STRINGS, self._string_table[0]),
            (_SYMBOLS, self._symbols[0]),
            (_STRINGS_SIZE, len(self._strings)),
            (_SYMBOL_SIZE, _SYMBOL.size),
            (_RELOCATIONS, self._relocations[0]),
            (_RELOCATIONS_SIZE, self._relocations_size),
            (_RELOCATION_SIZE, _RELOCATION.size),
        ]
        for kind, sections in self._arrays.items():
            if sections:
                start, size = _ARRAY_TAGS[kind]
                entries += [(start, sections[0].address), (size, sum(each.size for each in sections))]
        for number, entry in enumerate([*entries, (0, 0)]):
            struct.pack_into("<QQ", self._image, self._dynamic[1] + 16 * number, *entry)


def _group(section: ObjectSection) -> int:
    """Return which segment has a section: constants, code, what the loader completes, variables."""
    if section.is_code:
        return 1
    if not section.is_written:
        return 0
    return 2 if section.kind in ARRAYS or section.name.startswith(".data.rel.ro") else 3


def _hash(name: str) -> int:
    """Return the hash of a symbol, as loaders compute it."""
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ high >> 24) & ~high
    return value & 0xFFFFFFFF
