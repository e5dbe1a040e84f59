"""The container of offline models: a header, a table of sections, and the sections; little-endian.

    0    char[8]    magic
    8    uint32     version of the format
    12   uint32     number of sections
    16   uint64     size of the file
    24   uint64     0
    32   byte[32]   BLAKE3 of the bytes 0 to 31 and of the table
    64   the table, 64 bytes a section:
         uint32 kind, uint32 index, uint64 offset, uint64 size, uint64 0, byte[32] BLAKE3 of the section

Sections lie one behind the other and begin on multiples of 64, those that are mapped by pages on multiples of 4096. A
reader skips kinds that it does not know. Nothing of a file is used before the table's digest and the digests of the
sections were checked.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
from collections.abc import Iterable, Sequence

import numpy as np

from opbuild.errors import InvalidModelError
from opbuild.graph.types import Array
from opbuild.platform.digest import blake3_of, blake3_of_parts
from opbuild.platform.files.kinds import OFFLINE, OFFLINE_MAGIC, require_kind
from opbuild.platform.files.mapping import copy_file
from opbuild.platform.files.private import private_path, sweep
from opbuild.platform.files.trust import PRIVATE, SignatureError, Trust, UntrustedError
from opbuild.platform.files.writing import create
from opbuild.platform.paths import Path
from opbuild.platform.records import dataclass
from opbuild.text.plural import counted

MAGIC = OFFLINE_MAGIC
"""Not text, and damaged by whatever changes line ends."""
VERSION = 6
OLDEST = 2
"""What is read: until version 5 the tables do not say what kernels write, and C does not read them; until version 4
nothing refuses indices, until version 3 buffers and steps were rows, in version 2 each view had its own extents and
strides."""

ABOUT, MACHINE, PLAN, PROGRAM, LIBRARY, WEIGHTS, GRAPH, SIGNATURE = range(1, 9)
"""Kinds of sections: what the file is (JSON), what the code needs of a machine (words), how one input signature runs
(the record as JSON, and as tables for C), linked kernels (ELF), packed weights, the network before lowering, and the
HMAC-SHA256 of the table's other lines, which hold the digests of all sections."""

_HEADER, _ENTRY = struct.Struct("<8sIIQQ"), struct.Struct("<IIQQQ32s")
_HEADER_BYTES, _DIGEST_BYTES = 64, 32
_LINE, _PAGE = 64, 4096
_MOST_SECTIONS = 65536


@dataclass(frozen=True)
class Section:
    """One section to write, of a kind, by number among those; each part begins on the next multiple of 64 bytes."""

    kind: int
    index: int
    parts: Iterable[bytes | memoryview]


@dataclass(frozen=True)
class Container:
    """An offline model's file, mapped or copied, and checked.

    Attributes:
        path: The file.
        sections: The bytes of each section, ``uint8``, by kind and index: the weights are mapped read-only unless
            they were copied too, all others are this process's own copies, which nobody can change once they were
            checked.
        places: First byte and size of each section by kind and index.
    """

    path: Path
    sections: dict[tuple[int, int], Array]
    places: dict[tuple[int, int], tuple[int, int]]

    def section(self, kind: int, index: int = 0) -> Array:
        """Return a section's bytes; none if the file has no such section."""
        return self.sections.get((kind, index), np.zeros(0, np.uint8))


