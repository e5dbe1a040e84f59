"""Network images: a built network on disk, which the next process starts without compiler and without model reader.

    network_meta/<network>_<number>.so      the linked kernels
    network_meta/<network>_<number>.bin     all small constants
    network_meta/<network>_<number>.json    the record, and size and digest of the others: the commit mark, published
    last
    network_meta/<network>_<number>.seen    states of the weights' files when they were last verified
    network_meta/weights/                   large constants (``runtime.weights``)

The number is the first 64 bits of the key's digest. An image can only save work: anything missing, damaged or
different is a miss with a reason, the network is put together again and the image replaced.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from opbuild.files.mapping import verified
from opbuild.files.most_bytes import NETWORK
from opbuild.files.private import publish
from opbuild.files.trust import PRIVATE, Trust, parse_json
from opbuild.files.usage import mark_used
from opbuild.graph.types import Array
from opbuild.platform.digest import fast, fast_of
from opbuild.runtime.record import Record
from opbuild.runtime.record_json import from_json, to_json
from opbuild.runtime.weights import Constants, WeightStore, load_constants
from opbuild.text.canonical import canonical_json

FORMAT = 2
"""Raised whenever the files' layout or meaning changes; it is part of the key."""

_HEAD, _MIDDLE, _TAIL = b'{"blake3":"', b'","content":', b"}\n"
_SIGNATURE, _SIGNED_TAIL = b',"signature":"', b'"}\n'
_DIGITS = 64


class ImageKey(NamedTuple):
    """What a stored network was made from.

    Attributes:
        network: The network's name, for the files' names.
        components: Named JSON values: the model, its input signature, options, opbuild itself, the target.
        compiler: Identity of the compiler that is installed; empty if none is, and then any image's will do.
    """

    network: str
    components: Mapping[str, Any]
    compiler: str = ""

    @property
    def stem(self) -> str:
        """The files' name without suffix."""
        digest = fast(canonical_json({"format": FORMAT, **self.components}).encode())
        name = re.sub(r"[^a-z0-9_]+", "_", self.network.lower())[:60].strip("_") or "network"
        return f"{name}_{int(digest[:16], 16)}"


class Image(NamedTuple):
    """A stored network, verified, its constants mapped or copied."""

    record: Record
    library: bytes
    constants: tuple[Array, ...]


