"""Manifest: one object that lists the parts of a network, and has its small pieces in it.

    a line of JSON, with SHA-256 and size of each piece that follows; then those pieces

So a network of small contents is one request. Of others the library and the constants come first, then the smallest
pieces of weights: all of it is no more than one piece, which one limit of time is for.

Other contents are blobs of at most ``PIECE`` bytes that are fetched at once. What was fetched of large contents stays
in the place where it is to be, so that a fetch that broke off goes on there: in this process or in another one, as long
as nobody takes the rest for rubbish (``platform.files.private``).
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from opbuild.kernel.networks import Bytes, NetworkKey, StoredNetwork
from opbuild.platform.digest import blake3_of
from opbuild.platform.files.mapping import map_file
from opbuild.platform.files.private import PREFIX
from opbuild.platform.files.trust import Trust, parse_json
from opbuild.platform.files.writing import make_folder
from opbuild.platform.paths import Path
from opbuild.platform.records import NamedTuple
from opbuild.store.items import REFUSED
from opbuild.store.remote.objects import sha256_of

PIECE = 2 * 2**20
"""Bytes of a blob, which one limit of time is for."""

MOST = 2**35
"""Bytes that contents can have at most: no constant has more than 2**31 elements."""


class ContentDigests(NamedTuple):
    """Some bytes: how many, and the SHA-256 of each piece of them."""

    nbytes: int
    pieces: tuple[str, ...]

    @staticmethod
    def of(data: memoryview) -> ContentDigests:
        """Return the contents that some bytes are: their length and digests."""
        return ContentDigests(data.nbytes, tuple(map(sha256_of, split(data))))

    @staticmethod
    def from_json(parts: Any) -> ContentDigests:
        """Return the contents that a manifest describes.

        Raises:
            ValueError: If it is no contents; or ``TypeError``.
        """
        nbytes, pieces = parts
        if type(nbytes) is not int or not 0 <= nbytes <= MOST or len(pieces) != -(-nbytes // PIECE):
            raise ValueError("its pieces are not those of so many bytes")
        if not all(isinstance(each, str) and len(each) == 64 and set(each) <= _DIGITS for each in pieces):
            raise ValueError("a piece has no digest")
        return ContentDigests(nbytes, tuple(pieces))

    def places(self) -> list[tuple[int, int, str]]:
        """Return first byte, number of bytes and digest of each piece."""
        return [
            (number * PIECE, min(PIECE, self.nbytes - number * PIECE), digest)
            for number, digest in enumerate(self.pieces)
        ]


_DIGITS = set("0123456789abcdef")


def split(data: memoryview) -> list[memoryview]:
    """Return the pieces of some bytes."""
    return [data[start : start + PIECE] for start in range(0, data.nbytes, PIECE)]


def room_in(folder: Path) -> int:
    """Return the bytes that a folder, which is made, has room for; 0 where nothing can be put there."""
    try:
        make_folder(folder)
        state = os.statvfs(folder)
    except OSError:
        return 0
    return state.f_bavail * state.f_frsize


def room_in_memory() -> int:
    """Return the bytes that may be fetched into memory: half of the machine's."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


class InMemory:
    """Contents in memory."""

    def __init__(self, array: Bytes) -> None:
        self._array = array

    def holds(self, start: int, nbytes: int, digest: str) -> bool:
        """Return False: a new place holds nothing."""
        return False

    def put(self, start: int, data: bytes) -> None:
        """Put a piece in its place."""
        self._array[start : start + len(data)] = memoryview(data)

    def finish(self, digest: str) -> tuple[Bytes, None]:
        """Return the bytes, which have no state.

        Raises:
            OSError: If their BLAKE3 is another one.
        """
        if blake3_of(self._array.data) != digest:
            raise _wrong_digest("weights")
        return self._array, None


class InFile:
    """Contents in a private file, which another process may have begun; it has its name once it is whole.

    Two processes may fill one: what they write is checked before, and the same.

    Raises:
        OSError: If the storage refuses, or others can write to the file.
    """

    def __init__(self, path: Path, nbytes: int, trust: Trust) -> None:
        make_folder(path.parent)
        self._path, self._nbytes, self._trust = path, nbytes, trust
        self._part = path.with_name(f"{PREFIX}{path.name}")
        with self._opened(os.O_CREAT) as file:
            trust.check(os.fstat(file), self._part)
            self._began = os.fstat(file).st_size == nbytes
            os.ftruncate(file, nbytes)  # takes no room before the pieces come

    def holds(self, start: int, nbytes: int, digest: str) -> bool:
        """Return whether a piece is there already."""
        if self._began:
            with contextlib.suppress(OSError), self._opened() as file:
                return sha256_of(os.pread(file, nbytes, start)) == digest
        return False

    def put(self, start: int, data: bytes) -> None:
        """Put a piece in its place, unless another process was done before."""
        left = memoryview(data)
        try:
            with self._opened() as file:
                while left:
                    written = os.pwrite(file, left, start)
                    start, left = start + written, left[written:]
        except FileNotFoundError:
            if not self._path.exists():
                raise

    def finish(self, digest: str) -> tuple[Bytes, list[Any]]:
        """Give the file its name; return its bytes, mapped, and its state.

        Raises:
            OSError: If its BLAKE3 is another one, or the storage refuses.
        """
        if blake3_of(map_file(self._part, self._nbytes, self._trust)[0].data) != digest:
            self._part.unlink()
            raise _wrong_digest(str(self._path))
        self._part.replace(self._path)
        return map_file(self._path, self._nbytes, self._trust)

    @contextlib.contextmanager
    def _opened(self, flags: int = 0) -> Iterator[int]:
        """Open the file, each time: a network may have more weights than a process may have files."""
        file = os.open(self._part, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | flags, 0o600)
        try:
            yield file
        finally:
            os.close(file)