def write_container(path: Path, sections: Sequence[Section], trust: Trust = PRIVATE) -> None:
    """Write a file whole or not at all: beside its place, to the disk, then renamed.

    Raises:
        OSError: If it cannot be written; nothing is left behind, and an older file stays.
    """
    sweep(path.parent)
    with private_path(path.parent) as temporary:
        with create(temporary) as file:
            table = bytearray()
            if trust.key:
                signature = (trust.sign("offline", bytes(table).hex()).encode() for _ in range(1))  # of all before it
                sections = [*sections, Section(SIGNATURE, 0, signature)]
            file.seek(_HEADER_BYTES + len(sections) * _ENTRY.size)
            for section in sections:
                kind, index = section.kind, section.index
                multiple = _PAGE if kind in (LIBRARY, WEIGHTS) else _LINE
                start = -(-file.tell() // multiple) * multiple
                file.seek(start)
                pieces: list[bytes | memoryview] = []
                for part in section.parts:
                    for piece in (bytes((start - file.tell()) % _LINE), part):
                        file.write(piece)
                        pieces.append(piece)
                digest = bytes.fromhex(blake3_of_parts(pieces))
                table += _ENTRY.pack(kind, index, start, file.tell() - start, 0, digest)
            size = file.tell()
            file.truncate(size)
            header = _HEADER.pack(MAGIC, VERSION, len(sections), size, 0)
            file.seek(0)
            file.write(header + bytes.fromhex(blake3_of(header + bytes(table))) + bytes(table))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    with contextlib.suppress(OSError):  # some file systems have no folders to flush
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def open_container(path: Path, *, verify: bool = True, trust: Trust = PRIVATE, copies: bool = False) -> Container:
    """Map a file, or copy it, and check it whole, the weights only if they are to be verified.

    Raises:
        InvalidModelError: If it cannot be read, is no offline model, is of another version, is damaged or not signed,
            or others can write to it.
    """
    require_kind(path, OFFLINE)
    try:
        data = copy_file(path, trust)[0] if copies else _map(path, trust)
    except UntrustedError as error:
        raise InvalidModelError(f"{str(path)!r} is not used: {error.strerror}", "copy it to a file of yours") from None
    except OSError as error:
        raise InvalidModelError(f"{str(path)!r} cannot be read: {error.strerror or error}", "check the path") from None
    places, digests, signed = _read_table(path, data)
    sections: dict[tuple[int, int], Array] = {}
    for (kind, index), (offset, size) in places.items():
        content = data[offset : offset + size]
        sections[kind, index] = content = content if kind == WEIGHTS else content.copy()
        if kind == WEIGHTS and not verify:
            continue
        if blake3_of(content.data) != digests[kind, index]:
            raise _damaged(path, f"section {kind}.{index} does not have the digest it should have")
    container = Container(path, sections, places)
    try:
        trust.check_signature(container.section(SIGNATURE).tobytes().decode(errors="replace"), "offline", signed.hex())
    except SignatureError as error:
        hint = "write it again with this key (OPBUILD_SIGNING_KEY), or load it without one"
        raise InvalidModelError(f"{str(path)!r} is not used: {error}", hint) from None
    return container


def _map(path: Path, trust: Trust) -> Array:
    descriptor, state = trust.open(path)
    try:
        if state.st_size == 0:
            return np.zeros(0, np.uint8)
        return np.frombuffer(mmap.mmap(descriptor, state.st_size, prot=mmap.PROT_READ), np.uint8)
    finally:
        os.close(descriptor)


_Places = dict[tuple[int, int], tuple[int, int]]


def _read_table(path: Path, data: Array) -> tuple[_Places, dict[tuple[int, int], str], bytes]:
    """Return place and digest of each section, and the lines of the table that are signed.

    Nothing of what the header says is believed before it is checked.
    """
    head = bytes(data[:_HEADER_BYTES])
    if not head.startswith(MAGIC):
        raise InvalidModelError(
            f"{str(path)!r} is not {OFFLINE}",
            "write one: opbuild.export(MODEL, OUTPUT)",
            command="write one: opbuild export MODEL.onnx",
        )
    if len(head) < _HEADER_BYTES:
        raise _damaged(path, f"it ends after {len(head)} bytes")
    _, version, count, size, _ = _HEADER.unpack_from(head)
    if not OLDEST <= version <= VERSION:
        raise InvalidModelError(
            f"{str(path)!r} has version {version} of the format, this opbuild reads versions {OLDEST} to {VERSION}",
            "write the file again with this version of opbuild",
        )
    if size != data.size:
        raise _damaged(path, f"it has {data.size} bytes, not {size}")
    end = _HEADER_BYTES + count * _ENTRY.size
    if count > _MOST_SECTIONS or end > data.size:
        raise _damaged(path, f"it cannot have {counted(count, 'section')}")
    table = bytes(data[_HEADER_BYTES:end])
    if blake3_of(head[: _HEADER.size] + table) != head[-_DIGEST_BYTES:].hex():
        raise _damaged(path, "its table does not have the digest it should have")
    places, digests, behind = {}, {}, end
    for kind, index, offset, nbytes, _, digest in _ENTRY.iter_unpack(table):
        if offset < behind or offset % _LINE or nbytes > data.size - offset:
            raise _damaged(path, f"section {kind}.{index} lies at {offset}, {nbytes} bytes of {data.size}")
        if (kind, index) in places:
            raise _damaged(path, f"section {kind}.{index} is there twice")
        places[kind, index] = offset, nbytes
        behind = offset + nbytes
        digests[kind, index] = digest.hex()
    lines = [table[at : at + _ENTRY.size] for at in range(0, len(table), _ENTRY.size)]
    signed = b"".join(line for line, (kind, _) in zip(lines, places, strict=True) if kind != SIGNATURE)
    return places, digests, signed


def _damaged(path: Path, how: str) -> InvalidModelError:
    return InvalidModelError(f"{str(path)!r} is damaged: {how}", "copy the file again, or write it again")
