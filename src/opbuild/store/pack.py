"""The pack: kernels that a release ships for a target, a level or another device, a store that is only read.

    opbuild/store/packs/<target>/<family>.pack: the objects of one kernel family for one target, compressed

    opbuild pack 2 <SHA-256 of the list> <bytes of the list>, a line
    the list: JSON, compressed: the target, the family, what compiled the objects and which sources define them, and of
        each block its size, its SHA-256, and of each object in it the operator, the size and the pipeline's digest; of
        what is no CPU's object its kind, too, and how it is launched
    the blocks, one after the other: objects in the order in which networks first need them, compressed together
    the descriptors of all objects: JSON, compressed; what looks objects up never reads them

Objects of a family are much alike, so a block of many takes a third of the room that each would take by itself. It is
unpacked only as far as an object that is asked for, and what networks need first comes first. Equal contents give equal
bytes.

What it holds is part of the release as the code is. So a look-up does not ask which compiler is installed, nor whether
one is: which one made the objects is written in the pack. It asks for the same operator, level and sources of the
family: of what was edited after the pack was made it is to be shown first that it defines the same (``origins``).
"""

from __future__ import annotations

import lzma
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

from opbuild.events import PACK
from opbuild.families.catalogue import find
from opbuild.kernel.artifact import OBJECT as CPU_OBJECT
from opbuild.kernel.artifact import Artifact
from opbuild.kernel.entry import Entry, make_entry
from opbuild.kernel.interfaces import Found, Missing
from opbuild.kernel.key import CompilerIdentity, Key, key_digest, make_key
from opbuild.kernel.opdesc import OpDesc
from opbuild.kernel.reason import Reason
from opbuild.platform.digest import sha256
from opbuild.platform.files.trust import OBJECT, Trust, parse_json
from opbuild.platform.paths import Path
from opbuild.platform.records import NamedTuple
from opbuild.target.level import target_named
from opbuild.text.canonical import canonical_json

PACKS = Path(__file__).parent / "packs"
"""Where a release keeps them."""

ABSENT = Missing(Reason("absent", f"not in {PACK}"))


class Pack:
    """Kernels for one target that stay where they are: those that the release brings. Threads may share it.

    Attributes:
        name: What reports call it.
        target: The target's name.
    """

    name = PACK

    def __init__(self, target: str, folder: Path = PACKS) -> None:
        self.target, self.folder = target, folder / target

    def of(self, target: str) -> Pack:
        """Return the release's kernels for another target."""
        return Pack(target, self.folder.parent)

    def lookup(self, key: Key) -> Found | Missing:
        """Return the entry that serves for ``key``, under the name that it has here, or why there is none.

        Codes of the reason: ``absent``, ``stale`` (the family's sources were edited since), ``damaged``.
        """
        file = self.file(str(key.components["family"])) if key.components["target"] == self.target else None
        if file is None:
            return ABSENT
        if isinstance(file, Reason):
            return Missing(file)
        own = file.key(key)
        if own is None:
            return Missing(Reason("stale", f"{file.family} was edited since {self.name} was made"))
        try:
            artifact = file.artifact(own)
            if artifact is None:
                return ABSENT
            desc = OpDesc.from_components(own.components)
            cost, pipeline = find(desc.family).cost(desc), file.pipeline(own) or ""
            return Found(make_entry(desc, own, 0, artifact, cost, pipeline=pipeline), self.name, stays=True)
        except ValueError as error:
            return Missing(Reason("damaged", f"{file.family} of {self.name}: {error}"))

    def origins(self, keys: Sequence[Key]) -> list[Mapping[str, str]]:
        """Return for each of several operators the pipeline of its kernel, by its sources."""
        return [self._origins(key) for key in keys]

    def _origins(self, key: Key) -> Mapping[str, str]:
        file = self.file(str(key.components["family"]))
        pipeline = file.pipeline(file.own_key(key)) if isinstance(file, PackFile) else None
        return {pipeline: file.sources.code} if isinstance(file, PackFile) and pipeline else {}

    def has(self, desc: OpDesc) -> bool:
        """Return whether it holds a kernel, whatever the family's sources are by now."""
        file = self.file(desc.family)
        if not isinstance(file, PackFile):
            return False
        return file.pipeline(make_key(desc, target_named(file.target), file.compiler, file.sources.code)) is not None

    def file(self, family: str) -> PackFile | Reason | None:
        """Return the pack of a family, why it cannot be used, or None if there is none."""
        return _read(self._path(family))

    def families(self) -> tuple[str, ...]:
        """Return the names of the families that there are packs of, sorted."""
        try:
            return tuple(sorted(path.stem for path in self.folder.iterdir() if path.suffix == SUFFIX))
        except OSError:
            return ()

    def files(self) -> Iterator[PackFile]:
        """Yield its files that can be used, by the names of families."""
        return (file for file in map(self.file, self.families()) if isinstance(file, PackFile))

    def count(self) -> int:
        """Return the number of its kernels."""
        return sum(map(len, self.files()))

    def compiler(self) -> CompilerIdentity | None:
        """Return the identity of its compiler; None if there is no pack for the target."""
        return next((file.compiler for file in self.files()), None)

    def _path(self, family: str) -> Path:
        return self.folder / f"{family}{SUFFIX}"


