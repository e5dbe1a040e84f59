"""Artifact: the result of compiling an operator, and the kinds that there are. Each kind checks its own.

Objects, which CPUs' code is, are known here; a class of devices brings the kind of its own (``target.devices``).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Protocol

from opbuild.platform.records import dataclass, field


class NotAnArtifactError(ValueError):
    """The bytes are not what they are taken for."""


class UnknownKindError(NotAnArtifactError):
    """Nobody here can say what the bytes are."""


@dataclass(frozen=True)
class GlobalSymbols:
    """The global symbols of an artifact, each sorted: those that it defines, and those that it expects from others."""

    defined: tuple[str, ...]
    undefined: tuple[str, ...] = ()


OBJECT = "object"
"""The kind of CPUs: relocatable ELF objects."""


@dataclass(frozen=True, eq=False)
class Artifact:
    """One compiled operator.

    Attributes:
        data: Its bytes.
        symbol: The kernel's symbol; empty if there is no kernel in it (the compiler's runtime library), or if ``data``
            is to be asked.
        kind: What the bytes are.
        launch: How the kernel is launched, as JSON values that its device knows; empty where a call is all.
    """

    data: bytes
    symbol: str = ""
    kind: str = OBJECT
    launch: Mapping[str, Any] = field(default_factory=dict)


class ArtifactKind(Protocol):
    """A kind of artifacts.

    Attributes:
        magic: How MindSpore's records would call it.
    """

    magic: str

    def symbols(self, data: bytes, launch: Mapping[str, Any], /) -> GlobalSymbols:
        """Return the symbols that an artifact defines and those that it expects from others.

        Raises:
            NotAnArtifactError: If it is none, or cannot be launched so; the message says what is wrong.
        """


class _Objects:
    """Relocatable ELF objects."""

    magic = "RT_DEV_BINARY_MAGIC_ELF"

    @staticmethod
    def symbols(data: bytes, launch: Mapping[str, Any], /) -> GlobalSymbols:
        """Return its global symbols; it is called, and not launched."""
        if launch:
            raise NotAnArtifactError("it says how to be launched")
        return read_symbols(data)


_OBJECTS = _Objects()


def kind_of(name: str) -> ArtifactKind:
    """Return a kind of artifacts by its name.

    Raises:
        UnknownKindError: If no class of devices here has it.
    """
    if name == OBJECT:
        return _OBJECTS
    from opbuild.target.devices import load_kind

    kind: ArtifactKind | None = load_kind(name)
    if kind is None:
        raise UnknownKindError(f"it is of the kind {name!r:.80}, which no device here runs")
    return kind


_RELOCATABLE = 1
_SYMBOL_TABLE = 2
_LOCAL = 0


class NotAnObjectError(NotAnArtifactError):
    """The bytes are not a little-endian relocatable ELF object with a symbol table."""


@dataclass(frozen=True)
class _Layout:
    """The layout of one ELF class: ``struct`` formats, and the positions of the fields used."""

    header: str
    section: str
    symbol: str
    name_info_section: tuple[int, int, int]


_LAYOUTS = {
    1: _Layout("<16xHHIIIIIHHHHHH", "<IIIIIIIIII", "<IIIBBH", (0, 3, 5)),
    2: _Layout("<16xHHIQQQIHHHHHH", "<IIQQQQIIQQ", "<IBBHQQ", (0, 1, 3)),
}


def read_symbols(data: bytes) -> GlobalSymbols:
    """Return the global symbols of an object file.

    Raises:
        NotAnObjectError: If ``data`` is not such an object; the message says what is wrong.
    """
    if not data:
        raise NotAnObjectError("it is empty")
    if data[:4] != b"\x7fELF":
        raise NotAnObjectError("it does not begin as an ELF file")
    layout = _LAYOUTS.get(data[4] if len(data) > 5 else 0)
    if layout is None or data[5] != 1:
        raise NotAnObjectError("it is not a little-endian ELF file")
    try:
        return _read(data, layout)
    except NotAnObjectError:
        raise
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        raise NotAnObjectError(f"it is cut or damaged: {error}") from error


def _read(data: bytes, layout: _Layout) -> GlobalSymbols:
    header = struct.unpack_from(layout.header, data)
    kind, section_offset, section_size, section_count = header[0], header[5], header[10], header[11]
    if kind != _RELOCATABLE:
        raise NotAnObjectError(f"it is ELF type {kind}, not a relocatable object")
    sections = [
        struct.unpack_from(layout.section, data, section_offset + i * section_size) for i in range(section_count)
    ]
    table = next((section for section in sections if section[1] == _SYMBOL_TABLE), None)
    if table is None:
        raise NotAnObjectError("it has no symbol table")
    strings = sections[table[6]]
    names = data[strings[4] : strings[4] + strings[5]]
    defined: set[str] = set()
    undefined: set[str] = set()
    name_at, info_at, section_at = layout.name_info_section
    for fields in struct.iter_unpack(layout.symbol, data[table[4] : table[4] + table[5]]):
        start = fields[name_at]
        name = names[start : names.index(b"\0", start)].decode() if start < len(names) else ""
        if not name or fields[info_at] >> 4 == _LOCAL:
            continue
        (defined if fields[section_at] else undefined).add(name)
    return GlobalSymbols(tuple(sorted(defined)), tuple(sorted(undefined)))
