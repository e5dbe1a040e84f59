"""Relocatable ELF objects of 64 bits, as the linker reads them: sections, symbols, relocations.

Source: System V ABI, chapters 4 and 5.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from opbuild.platform.files.trust import OBJECT
from opbuild.platform.records import NamedTuple, dataclass

_HEADER = struct.Struct("<16xHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")

_RELOCATABLE = 1
_SYMBOL_TABLE, _RELOCATIONS, NO_BITS, INIT_ARRAY, FINI_ARRAY = 2, 4, 8, 14, 15
ARRAYS = (INIT_ARRAY, FINI_ARRAY)
"""Types of sections with functions that run when a library is opened and closed."""
_WRITTEN, _LOADED, _CODE, _THREAD_LOCAL = 1, 2, 4, 0x400
_LOCAL, _WEAK = 0, 2
_FIRST_RESERVED = 0xFF00
_COMMON = 0xFFF2
_MOST_ALIGNED = 1 << 12


class ObjectError(ValueError):
    """The bytes are no object that can be linked; the message says why."""


class Relocation(NamedTuple):
    """A place in a section that depends on where a symbol is."""

    offset: int
    number: int
    symbol: int
    addend: int


@dataclass(eq=False)
class ObjectSection:
    """A section that is loaded.

    Attributes:
        number: Its number in the object.
        name: Its name.
        kind: Its type, e.g. ``NO_BITS``.
        flags: What it is for.
        data: Its bytes; none if it is zeroed.
        size: How many there are.
        alignment: In bytes.
        address: Where it is in the library, once that is laid out.
        offset: Where it is in the library's file.
    """

    number: int
    name: str
    kind: int
    flags: int
    data: bytes
    size: int
    alignment: int
    address: int = 0
    offset: int = 0

    @property
    def is_code(self) -> bool:
        """Whether it is run."""
        return bool(self.flags & _CODE)

    @property
    def is_written(self) -> bool:
        """Whether it is changed, if only by the loader."""
        return bool(self.flags & _WRITTEN)


@dataclass(frozen=True, eq=False)
class ObjectSymbol:
    """A symbol of an object.

    Attributes:
        section: The number of the section that has it; 0 if another object defines it.
        value: Its place in the section.
    """

    name: str
    kind: int
    is_local: bool
    is_weak: bool
    section: int
    value: int
    size: int


@dataclass(frozen=True, eq=False)
class ObjectFile:
    """A relocatable object.

    Attributes:
        machine: Which machine it is for, as ELF numbers them.
        flags: What it expects of that machine.
        sections: Those that are loaded, by number.
        symbols: All, in order.
        tables: Where the relocations of a section are: bytes by the section's number.
    """

    machine: int
    flags: int
    sections: dict[int, ObjectSection]
    symbols: list[ObjectSymbol]
    tables: dict[int, bytes]

    def section(self, symbol: ObjectSymbol) -> ObjectSection:
        """Return the section that has a symbol.

        Raises:
            ObjectError: If none that is loaded has it.
        """
        if symbol.section not in self.sections:
            raise ObjectError(f"{symbol.name or 'a symbol'} is in no section that is loaded")
        return self.sections[symbol.section]

    def relocations(self, section: ObjectSection) -> Iterator[Relocation]:
        """Yield the relocations of a section.

        Raises:
            ObjectError: If one is outside the section, or of no symbol.
        """
        for offset, info, addend in _RELOCATION.iter_unpack(self.tables.get(section.number, b"")):
            if offset + 4 > section.size or info >> 32 >= len(self.symbols):
                raise ObjectError("a relocation is outside its section")
            yield Relocation(offset, info & 0xFFFFFFFF, info >> 32, addend)


def read_object(data: bytes) -> ObjectFile:
    """Return an object.

    Raises:
        ObjectError: If it is none, or has what kernels have not: common or thread-local variables.
    """
    if data[:6] != b"\x7fELF\2\1":
        raise ObjectError("it is no little-endian ELF file of 64 bits")
    try:
        return _read(data)
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        raise error if isinstance(error, ObjectError) else ObjectError(f"it is cut or damaged: {error}") from error


def _read(data: bytes) -> ObjectFile:
    kind, machine, _, _, _, start, flags, _, _, _, step, count, names = _HEADER.unpack_from(data)
    if kind != _RELOCATABLE:
        raise ObjectError(f"it is of ELF type {kind}, not relocatable")
    table = [_SECTION.unpack_from(data, start + number * step) for number in range(count)]

    def contents(number: int) -> bytes:
        _, _, _, _, offset, size, *_ = table[number]
        if offset + size > len(data):
            raise ObjectError("a section is outside the file")
        return data[offset : offset + size]

    sections, symbols, tables = {}, b"", {}
    strings = section_names = contents(names)
    for number, (name, kind, flag, _, _, size, link, info, alignment, _) in enumerate(table):
        if kind == _SYMBOL_TABLE:
            symbols, strings = contents(number), contents(link)
        elif kind == _RELOCATIONS:
            tables[info] = contents(number)
            if size % _RELOCATION.size:
                raise ObjectError("a table of relocations is cut")
        elif flag & _LOADED:
            if flag & _THREAD_LOCAL:
                raise ObjectError("it has variables of threads")
            if size > OBJECT or alignment > _MOST_ALIGNED:
                raise ObjectError(f"it has a section of {size} bytes at a multiple of {alignment}")
            own = b"" if kind == NO_BITS else contents(number)
            sections[number] = ObjectSection(
                number, _text(section_names, name), kind, flag, own, size, max(1, alignment)
            )
    found = [_symbol(fields, strings) for fields in _SYMBOL.iter_unpack(symbols)]
    return ObjectFile(machine, flags, sections, found, tables)


def _symbol(fields: tuple[int, ...], strings: bytes) -> ObjectSymbol:
    name, info, _, section, value, size = fields
    text = _text(strings, name)
    if section == _COMMON:
        raise ObjectError(f"it has the common variable {text}")
    if section >= _FIRST_RESERVED:  # it names the source, and no place
        section = 0
    return ObjectSymbol(text, info & 15, info >> 4 == _LOCAL, info >> 4 == _WEAK, section, value, size)


def _text(strings: bytes, start: int) -> str:
    return strings[start : strings.index(b"\0", start)].decode()
