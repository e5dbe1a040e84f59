"""Binaries for a GPU, as ELF files: where a kernel's parameters lie."""

from __future__ import annotations

import struct

PARAMETER = 0x17
"""The attribute of ``.nv.info`` that describes a parameter (EIATTR_KPARAM_INFO)."""

SIZED = 0x04
"""The format of attributes that are followed by their size; others have their value in two bytes."""


def sections(binary: bytes) -> dict[str, bytes]:
    """Return the sections of an ELF64 file by name.

    Raises:
        ValueError: If it is none.
    """
    if binary[:5] != b"\x7fELF\x02":
        raise ValueError("not an ELF64 file")
    (start,) = struct.unpack_from("<Q", binary, 40)
    size, count, names = struct.unpack_from("<HHH", binary, 58)
    headers = [struct.unpack_from("<IIQQQQ", binary, start + size * i) for i in range(count)]
    texts = binary[headers[names][4] :]
    return {
        texts[name : texts.index(b"\0", name)].decode(): binary[offset : offset + length]
        for name, _, _, _, offset, length in headers
    }


def parameter_places(binary: bytes) -> list[tuple[int, int]]:
    """Return offset and size in bytes of each parameter of the one kernel, in order.

    Raises:
        ValueError: If the binary has another number of kernels.
    """
    infos = [content for name, content in sections(binary).items() if name.startswith(".nv.info.")]
    if len(infos) != 1:
        raise ValueError(f"{len(infos)} kernels in a binary that should have one")
    places, at = {}, 0
    while at < len(infos[0]):
        kind, attribute, size = struct.unpack_from("<BBH", infos[0], at)
        if kind == SIZED and attribute == PARAMETER:
            _, ordinal, offset, packed = struct.unpack_from("<IHHI", infos[0], at + 4)
            places[ordinal] = (offset, packed >> 18)
        at += 4 + (size if kind == SIZED else 0)
    return [places[ordinal] for ordinal in range(len(places))]