class ImageStore:
    """The folder of network images.

    Args:
        folder: ``network_meta``.
        salt: Digest of opbuild's own sources, for the weights' references.
        keep_times: Whether a network that is started notes the time, for ageing.
        trust: Whose files are believed, and what they are signed with.
        copies: Whether networks get copies of their constants instead of mappings of the files.
    """

    def __init__(
        self,
        folder: Path,
        salt: str = "",
        *,
        keep_times: bool = False,
        trust: Trust = PRIVATE,
        copies: bool = False,
    ) -> None:
        self.folder = folder
        self.salt = salt
        self.keep_times = keep_times
        self.trust = trust
        self.copies = copies

    def weights(self, *, stored: bool = True, reuse: bool = True) -> WeightStore:
        """Return the store of packed weights, for one build.

        Args:
            stored: Whether they are to be stored; if not, it is one in memory.
            reuse: Whether weights that were packed before are used.
        """
        folder = self.folder / "weights" if stored else None
        return WeightStore(folder, self.salt, reuse=reuse, trust=self.trust, copies=self.copies)

    def load(self, key: ImageKey) -> Image | str:
        """Return the image of ``key``, or why there is none that may be used."""
        reason = ""
        for _ in range(2):  # another process may replace the files while they are read: look once more
            try:
                return self._load(key)
            except FileNotFoundError as error:
                return reason or (
                    "there is none yet" if str(error.filename).endswith(".json") else f"{error.filename} is gone"
                )
            except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
                reason = str(error)
        return reason

    def save(self, key: ImageKey, record: Record, library: bytes, constants: Constants, weights: WeightStore) -> None:
        """Store a network; its commit mark is published last.

        Raises:
            OSError: If something can not be written.
            ValueError: If the network can not be stored, or its weights could not.
        """
        weights.remember()
        if weights.problem:
            raise ValueError(weights.problem)
        content = {
            "key": dict(key.components),
            "compiler": key.compiler,
            "so": [len(library), fast(library)],
            "bin": [constants.small.nbytes, fast(constants.small.data)],
            "record": to_json(record),
        }
        record_file = self._file(key, ".json")
        sealed = seal(content, record_file.name, self.trust)
        if len(sealed) > NETWORK:
            raise ValueError(f"its record has {len(sealed)} bytes")
        publish(self._file(key, ".so"), library)
        publish(self._file(key, ".bin"), constants.small.data)
        self._remember(key, weights)
        publish(record_file, sealed)
        mark_used(record_file, keep_time=False)

    def _load(self, key: ImageKey) -> Image:
        record_file = self._file(key, ".json")
        content = unseal(self.trust.read(record_file, NETWORK), record_file.name, self.trust)
        if content["key"] != json.loads(canonical_json(dict(key.components))):
            raise ValueError("it was made from something else")
        if key.compiler and content["compiler"] != key.compiler:
            raise ValueError("another compiler is installed now")
        mark_used(record_file, keep_time=self.keep_times)  # first, so that nobody ages it meanwhile
        nbytes, digest = size_and_digest(content["so"])
        library = self.trust.read(self._file(key, ".so"), nbytes)
        if (len(library), fast(library)) != (nbytes, digest):
            raise ValueError("its library is damaged")
        nbytes, digest = size_and_digest(content["bin"])
        small, _ = verified(self._file(key, ".bin"), nbytes, digest, None, self.trust, copies=self.copies)
        record = from_json(content["record"])
        if [[port.name, port.type.dtype, list(port.type.shape)] for port in record.inputs] != content["key"]["inputs"]:
            raise ValueError("it is for other inputs than its key says")
        weights = self.weights()
        remembered = self._remembered(key)
        constants = load_constants(record.constants, small, weights, remembered)
        if weights.states != remembered:
            with contextlib.suppress(OSError):  # costs only the reading next time
                self._remember(key, weights)
        return Image(record, library, constants)

    def _remember(self, key: ImageKey, weights: WeightStore) -> None:
        seen = self._file(key, ".seen")
        publish(seen, self.trust.write_memo(seen, weights.states))

    def _remembered(self, key: ImageKey) -> Any:
        try:
            return self.trust.read_memo(self._file(key, ".seen"))
        except (OSError, ValueError):
            return {}

    def _file(self, key: ImageKey, suffix: str) -> Path:
        return self.folder / (key.stem + suffix)


def seal(content: Mapping[str, Any], name: str, trust: Trust = PRIVATE) -> bytes:
    """Return JSON that carries the digest of its own content and name, and if there is a key a signature of both.

    Args:
        content: What to store.
        name: The file's name: what is sound under one name is not under another, whose content it is not.
        trust: What it is signed with.
    """
    return seal_text(canonical_json(dict(content)).encode(), name, trust)


def seal_text(body: bytes, name: str, trust: Trust = PRIVATE) -> bytes:
    """Return what ``seal`` returns, for a content that is JSON's text already."""
    digest = _digest(name, body)
    signature = trust.sign("sealed", name, digest)
    return _HEAD + digest.encode() + _MIDDLE + body + _end(signature)


def unseal(data: bytes, name: str, trust: Trust = PRIVATE) -> Any:
    """Return the content that ``seal`` wrote into the file of this name.

    Raises:
        SignatureError: If there is a key, and it is not signed with it under this name.
        ValueError: If it is damaged, or was written under another name.
    """
    start, end, signature = len(_HEAD) + _DIGITS + len(_MIDDLE), -len(_TAIL), ""
    if data.endswith(_SIGNED_TAIL):  # a content is an object, and ends with another sign
        digits = len(data) - len(_SIGNED_TAIL) - _DIGITS
        end, signature = digits - len(_SIGNATURE), data[digits : digits + _DIGITS].decode(errors="replace")
    body = data[start:end]
    digest = _digest(name, body) if data.startswith(_HEAD) else ""
    if data[:start] != _HEAD + digest.encode() + _MIDDLE or data[end:] != _end(signature):
        raise ValueError("its record is damaged, or was written for another file")
    trust.check_signature(signature, "sealed", name, digest)
    return parse_json(body)


def _digest(name: str, body: bytes) -> str:
    return fast_of([name.encode(errors="surrogateescape"), b"\n", body])


def _end(signature: str) -> bytes:
    return _SIGNATURE + signature.encode(errors="replace") + _SIGNED_TAIL if signature else _TAIL


def size_and_digest(parts: Any) -> tuple[int, str]:
    """Return what a record says of one of the network's files.

    Raises:
        ValueError: If it says nothing of the kind; or ``TypeError``.
    """
    nbytes, digest = parts
    return int(nbytes), str(digest)