@lru_cache(maxsize=256)
def _read(path: Path) -> PackFile | Reason | None:
    """Return a file, read once: a release does not change while a process runs."""
    try:
        return read_pack(path)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        return Reason("damaged", f"{path} cannot be used: {getattr(error, 'strerror', None) or error}")


SUFFIX = ".pack"
_FORMAT = 2
_HEADER = re.compile(rb"opbuild pack ([0-9]{1,9}) ([0-9a-f]{64}) ([0-9]{1,9})\n")
_HEADER_LIMIT = 128

_BLOCK = 640_000
"""Bytes of objects in a block, at most unless one is larger; to have its last takes 3 ms, 9 at most (Zen 5)."""

_OPERATOR_DIGITS = 32
"""Of an operator's 64: 128 bits tell a million objects apart, and nothing in a pack wants to be taken for another."""

_PACK, _LIST = 2**28, 2**26
"""Bytes of a pack, and of its list or descriptors, at most; those of releases have one million, and a third of it."""

_PUBLIC = Trust(shared=True)
"""A release's files may be anybody's, as its code is."""

_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": 2**20}]
"""Its window has room for a block: each that is being unpacked keeps one."""

_MEMORY = 128 * 2**20
"""Bytes that unpacking may take beside its result: the largest window of ``lzma``'s presets has 64 MiB."""


_CALLED: Mapping[str, Any] = {}
"""How a CPU's object is launched: it is called."""


class Object(NamedTuple):
    """An artifact to pack, with its descriptor's components, its key's digest without sources, and its pipeline's."""

    components: Mapping[str, Any]
    operator: str
    pipeline: str
    object: bytes
    kind: str = CPU_OBJECT
    launch: Mapping[str, Any] = _CALLED

    @classmethod
    def of(cls, desc: OpDesc, entry: Entry) -> Object:
        """Return the object of an operator's entry."""
        artifact = entry.artifact
        return cls(desc.components(), entry.key.operator, entry.pipeline, artifact.data, artifact.kind, artifact.launch)

    def listed(self) -> list[Any]:
        """Return the object's row in the list of its block."""
        row = [self.operator[:_OPERATOR_DIGITS], len(self.object), self.pipeline]
        return row if self.kind == CPU_OBJECT else [*row, self.kind, dict(self.launch)]


class FamilySources(NamedTuple):
    """Which sources of a family define objects.

    Attributes:
        code: The digest that an installed release has for them; it is in the objects' keys.
        text: The digest that a checkout has for them, which comments change too.
    """

    code: str
    text: str


class _ObjectPlace(NamedTuple):
    """The place of an object: the number of its block, and where in it; its origin, kind and launch."""

    block: int
    start: int
    nbytes: int
    pipeline: str
    kind: str = CPU_OBJECT
    launch: Mapping[str, Any] = _CALLED


class _Block(NamedTuple):
    """A block: where it is in the file, and its digest."""

    start: int
    nbytes: int
    sha256: str


