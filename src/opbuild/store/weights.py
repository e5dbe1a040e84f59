"""Packed weights on disk, shared by every network and signature that packs the same values the same way.

    weights/<BLAKE3 of the bytes>.bin      the packed bytes, mapped by every process that uses them
    weights/<BLAKE3 of the source>.json    which bytes a source packs to

With the second file a constant that was packed before is mapped and not packed again: after an edit of one layer only
that layer is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from opbuild.kernel.networks import Bytes, Weight
from opbuild.kernel.reason import Reason
from opbuild.platform.digest import is_digest
from opbuild.platform.files.trust import MEMO, PRIVATE, Trust, parse_json
from opbuild.platform.finalizers import WeakValues
from opbuild.platform.locks import Lock
from opbuild.platform.paths import Path
from opbuild.store.blobs import Folder, LocalBlobs, LocalMemos
from opbuild.store.items import REFUSED, FileForm, reason_of

_DIGEST = "[0-9a-f]{64}"

WEIGHTS = FileForm("weight", (".bin",), _DIGEST)
_REFERENCE = ".json"

REFERENCES = FileForm("reference", (_REFERENCE,), _DIGEST)
"""What says which weights a source packs to."""


class StoredWeights:
    """Weights as blobs of this machine, in ``network_meta/weights``. Threads and processes may share it.

    What a process still uses is returned instead of another mapping or copy of the same: it maps those of a network
    once, however many sizes it is bound to. Each time it is asked whether the blob is still what it was. Those that
    came from elsewhere and cannot be kept are held here.
    """

    def __init__(self, blobs: LocalBlobs) -> None:
        self.blobs = blobs
        self._references = LocalMemos(blobs, _REFERENCE)
        self._used = WeakValues[str, Bytes]()
        self._held: dict[str, Bytes] = {}
        self._states: dict[str, Any] = {}
        self._lock = Lock()

    def get(self, digest: str, nbytes: int, state: Any = None) -> Weight | Reason:
        """Return weights, mapped or copied; they are not read where their file has the state that it had before."""
        if not is_digest(digest):
            return Reason("damaged", f"{digest[:80]!r} is not a digest")
        found = self.blobs.mapped(f"{digest}.bin", nbytes, digest, state)
        if isinstance(found, Reason):
            held = self._held.get(digest)
            return found if held is None or held.nbytes != nbytes else Weight(digest, held)
        return self._one(Weight(digest, *found))

    def whole(self, digest: str) -> Weight | Reason:
        """Return weights of whatever size, compared with their digest."""
        found = self.blobs.mapped(f"{digest}.bin", None, digest) if is_digest(digest) else Reason("absent", "no digest")
        return found if isinstance(found, Reason) else Weight(digest, *found)

    def put(self, digest: str, array: Bytes) -> Weight | Reason:
        """Add weights unless they are there, byte for byte; return them mapped or, where copies are, as given."""
        name = f"{digest}.bin"
        there = self.blobs.mapped(name, array.nbytes)
        if isinstance(there, Reason) or not np.array_equal(there[0], array):
            if (problem := self.blobs.put([(name, array.data)])) is not None:
                return problem
            there = self.blobs.mapped(name, array.nbytes)
        if isinstance(there, Reason):
            return Reason("unwritable", there.text)
        return self._one(Weight(digest, array if self.blobs.copies else there[0], there[1]))

    def find(self, source: str, nbytes: int) -> Weight | Reason:
        """Return the packed weight of a source."""
        stored = self._references.stored(source)
        try:
            return stored if isinstance(stored, Reason) else self.get(str(stored["blake3"]), nbytes, stored["state"])
        except REFUSED as error:
            return reason_of(error)

    def remember(self, source: str, weight: Weight) -> str | None:
        """Write down the packed weight of a source; return None, or why the storage refused."""
        memo = {"blake3": weight.digest, "nbytes": weight.array.nbytes, "state": weight.state}
        problem = self._references.write(source, memo)
        return None if problem is None else problem.text

    def hold(self, weight: Weight) -> None:
        """Keep weights that could not be put where the others lie."""
        if weight.state is None:
            self._held[weight.digest] = weight.array

    def used(self, digests: Iterable[str]) -> dict[str, Bytes]:
        """Return those of some weights that passed here and are in use."""
        with self._lock:
            known = {digest: self._used.get(digest) for digest in digests}
        return {digest: array for digest, array in known.items() if array is not None}

    def _one(self, found: Weight) -> Weight:
        """Return the array that is used already, if it is of the very same blob; else note this one."""
        with self._lock:
            known = self._used.get(found.digest)
            if known is not None and self._states[found.digest] == found.state:
                return found._replace(array=known)
            self._used[found.digest], self._states[found.digest] = found.array, found.state
            return found


def weights_in(folder: Path, *, trust: Trust = PRIVATE, copies: bool = False) -> StoredWeights:
    """Return the weights in a folder; see ``Folder``."""
    return StoredWeights(Folder(folder, trust, copies=copies))


def weights_file(digest: str) -> str:
    """Return the path of packed weights, below the folder of networks."""
    return f"weights/{digest}.bin"


def read_reference(path: Path, trust: Trust) -> tuple[str, int]:
    """Return the digest and the bytes of the weights to which a file says that its source packs.

    Raises:
        OSError: If it cannot be read or others can write to it.
        ValueError: If it says nothing of the kind, or is not signed; or ``KeyError``, ``TypeError``.
    """
    content = trust.read_memo(path)
    digest, nbytes = content["blake3"], content["nbytes"]
    if not is_digest(digest) or not isinstance(nbytes, int):
        raise ValueError("it names no weights")
    return digest, nbytes


def remove_references(folder: Path, weights: set[str]) -> None:
    """Remove the references, of whichever writer, from sources to weights which are gone."""
    if not weights:
        return
    with contextlib.suppress(OSError):
        for path in folder.glob("*.json"):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                if parse_json(Trust(shared=True).read(path, MEMO))["blake3"] in weights:
                    path.unlink()
