"""ModelMemory: the memory of models beside the networks that were built of them.

    network_meta/<model>_<number>.digest    the digest of a model's file, and the state of the file when it was read
    network_meta/<model>_<number>.model     JSON: a model's digest, its inputs and outputs

With both a network that was built before starts without reading its model. A folder that cannot be read or written
costs only time.

A model's digest is that of the message without its large tensors, and of each of these, which says later what its
weights were packed to: every byte is digested once.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from itertools import islice

from opbuild.frontend.models.declaration import Declaration, declared_from_json
from opbuild.platform.digest import blake3_of
from opbuild.platform.files.mapping import Array, KnownFile, digest_of, remembered_digest
from opbuild.platform.files.private import publish
from opbuild.platform.files.trust import MEMO, PRIVATE, Trust, seal, unseal
from opbuild.platform.paths import Path
from opbuild.platform.records import NamedTuple, dataclass, field
from opbuild.platform.sources import own_sources
from opbuild.store.items import mark_used
from opbuild.store.networks import MODELS
from opbuild.text.canonical import canonical_json

FORM = 3
"""How digests are taken. A cache remembers them: when this code gives a model another one, this is counted up."""

SUFFIX = MODELS.suffixes[0]

_NAMES_AT_MOST = 2000
"""Names of stored networks' files looked at to find out that a model is new: a millisecond."""


class Digested(NamedTuple):
    """The digest of a serialised model, and the message that remains of it without its large tensors."""

    digest: str
    message: bytes


def digest_model(contents: Array) -> Digested:
    """Return the digest of a serialised model, ``uint8``; those of its large tensors are known while it is there."""
    from opbuild.frontend.wire import without_large_tensors
    from opbuild.platform.files.held import digest_parts

    message, places = without_large_tensors(contents.data)
    tensors = [[*place, digest] for place, digest in zip(places, digest_parts(contents, places), strict=True)]
    return Digested(blake3_of(canonical_json([blake3_of(message), tensors]).encode()), message)


@dataclass
class ModelMemory:
    """The memory of models.

    Attributes:
        folder: ``network_meta``.
        trust: Whose files are believed.
        reads: Whether what is remembered is used.
        writes: Whether anything is remembered.
        keeps_times: Whether what is used is marked so, for ageing.
    """

    folder: Path
    trust: Trust
    reads: bool
    writes: bool
    keeps_times: bool
    _looked_up: dict[Path, KnownFile] = field(default_factory=dict, init=False)

    def is_not_cached(self, path: Path) -> bool:
        """Return whether a file was edited since its digest was remembered, or no model of its name was ever built.

        Else it may be a copy, or so new when it was built that its digest was not remembered; or there are too many
        networks to be sure. The file itself is not read.
        """
        if not self.reads:
            return True
        memo = self.digest_file(path)
        known = remembered_digest(path, memo, self.trust)
        if known is not None:
            self._looked_up[path] = known
            return False
        try:
            if memo.exists():
                return True
            with os.scandir(self.folder) as listing:
                names = [entry.name for entry in islice(listing, _NAMES_AT_MOST)]
        except OSError:  # the folder cannot be one, or not be read
            return True
        start = f"{_plain_name(path.stem)}_"
        models = (name for name in names if name.startswith(start) and name.endswith(SUFFIX))
        return len(names) < _NAMES_AT_MOST and next(models, None) is None

    def digest(self, path: Path, read: Callable[[Path], str] | None = None) -> KnownFile:
        """Return the digest of one of a model's files, which ``read`` reads if it is not known; raises ``OSError``."""
        known = self._looked_up.pop(path, None)
        if known is not None:
            return known
        return digest_of(path, self.digest_file(path) if self.reads else None, read, self.trust)

    def digest_file(self, path: Path) -> Path:
        """Return the file that remembers the digest of a model's file, of the form that this version takes."""
        place = f"{FORM} {os.path.abspath(path)}"
        number = int(blake3_of(place.encode(errors="surrogateescape"))[:16], 16)
        return self.folder / f"{_plain_name(path.stem)}_{number}.digest"

    def declaration_file(self, name: str, digest: str) -> Path:
        """Return the file that remembers a model's declaration; its name decides nothing but how that is called."""
        number = int(blake3_of(f"{digest} {own_sources()}".encode())[:16], 16)
        return self.folder / f"{_plain_name(name)}_{number}{SUFFIX}"

    def declaration(self, file: Path, digest: str) -> Declaration | None:
        """Return the declaration of the model with this digest, if a file remembers it."""
        if not self.reads:
            return None
        try:
            declaration, model = read_declaration(file, self.trust)
            if model != digest:
                return None
            mark_used(file, keep_time=self.keeps_times)
            return declaration
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def keep(self, file: Path, declaration: Declaration, digest: str) -> None:
        """Remember the declaration of the model with this digest."""
        if self.writes:
            with contextlib.suppress(OSError):
                publish(file, seal({"model": digest, **declaration._asdict()}, file.name, self.trust))


def read_declaration(path: Path, trust: Trust = PRIVATE) -> tuple[Declaration, str]:
    """Return the declaration that a file remembers, and the digest of the model whose it is.

    Raises:
        OSError: If it cannot be read or others can write to it.
        ValueError: If it is not what was written into a file of this name, or not signed; or ``KeyError``,
            ``TypeError``.
    """
    content = unseal(trust.read(path, MEMO), path.name, trust)
    inputs, outputs = (tuple(declared_from_json(*each) for each in content[side]) for side in ("inputs", "outputs"))
    return Declaration(content["name"], inputs, outputs, tuple(content["external"])), str(content["model"])


def _plain_name(text: str) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in text.lower())[:60] or "model"