class _Unpacking:
    """A block that is unpacked as far as was asked for, by one thread at a time.

    Args:
        data: The block, compressed.
        nbytes: Its bytes, unpacked.
    """

    def __init__(self, data: bytes, nbytes: int) -> None:
        self._rest, self._nbytes = data, nbytes
        self._unpacked = bytearray()
        self._decompressor = _decompressor()

    def part(self, start: int, end: int) -> bytes:
        """Return the bytes between two places; where the block ends, its data has to end, too.

        Raises:
            ValueError: If it is damaged, or has another size.
        """
        is_last = end == self._nbytes
        lacking = end + is_last - len(self._unpacked)  # of what has ended, one byte more tells
        if lacking > 0 and not self._decompressor.eof:
            try:
                self._unpacked += self._decompressor.decompress(self._rest, lacking)
            except lzma.LZMAError as error:
                raise ValueError("a part of it is not what was written") from error
            self._rest = b""
        has_ended = self._decompressor.eof and not self._decompressor.unused_data
        if len(self._unpacked) < end or (is_last and not (has_ended and len(self._unpacked) == end)):
            raise ValueError("a part of it has another size")
        return bytes(self._unpacked[start:end])


class PackFile:
    """A pack file that was read.

    Attributes:
        target: The target's name.
        family: The family's name.
        compiler: What compiled the objects.
        sources: Which sources define them.

    Raises:
        ValueError: If it is damaged, or of another format.
    """

    def __init__(self, data: bytes) -> None:
        header = _HEADER.match(data[:_HEADER_LIMIT])
        if header is None or int(header[1]) != _FORMAT:
            raise ValueError("it is no pack of this release")
        end = header.end() + int(header[3])
        listed = data[header.end() : end]
        if sha256(listed) != header[2].decode():
            raise ValueError("its list is not what was written")
        content = parse_json(_decompressed(listed, _LIST))
        self.target, self.family = str(content["level"]), str(content["family"])
        try:
            target_named(self.target)
        except LookupError:
            raise ValueError(f"there is no level {self.target!r:.100}") from None
        self.compiler = CompilerIdentity(**_texts(content["compiler"]))
        self.sources = FamilySources(**_texts(content["sources"]))
        self._data = data
        self._blocks: list[_Block] = []
        self._sizes: list[int] = []
        self._places: dict[str, _ObjectPlace] = {}
        for nbytes, digest, objects in content["blocks"]:
            start = 0
            for operator, size, pipeline, *launched in objects:
                self._places[operator] = _ObjectPlace(len(self._blocks), start, _size(size), pipeline, *launched)
                start += size
            self._blocks.append(_Block(end, _size(nbytes), digest))
            self._sizes.append(_size(start))
            end += nbytes
        nbytes, digest = content["descriptors"]
        self._descriptors = _Block(end, _size(nbytes), digest)
        self._unpacked: dict[int, _Unpacking] = {}

    def __len__(self) -> int:
        return len(self._places)

    def key(self, asked: Key) -> Key | None:
        """Return the key that the object has here that serves for a key; None if the family's sources are others.

        Whatever compiler is asked for: which one made the objects was decided when the release was.
        """
        return self.own_key(asked) if asked.components["sources"] in self.sources else None

    def own_key(self, asked: Key) -> Key:
        """Return the key that an operator has here, whatever its sources and its compiler."""
        components = {
            **asked.components,
            "compiler": self.compiler.components(),
            "sources": self.sources.code,
        }
        return Key(components, key_digest(components))

    def pipeline(self, key: Key) -> str | None:
        """Return the digest of the pipeline of a key of this file; None if there is no object."""
        place = self._places.get(key.operator[:_OPERATOR_DIGITS])
        return None if place is None else place.pipeline

    def has_compiled(self, pipelines: Mapping[str, str]) -> bool:
        """Return whether operators, by their names (``Key.operator_stem``), were compiled from just these pipelines."""
        known = {int(operator[:16], 16): place.pipeline for operator, place in self._places.items()}
        return all(known.get(int(stem.rpartition("_")[2])) == pipeline for stem, pipeline in pipelines.items())

    def artifact(self, key: Key) -> Artifact | None:
        """Return the artifact of a key of this file; None if it has none.

        Raises:
            ValueError: If it is damaged.
        """
        place = self._places.get(key.operator[:_OPERATOR_DIGITS])
        return None if place is None else Artifact(self._object(place), kind=place.kind, launch=place.launch)

    def objects(self) -> list[Object]:
        """Return all objects as they were packed, in their order; of their operators it has the first digits.

        Raises:
            ValueError: If it is damaged.
        """
        return [
            Object(components, operator, place.pipeline, self._object(place), place.kind, place.launch)
            for components, (operator, place) in zip(self.descriptors(), self._places.items(), strict=True)
        ]

    def descriptors(self) -> list[Mapping[str, Any]]:
        """Return the descriptors of all objects (``OpDesc.components``), in the order of the objects.

        Raises:
            ValueError: If they are damaged.
        """
        found = parse_json(_decompressed(self._packed(self._descriptors), _LIST))
        if not isinstance(found, list):
            raise ValueError("its descriptors are no list")
        return found

    def compressed(self, content: bytes) -> bytes | None:
        """Return a content as one of its parts holds it, which need not be compressed again; None if none does."""
        alike = [block for block, size in zip(self._blocks, self._sizes, strict=True) if size == len(content)]
        with suppress(ValueError):  # what is damaged is written again
            for data in map(self._packed, (*alike, self._descriptors)):
                if _decompressed(data, _LIST) == content:
                    return data
        return None

    def _object(self, place: _ObjectPlace) -> bytes:
        number = place.block
        block = self._unpacked.pop(number, None)  # who asks, forks or is interrupted meanwhile has to begin anew
        if block is None:
            block = _Unpacking(self._packed(self._blocks[number]), self._sizes[number])
        found = block.part(place.start, place.start + place.nbytes)
        self._unpacked[number] = block
        return found

    def _packed(self, block: _Block) -> bytes:
        data = self._data[block.start : block.start + block.nbytes]
        if sha256(data) != block.sha256:
            raise ValueError("a part of it is not what was written")
        return data


