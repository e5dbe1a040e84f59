"""Weights on disk: packed constants, shared by every network and signature that packs the same values the same way.

    weights/<BLAKE3 of the bytes>.bin      the packed bytes, mapped by every process that uses them
    weights/<BLAKE3 of the source>.json    which bytes a source packs to: the source names values by digest, and the
    packing

With the second file a constant that was packed before is mapped and not packed again: after an edit of one layer only
that layer is. Constants below ``SMALL`` travel in the image of their network instead, one file for all of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from opbuild.errors import BuildError
from opbuild.events import Watch, unwatched
from opbuild.files.mapping import anonymous, map_file, verified
from opbuild.files.private import publish
from opbuild.files.trust import PRIVATE, Trust
from opbuild.graph.types import Array
from opbuild.platform.digest import fast
from opbuild.program import Buffer, Program
from opbuild.runtime.process import keep_freed_memory
from opbuild.runtime.record import ALIGNMENT, Constant
from opbuild.text.canonical import canonical_json
from opbuild.text.plural import counted

SMALL = 64 * 1024
"""Bytes below which a constant has no file of its own."""


@dataclass
class WeightStore:
    """The folder of packed weights.

    Attributes:
        folder: ``network_meta/weights``; None keeps everything in memory.
        salt: What else decides how sources are packed: the digest of opbuild's own sources.
        problem: Why something could not be stored, or empty; then the network has no stored image.
        states: For each digest that was mapped the state of its file, to be remembered with the image.
        packed: Number of constants that had to be packed.
        reuse: Whether weights that were packed before are used.
        trust: Whose files are believed.
        copies: Whether networks get copies of the bytes instead of their mappings.
    """

    folder: Path | None
    salt: str = ""
    problem: str = ""
    states: dict[str, list[Any]] = field(default_factory=dict)
    packed: int = 0
    reuse: bool = True
    trust: Trust = PRIVATE
    copies: bool = False
    _references: dict[Path, dict[str, Any]] = field(default_factory=dict)
    _in_memory: dict[Hashable, tuple[str, Array]] = field(default_factory=dict)

    def get(self, digest: str, nbytes: int, remembered: Any = None) -> Array:
        """Return stored bytes, mapped or copied.

        Raises:
            OSError: If they are not there or not what the digest says.
        """
        if self.folder is None:
            raise FileNotFoundError("nothing is stored")
        if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
            raise OSError(f"{digest[:80]!r} is not a digest")
        path = self.folder / f"{digest}.bin"
        array, self.states[digest] = verified(path, nbytes, digest, remembered, self.trust, copies=self.copies)
        return array

    def find(self, buffer: Buffer, source: Hashable | None) -> tuple[str, Array] | None:
        """Return digest and bytes of a constant that was packed before, or None."""
        if self.folder is None:
            return self._in_memory.get(source) if source is not None else None
        reference = self._reference(source)
        if reference is None or not self.reuse:
            return None
        nbytes = _nbytes(buffer)
        try:
            stored = self.trust.read_memo(reference)
            return str(stored["blake3"]), self.get(str(stored["blake3"]), nbytes, stored["state"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def put(self, array: Array, source: Hashable | None) -> tuple[str, Array]:
        """Store packed bytes; return their digest and their mapping, or the array itself if they can not be stored."""
        if self.copies:
            array = array.copy()  # it may be the mapping of a model's data
        data = array.data
        digest = fast(data)
        if self.folder is None:
            if source is not None:
                self._in_memory[source] = digest, array
            return digest, array
        path = self.folder / f"{digest}.bin"
        try:
            if not _holds(path, array, self.trust):
                publish(path, data)
            mapped, state = map_file(path, array.nbytes, self.trust)
            self.states[digest] = state
        except OSError as error:
            self.problem = self.problem or f"packed weights can not be stored: {error}"
            return digest, array
        reference = self._reference(source)
        if reference is not None:
            self._references[reference] = {"blake3": digest, "nbytes": array.nbytes, "state": state}
        return digest, array if self.copies else mapped

    def remember(self) -> None:
        """Write down which bytes the sources pack to that were packed since.

        To be called once it is certain that no source changed between its digest and its packing: what is written here
        is believed by every network that has such a source.
        """
        references, self._references = self._references, {}
        try:
            for reference, memo in references.items():
                publish(reference, self.trust.write_memo(reference, memo))
        except OSError as error:
            self.problem = self.problem or f"packed weights can not be stored: {error}"

    def _reference(self, source: Hashable | None) -> Path | None:
        """Return the file that says which bytes a source packs to; None for a source of this process only."""
        if self.folder is None or source is None:
            return None
        try:
            text = canonical_json([self.salt, source])
        except (TypeError, ValueError):
            return None
        return self.folder / f"{fast(text.encode())}.json"


class Constants(NamedTuple):
    """The constants of a program, packed.

    Attributes:
        positions: For each constant buffer its index in ``places``.
        places: Where their bytes are, as the record says it.
        arrays: Their bytes, ``uint8``.
        small: The bytes of all that have no file of their own.
    """

    positions: dict[int, int]
    places: tuple[Constant, ...]
    arrays: tuple[Array, ...]
    small: Array


def pack_constants(program: Program, store: WeightStore, watch: Watch = unwatched) -> Constants:
    """Pack the constants of a program; equal ones once, those packed before not again.

    Args:
        program: The program.
        store: Where large ones are kept.
        watch: Told how many of the bytes are packed.

    Raises:
        BuildError: If packing gives something else than the buffer that it is for.
    """
    keep_freed_memory()
    positions: dict[int, int] = {}
    known: dict[Hashable, int] = {}
    found: list[tuple[str, Array]] = []  # digest (empty: a small one) and bytes
    buffers = [(number, buffer) for number, buffer in enumerate(program.buffers) if buffer.kind == "constant"]
    done, total = 0, sum(_nbytes(buffer) for _, buffer in buffers)
    for number, buffer in buffers:
        source = buffer.source() if buffer.source is not None else None
        identity = ("buffer", number) if source is None else ("source", source)
        if identity not in known:
            known[identity] = len(found)
            found.append(_packed(buffer, source, store))
        positions[number] = known[identity]
        done += _nbytes(buffer)
        watch(done, total)
    offsets, end = [], 0
    for digest, array in found:
        offsets.append(0 if digest else end)
        end += 0 if digest else -(-array.nbytes // ALIGNMENT) * ALIGNMENT
    small = anonymous(end)
    places = tuple(
        Constant(array.nbytes, digest, offset) for (digest, array), offset in zip(found, offsets, strict=True)
    )
    arrays = [array for _, array in found]
    for position, place in enumerate(places):
        if not place.digest:
            target = small[place.offset : place.offset + place.nbytes]
            target[:] = arrays[position]
            arrays[position] = target
    return Constants(positions, places, tuple(arrays), small)


def load_constants(places: Sequence[Constant], small: Array, store: WeightStore, remembered: Any) -> tuple[Array, ...]:
    """Return the bytes of a record's constants.

    Args:
        places: Where they are.
        small: The bytes of those that have no file of their own.
        store: The others.
        remembered: States of files by digest, from when they were last verified.

    Raises:
        OSError: If some are not there or damaged.
    """
    arrays = []
    for place in places:
        if place.digest:
            state = remembered.get(place.digest) if isinstance(remembered, dict) else None
            arrays.append(store.get(place.digest, place.nbytes, state))
            continue
        if not 0 <= place.offset <= small.nbytes - place.nbytes or place.offset % ALIGNMENT:
            raise OSError(f"a constant lies at {place.offset} of {small.nbytes} bytes")
        arrays.append(small[place.offset : place.offset + place.nbytes])
    return tuple(arrays)


def _nbytes(buffer: Buffer) -> int:
    return buffer.size * np.dtype(buffer.dtype).itemsize


def _packed(buffer: Buffer, source: Hashable | None, store: WeightStore) -> tuple[str, Array]:
    nbytes = _nbytes(buffer)
    if nbytes >= SMALL:
        found = store.find(buffer, source)
        if found is not None:
            return found
    store.packed += 1
    if buffer.pack is None:
        raise BuildError("a constant has no contents", "this is an error in opbuild; please report it")
    array = np.ascontiguousarray(buffer.pack())
    if array.size != buffer.size or array.dtype != np.dtype(buffer.dtype):
        raise BuildError(
            f"a constant of {counted(buffer.size, 'element')} of {buffer.dtype} was packed "
            f"to {array.size} of {array.dtype}",
            "this is an error in opbuild; please report it",
        )
    data = array.reshape(-1).view(np.uint8)
    return store.put(data, source) if nbytes >= SMALL else ("", data)


def _holds(path: Path, array: Array, trust: Trust) -> bool:
    """Return whether a file holds exactly these bytes."""
    with contextlib.suppress(OSError):
        stored, _ = map_file(path, array.nbytes, trust)
        return bool(np.array_equal(stored, array))
    return False
