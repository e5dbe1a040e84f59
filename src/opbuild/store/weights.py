"""Packed weights on disk, shared by every network and signature that packs the same values the same way.

    weights/<BLAKE3 of the bytes>.bin      the packed bytes, mapped by every process that uses them
    weights/<BLAKE3 of the source>.json    which bytes a source packs to

With the second file a constant that was packed before is mapped and not packed again: after an edit of one layer only
that layer is.
"""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np

from opbuild.files.mapping import map_file, verified
from opbuild.files.private import publish
from opbuild.files.trust import MEMO, PRIVATE, Trust, parse_json
from opbuild.kernel.networks import Bytes, Weight
from opbuild.kernel.reason import Reason
from opbuild.platform.digest import is_digest
from opbuild.platform.paths import Path
from opbuild.store.items import REFUSED, Form, reason_of

_DIGEST = "[0-9a-f]{64}"

WEIGHTS = Form("weight", (".bin",), _DIGEST)
REFERENCES = Form("reference", (".json",), _DIGEST)
"""What says which weights a source packs to."""


class DiskWeights:
    """Weights in one folder. Threads and processes may share it.

    Args:
        folder: ``network_meta/weights``; created when the first are put there.
        trust: Whose files are believed, and what references are signed with.
        copies: Whether weights are copied instead of mapped.
    """

    def __init__(self, folder: Path, *, trust: Trust = PRIVATE, copies: bool = False) -> None:
        self.folder = folder
        self.trust = trust
        self.copies = copies

    def get(self, digest: str, nbytes: int, state: Any = None) -> Weight | Reason:
        """Return weights, mapped or copied; they are not read where their file has the state that it had before."""
        if not is_digest(digest):
            return Reason("damaged", f"{digest[:80]!r} is not a digest")
        path = self._file(digest)
        try:
            return Weight(digest, *verified(path, nbytes, digest, state, self.trust, copies=self.copies))
        except OSError as error:
            return reason_of(error, missing="absent")

    def whole(self, digest: str) -> Weight | Reason:
        """Return weights of whatever size, compared with their digest."""
        try:
            return self.get(digest, self._file(digest).stat().st_size)
        except OSError as error:
            return reason_of(error, missing="absent")

    def put(self, digest: str, array: Bytes) -> Weight | Reason:
        """Add weights unless they are there, byte for byte; return them mapped or, where copies are, as given."""
        path = self._file(digest)
        try:
            if not self._holds(path, array):
                publish(path, array.data)
            mapped, state = map_file(path, array.nbytes, self.trust)
        except OSError as error:
            return Reason("unwritable", f"{self.folder}: {error.strerror or error}")
        return Weight(digest, array if self.copies else mapped, state)

    def find(self, source: str, nbytes: int) -> Weight | Reason:
        """Return what a source was packed to."""
        try:
            stored = self.trust.read_memo(self._reference(source))
            return self.get(str(stored["blake3"]), nbytes, stored["state"])
        except REFUSED as error:
            return reason_of(error, missing="absent")

    def remember(self, source: str, weight: Weight) -> str | None:
        """Write down what a source packs to; return None, or why the storage refused."""
        path = self._reference(source)
        memo = {"blake3": weight.digest, "nbytes": weight.array.nbytes, "state": weight.state}
        try:
            publish(path, self.trust.write_memo(path, memo))
        except OSError as error:
            return f"{self.folder}: {error.strerror or error}"
        return None

    def _holds(self, path: Path, array: Bytes) -> bool:
        with contextlib.suppress(OSError):
            return bool(np.array_equal(map_file(path, array.nbytes, self.trust)[0], array))
        return False

    def _file(self, digest: str) -> Path:
        return self.folder / f"{digest}.bin"

    def _reference(self, source: str) -> Path:
        return self.folder / f"{source}.json"


def weights_file(digest: str) -> str:
    """Return the path of packed weights, below the folder of networks."""
    return f"weights/{digest}.bin"


def read_reference(path: Path, trust: Trust) -> tuple[str, int]:
    """Return the digest and the bytes of the weights to which a file says that its source packs.

    Raises:
        OSError: If it can not be read or others can write to it.
        ValueError: If it says nothing of the kind, or is not signed; or ``KeyError``, ``TypeError``.
    """
    content = trust.read_memo(path)
    digest, nbytes = content["blake3"], content["nbytes"]
    if not is_digest(digest) or not isinstance(nbytes, int):
        raise ValueError("it names no weights")
    return digest, nbytes


def remove_references(folder: Path, weights: set[str]) -> None:
    """Remove what says, whoever wrote it, that a source packs to weights which are gone."""
    if not weights:
        return
    with contextlib.suppress(OSError):
        for path in folder.glob("*.json"):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                if parse_json(Trust(shared=True).read(path, MEMO))["blake3"] in weights:
                    path.unlink()