def pack_bytes(
    target: str,
    family: str,
    compiler: CompilerIdentity,
    sources: FamilySources,
    objects: Sequence[Object],
    before: PackFile | None = None,
) -> bytes:
    """Return the bytes of a pack file, its objects in the order given.

    Parts of the file ``before`` are taken that hold the same; to compress them again would take a while.
    """

    def compressed(content: bytes) -> bytes:
        return (None if before is None else before.compressed(content)) or _compressed(content)

    blocks, packed = [], []
    for group in _grouped(objects):
        data = compressed(b"".join(each.object for each in group))
        blocks.append([len(data), sha256(data), [each.listed() for each in group]])
        packed.append(data)
    descriptors = compressed(canonical_json([each.components for each in objects]).encode())
    content = {
        "level": target,
        "family": family,
        "compiler": compiler.components(),
        "sources": sources._asdict(),
        "blocks": blocks,
        "descriptors": [len(descriptors), sha256(descriptors)],
    }
    head = _compressed(canonical_json(content).encode())
    line = f"opbuild pack {_FORMAT} {sha256(head)} {len(head)}\n".encode()
    return b"".join((line, head, *packed, descriptors))


def read_pack(path: Path) -> PackFile:
    """Return a pack file.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it is damaged, or of another format.
    """
    return parse_pack(_PUBLIC.read(path, _PACK))


def parse_pack(data: bytes) -> PackFile:
    """Return the pack file of some bytes.

    Raises:
        ValueError: If it is damaged, or of another format.
    """
    try:
        return PackFile(data)
    except (KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError("its list is not what was written") from error


def _grouped(objects: Iterable[Object]) -> Iterator[list[Object]]:
    group: list[Object] = []
    nbytes = 0
    for each in objects:
        if group and nbytes + len(each.object) > _BLOCK:
            yield group
            group, nbytes = [], 0
        group.append(each)
        nbytes += len(each.object)
    if group:
        yield group


def _compressed(data: bytes) -> bytes:
    return lzma.compress(data, lzma.FORMAT_XZ, lzma.CHECK_NONE, None, _FILTERS)


def _decompressor() -> lzma.LZMADecompressor:
    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MEMORY)


def _decompressed(data: bytes, most: int) -> bytes:
    """Return the decompressed bytes; nothing beyond ``most`` bytes is unpacked.

    Raises:
        ValueError: If it is damaged, or has more.
    """
    unpacking = _decompressor()
    try:
        found = unpacking.decompress(data, most + 1)
    except lzma.LZMAError as error:
        raise ValueError("a part of it is not what was written") from error
    if len(found) > most or not unpacking.eof or unpacking.unused_data:
        raise ValueError("a part of it is not what was written")
    return found


def _texts(found: Any) -> Mapping[str, str]:
    if not isinstance(found, dict) or not all(isinstance(text, str) for text in found.values()):
        raise ValueError("its list is not what was written")
    return found


def _size(found: Any) -> int:
    """Return a number of bytes that an object or a block can have."""
    if type(found) is not int or not 0 <= found <= OBJECT:
        raise ValueError(f"a part of it has {found!r:.100} bytes")
    return found
