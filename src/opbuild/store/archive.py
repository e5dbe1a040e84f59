"""Archive: files in one file, sealed by digests, the same bytes for the same contents.

    opbuild <kind> <format> <BLAKE3 of the list> <bytes of the list>, a line
    the list: JSON, what is said of all, and name, size and BLAKE3 of each file, sorted by name; signed if there is a
        key
    the files' contents, one after the other

Nothing of it is unpacked by an archiver, and no name becomes a path unless who reads it knows its form. Sizes must add
up to the archive's own; each content must have its digest.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any

from opbuild.errors import BuildError, OptionError
from opbuild.platform.digest import blake3_of
from opbuild.platform.files.private import private_path, sweep
from opbuild.platform.files.trust import LISTING, PRIVATE, SignatureError, Trust, parse_json
from opbuild.platform.files.writing import create
from opbuild.platform.limits import unwritten
from opbuild.platform.paths import Path
from opbuild.platform.records import NamedTuple, dataclass
from opbuild.text.canonical import canonical_json
from opbuild.text.plural import listed

_HEADER = re.compile(rb"opbuild ([a-z-]{1,20}) ([0-9]{1,9}) ([0-9a-f]{64}) ([0-9]{1,12})\n")
_HEADER_LIMIT = 128


class ArchiveKind(NamedTuple):
    """A kind of archives.

    Attributes:
        word: What messages call it, and its first line, with hyphens for blanks.
        format: The format that this release writes and reads.
        maker: The command that makes one.
        unused: What messages say of one that is damaged, e.g. ``nothing of it was imported``.
        again: The remedy for one that is damaged, not signed, or of another format.
    """

    word: str
    format: int
    maker: str
    unused: str
    again: str

    @property
    def tag(self) -> str:
        """The word of its first line."""
        return self.word.replace(" ", "-")

    def damaged(self, path: Path, what: Sequence[str]) -> BuildError:
        """Return the error for an archive of which something is not what was written."""
        return BuildError(
            f"the {self.word} {str(path)!r} is damaged, and {self.unused}:\n{listed(what)}", f"copy or {self.again}"
        )


@dataclass(frozen=True)
class Archive:
    """The content of an archive: what is said of all, and contents of files by name."""

    about: Mapping[str, Any]
    files: Mapping[str, memoryview]


def archive_parts(
    kind: ArchiveKind, about: Mapping[str, Any], files: Mapping[str, bytes | memoryview], trust: Trust = PRIVATE
) -> Iterator[bytes | memoryview]:
    """Yield the bytes of an archive."""
    contents = dict(sorted(files.items()))
    content = {**about, "files": [[name, len(data), blake3_of(data)] for name, data in contents.items()]}
    listing = canonical_json(trust.signed(kind.word, content)).encode()
    yield f"opbuild {kind.tag} {kind.format} {blake3_of(listing)} {len(listing)}\n".encode()
    yield listing
    yield from contents.values()


def write_whole(path: Path, parts: Iterable[bytes | memoryview], what: str) -> int:
    """Write a file whole or not at all, and return its size; an existing file is replaced.

    Raises:
        OptionError: If it cannot be written; the message calls it ``what``.
        BuildError: If the disk is full.
    """
    sweep(path.parent)
    try:
        with private_path(path.parent) as temporary:
            with create(temporary) as file:
                for part in parts:
                    file.write(part)
                size = file.tell()
            temporary.replace(path)
    except OSError as error:
        hint = "name a file in a folder that you may write to"
        raise unwritten(f"the {what} {str(path)!r}", error, hint) from error
    return size


def read_archive(path: Path, kind: ArchiveKind, trust: Trust = PRIVATE) -> Archive:
    """Read an archive and check it whole.

    Raises:
        OptionError: If the file cannot be read or is no such archive, or others can write to it.
        BuildError: If any content is not what was written, or it is not signed; names each.
    """
    try:
        descriptor, state = trust.open(path)
        with os.fdopen(descriptor, "rb") as file:
            return _read(path, file, state.st_size, kind, trust)
    except OSError as error:
        message = f"the {kind.word} {str(path)!r} cannot be read: {error.strerror or error}"
        raise OptionError(message, f"give a file that '{kind.maker}' wrote") from error
    except MemoryError as error:
        raise OptionError(f"the {kind.word} {str(path)!r} does not fit into memory", "put less into it") from error


def _read(path: Path, file: IO[bytes], size: int, kind: ArchiveKind, trust: Trust) -> Archive:
    """Read an open archive; nothing is read whose size was not compared with the file's.

    Raises:
        OSError: If it cannot be read.
    """
    header = _HEADER.match(file.read(_HEADER_LIMIT))
    if header is None or header[1].decode() != kind.tag:
        raise OptionError(f"{str(path)!r} is not a {kind.word}", f"give a file that '{kind.maker}' wrote")
    if int(header[2]) != kind.format:
        message = f"{str(path)!r} has the {kind.word} format {int(header[2])}, this release reads {kind.format}"
        raise OptionError(message, f"{kind.again}, with this release of opbuild")
    start = header.end() + int(header[4])
    file.seek(header.end())
    data = file.read(int(header[4])) if start <= size and int(header[4]) <= LISTING else b""
    if len(data) != int(header[4]) or blake3_of(data) != header[3].decode():
        raise kind.damaged(path, ["its list of files"])
    about, places = _listing(path, data, kind, trust)
    if sum(nbytes for _, nbytes, _ in places) != size - start:
        raise kind.damaged(path, [f"its length: {size - start} bytes follow the list"])
    files = dict(_split(places, memoryview(file.read(size - start))))
    bad = [name for name, nbytes, digest in places if len(files[name]) != nbytes or blake3_of(files[name]) != digest]
    if bad:
        raise kind.damaged(path, bad)
    return Archive(about, files)


def _listing(
    path: Path, data: bytes, kind: ArchiveKind, trust: Trust
) -> tuple[Mapping[str, Any], list[tuple[str, int, str]]]:
    """Return the list's other fields, and name, size and digest of each file."""
    try:
        about = trust.unsigned(kind.word, dict(parse_json(data)))
        places = [(str(name), int(size), str(digest)) for name, size, digest in about.pop("files")]
    except SignatureError as error:
        message = f"the {kind.word} {str(path)!r} is not used: {error}"
        raise BuildError(message, f"{kind.again} with this key (OPBUILD_SIGNING_KEY), or use it without one") from None
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise kind.damaged(path, ["its list of files"]) from error
    if wrong := [name for name, size, _ in places if size < 0]:
        raise kind.damaged(path, [f"the size of {name!r:.250}" for name in wrong])
    if len({name for name, _, _ in places}) != len(places):
        raise kind.damaged(path, ["a name that is there twice"])
    return about, places


def _split(places: Sequence[tuple[str, int, str]], data: memoryview) -> Iterator[tuple[str, memoryview]]:
    offset = 0
    for name, size, _ in places:
        yield name, data[offset : offset + size]
        offset += size
