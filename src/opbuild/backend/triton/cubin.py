"""Binaries for NVIDIA's GPUs as a kind of artifacts: an ELF file with one kernel, and how that is launched.

The launch is JSON: ``warps`` of a program, ``shared`` bytes of its memory, the kernel's ``arguments`` as ``[kind,
operand, dim]`` in their order, ``[offset, size]`` of all its ``parameters`` as the binary has them, among which two
pointers at the end are Triton's own and get 0, and the ``grid`` as ``kernel.TritonKernel`` has it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from opbuild.backend.triton.kernel import ADDRESS, EXTENT, STRIDE
from opbuild.kernel.artifact import GlobalSymbols, NotAnArtifactError
from opbuild.platform.records import NamedTuple

KIND = "cubin"

HIDDEN = 2
"""How many parameters Triton adds behind a kernel's own: pointers to memory that no kernel here asks for."""

SIZES = {ADDRESS: 8, EXTENT: 4, STRIDE: 8}
"""Bytes of a parameter."""

MOST_WARPS, MOST_SHARED, MOST_AXES = 32, 227 << 10, 3
"""The most that a program may have."""

_HEADER = struct.Struct("<16xHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_EXECUTABLE, _MACHINE, _SYMBOL_TABLE, _GLOBAL, _FUNCTION, _NO_BITS = 2, 190, 2, 1, 2, 8
_PARAMETER, _SIZED = 0x17, 0x04
"""The attribute of ``.nv.info`` that describes a parameter, and the format of those that are followed by their size."""


class _Section(NamedTuple):
    name: str
    kind: int
    link: int
    content: bytes


class Cubin:
    """Binaries for GPUs; see ``ArtifactKind``."""

    magic = "RT_DEV_BINARY_MAGIC_CUBIN"

    @staticmethod
    def symbols(data: bytes, launch: Mapping[str, Any], /) -> GlobalSymbols:
        """Return the one kernel that it has.

        Raises:
            NotAnArtifactError: If it is no such binary, or cannot be launched so.
        """
        try:
            found = _sections(data)
            kernel = _kernel(found)
            _check_launch(launch, _parameters(found, kernel))
        except NotAnArtifactError:
            raise
        except (struct.error, IndexError, KeyError, ValueError, TypeError, OverflowError) as error:
            raise NotAnArtifactError(f"it is cut or damaged: {error}") from error
        return GlobalSymbols((kernel,))


def parameter_places(data: bytes) -> list[tuple[int, int]]:
    """Return offset and size in bytes of each parameter of the one kernel, in order.

    Raises:
        NotAnArtifactError: If it is no such binary.
    """
    found = _sections(data)
    return _parameters(found, _kernel(found))


def _sections(data: bytes) -> list[_Section]:
    if data[:4] != b"\x7fELF":
        raise NotAnArtifactError("it does not begin as an ELF file" if data else "it is empty")
    if data[4:6] != b"\x02\x01":
        raise NotAnArtifactError("it is not a little-endian ELF64 file")
    kind, machine, _, _, segments, start, _, _, width, parts, size, count, names = _HEADER.unpack_from(data)
    if (kind, machine) != (_EXECUTABLE, _MACHINE):
        raise NotAnArtifactError(f"it is ELF type {kind} for machine {machine}, not a binary for a GPU")
    if size != _SECTION.size:
        raise NotAnArtifactError("its sections are not those of an ELF64 file")
    if segments + width * parts > len(data):
        raise NotAnArtifactError("it is cut: its segments are not all there")
    headers = [_SECTION.unpack_from(data, start + size * number) for number in range(count)]
    texts = _content(data, headers[names])
    return [_Section(_text(texts, each[0]), each[1], each[6], _content(data, each)) for each in headers]


def _content(data: bytes, header: tuple[int, ...]) -> bytes:
    kind, offset, size = header[1], header[4], header[5]
    if kind == _NO_BITS:
        return b""
    if offset + size > len(data):
        raise NotAnArtifactError("it is cut: a section reaches beyond its end")
    return data[offset : offset + size]


def _text(texts: bytes, start: int) -> str:
    return texts[start : texts.index(b"\0", start)].decode()


def _kernel(sections: list[_Section]) -> str:
    """Return the name of the one kernel, whose code is there."""
    tables = [each for each in sections if each.kind == _SYMBOL_TABLE]
    if len(tables) != 1:
        raise NotAnArtifactError("it has no symbol table")
    texts = sections[tables[0].link].content
    symbols = [*_SYMBOL.iter_unpack(tables[0].content)]
    names = [
        _text(texts, name)
        for name, info, _, section, _, _ in symbols
        if section and info >> 4 == _GLOBAL and info & 15 == _FUNCTION
    ]
    if len(names) != 1:
        raise NotAnArtifactError(f"it has {len(names)} kernels, not one")
    if not any(each.name == f".text.{names[0]}" and each.content for each in sections):
        raise NotAnArtifactError(f"it has no code of {names[0]}")
    return names[0]


def _parameters(sections: list[_Section], kernel: str) -> list[tuple[int, int]]:
    (info,) = (each.content for each in sections if each.name == f".nv.info.{kernel}")
    places, at = {}, 0
    while at < len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, at)
        if form == _SIZED and attribute == _PARAMETER:
            _, number, offset, packed = struct.unpack_from("<IHHI", info, at + 4)
            places[number] = (offset, packed >> 18)
        at += 4 + (size if form == _SIZED else 0)
    return [places[number] for number in range(len(places))]


def _check_launch(launch: Mapping[str, Any], places: list[tuple[int, int]]) -> None:
    """Refuse a launch that does not fit a binary with parameters at some places."""
    if {*launch} != {"warps", "shared", "arguments", "parameters", "grid"}:
        raise NotAnArtifactError("it does not say how it is launched")
    _check_counts(launch["warps"], launch["shared"])
    arguments = launch["arguments"]
    sound = isinstance(arguments, list) and all(isinstance(each, list) and _is_argument(each) for each in arguments)
    if not sound:
        raise NotAnArtifactError("its arguments are none")
    if launch["parameters"] != [list(each) for each in places]:
        raise NotAnArtifactError("its parameters lie elsewhere than it says")
    sizes = [SIZES[kind] for kind, _, _ in arguments] + [SIZES[ADDRESS]] * HIDDEN
    if sizes != [size for _, size in places]:
        raise NotAnArtifactError("its arguments are not its parameters")
    grid = launch["grid"]
    sound = isinstance(grid, list) and 0 < len(grid) <= MOST_AXES and all(isinstance(axis, list) for axis in grid)
    if not sound or not all(isinstance(each, list) and _are_tiles(each) for axis in grid for each in axis):
        raise NotAnArtifactError("its grid is none")


def _check_counts(warps: Any, shared: Any) -> None:
    if not _is_number(warps) or warps not in (1, 2, 4, 8, 16, MOST_WARPS):
        raise NotAnArtifactError("it has an impossible number of warps")
    if not _is_number(shared) or shared > MOST_SHARED:
        raise NotAnArtifactError("it takes more memory than programs share")


def _is_argument(argument: list[Any]) -> bool:
    return len(argument) == 3 and argument[0] in (ADDRESS, EXTENT, STRIDE) and all(map(_is_number, argument[1:]))


def _are_tiles(tiles: list[Any]) -> bool:
    return len(tiles) == 3 and all(map(_is_number, tiles)) and tiles[2] > 0


def _is_number(value: Any) -> bool:
    return type(value) is int and value >= 0