def _wrong_digest(what: str) -> OSError:
    return OSError(errno.EIO, "it does not have the digest it should have", what)


Destination = InFile | InMemory
"""Where contents are put while they are fetched. Threads may share it."""


def missing(contents: ContentDigests, target: Destination) -> Sequence[tuple[int, int, str]]:
    """Return the places of the pieces that a target lacks."""
    return [place for place in contents.places() if not target.holds(*place)]


HELD = PIECE
"""Bytes of the pieces that a manifest has in it."""

_KERNELS, _SYMBOL = "kernels", "__kernel0"
"""The part of a record for several signatures that names the kernels of its library, and how their symbols end."""

LARGEST = 2**30
"""Bytes of a library, or of all small constants."""


class Manifest(NamedTuple):
    """The parts of a network.

    Attributes:
        key: What it was made from.
        compiler: Digest of the compiler that made its kernels; empty: a release brings all of them.
        record: What the runtime stored.
        library: Its shared library.
        constants: Its small constants.
        weights: Its packed weights, by BLAKE3.
        operators: Names without device of the operators that its library is linked of.
        held: Pieces that came with it, by SHA-256.
    """

    key: NetworkKey
    compiler: str
    record: Any
    library: ContentDigests
    constants: ContentDigests
    weights: Mapping[str, ContentDigests]
    operators: tuple[str, ...]
    held: Mapping[str, bytes] = {}


def to_hold(pieces: Sequence[tuple[str, memoryview]]) -> dict[str, memoryview]:
    """Return the pieces that a manifest has in it, by SHA-256: the first of these that have room."""
    held: dict[str, memoryview] = {}
    left = HELD
    for digest, piece in pieces:
        if digest not in held and piece.nbytes <= left:
            held[digest] = piece
            left -= piece.nbytes
    return held


def manifest_bytes(
    key: NetworkKey, network: StoredNetwork, contents: Mapping[str, ContentDigests], held: Mapping[str, memoryview]
) -> bytes:
    """Return a manifest as it is written, with contents by their parts (weights by BLAKE3) and the pieces in it."""
    said = {
        "key": dict(key.components), "compiler": network.compiler, "record": network.record,
        "library": contents["library"], "constants": contents["constants"],
        "weights": {name: each for name, each in contents.items() if name not in ("library", "constants")},
        "operators": operators_of(network.record),
        "held": [[digest, piece.nbytes] for digest, piece in held.items()],
    }  # fmt: skip
    return b"".join([json.dumps(said).encode(), b"\n", *held.values()])


def parse_manifest(stem: str, body: bytes) -> Manifest:
    """Return the manifest of a network's name in some bytes.

    Raises:
        ValueError: If it says nothing of the kind; or one of ``REFUSED``.
    """
    head, _, rest = body.partition(b"\n")
    said = parse_json(head)
    library, constants = ContentDigests.from_json(said["library"]), ContentDigests.from_json(said["constants"])
    if max(library.nbytes, constants.nbytes) > LARGEST:
        raise ValueError("it is too large")
    weights = {str(digest): ContentDigests.from_json(parts) for digest, parts in said["weights"].items()}
    key = NetworkKey(stem.rpartition("_")[0], dict(said["key"]))
    operators = tuple(map(str, said["operators"]))
    held = _held_pieces(said["held"], rest)
    return Manifest(key, str(said["compiler"]), said["record"], library, constants, weights, operators, held)


def _held_pieces(said: Any, rest: bytes) -> dict[str, bytes]:
    """Return the pieces behind a manifest's line, each of which fits its name."""
    held, start = {}, 0
    for digest, nbytes in said:
        piece = rest[start : start + int(nbytes)]
        if sha256_of(piece) != digest:
            raise ValueError("a piece is not what its name says")
        held[digest] = piece
        start += len(piece)
    return held


def operators_of(record: Any) -> list[str]:
    """Return the names without device of the operators that a record says it was built of, or is linked of."""
    try:
        if _KERNELS in record:
            return [str(symbol).removesuffix(_SYMBOL) for _, symbol in record[_KERNELS]]
        return [str(name).rpartition("_")[0] for name, *_ in record["notes"]["operators"]]
    except REFUSED:
        return []
