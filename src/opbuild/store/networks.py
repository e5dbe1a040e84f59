"""Built networks, which the next process starts without compiler and without model reader.

    network_meta/<network>_<number>.so      the linked kernels
    network_meta/<network>_<number>.bin     all small constants
    network_meta/<network>_<number>.json    key, record, and size and digest of the two: the commit mark, shown last
    network_meta/<network>_<number>.seen    states of the weights' files when they were last verified

A network can only save work: anything missing, damaged or different is a miss with a reason, the network is put
together again and replaced.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from opbuild.kernel.networks import NetworkKey, StoredNetwork
from opbuild.kernel.reason import Reason
from opbuild.platform.digest import blake3_of
from opbuild.platform.files.trust import NETWORK, PRIVATE, Trust, seal, unseal
from opbuild.platform.paths import Path
from opbuild.platform.records import NamedTuple
from opbuild.store.blobs import ABSENT, Blobs, Data, Folder, LocalBlobs, LocalMemos
from opbuild.store.hints import ANSWERS_SUFFIX, answers_of, known_answers, note_answers
from opbuild.store.items import REFUSED, FileForm, Item, read_quietly, reason_of
from opbuild.text.canonical import canonical_json

if TYPE_CHECKING:
    from opbuild.kernel.networks import Answers

_STEM = r"[a-z0-9_]+_[0-9]+"

NETWORKS = FileForm("network", (".json", ".so", ".bin", ".seen"), _STEM, marked=True)
"""A network's files."""

MODELS = FileForm("memo", (".model", ".digest"), _STEM)
"""What is remembered beside networks of models, and of their files."""

_DIGEST = rb'"([0-9a-f]{64})"'
_ANYBODYS = Trust(shared=True)
"""What is only to be removed may be anybody's; but a pipe in a file's place must make nobody wait."""


class Networks:
    """Networks as blobs of this machine, in ``network_meta``. Threads and processes may share it."""

    def __init__(self, blobs: LocalBlobs) -> None:
        self.blobs = blobs
        self._states = LocalMemos(blobs, ".seen")

    def lookup(self, key: NetworkKey) -> StoredNetwork | Reason:
        """Return a network, library and constants checked byte for byte, or why there is none.

        Codes of the reason are those of an entry's look-up, and ``other-compiler``.
        """
        found = self._lookup(key)
        if isinstance(found, Reason) and found.code != ABSENT:  # another process may just have replaced the files
            found = self._lookup(key)
        return found

    def publish(self, key: NetworkKey, network: StoredNetwork) -> str | None:
        """Add or replace a network; return None, or why the storage refused."""
        names, trust = [key.stem + suffix for suffix in (".so", ".bin", ".seen", ".json")], self.blobs.trust
        content = {
            "key": dict(key.components),
            "compiler": network.compiler,
            "so": [len(network.library), blake3_of(network.library)],
            "bin": [network.constants.nbytes, blake3_of(network.constants.data)],
            "record": network.record,
        }
        sealed = seal(content, names[-1], trust)
        if len(sealed) > NETWORK:
            return f"its record has {len(sealed)} bytes"
        states = trust.write_memo(self.blobs.path / names[2], network.states)
        contents = (network.library, network.constants.data, states, sealed)
        problem = self.blobs.put(list(zip(names, contents, strict=True)))
        if problem is not None:
            return problem.text
        self.blobs.used(names[-1], is_new=True)
        if key.is_tuned:  # how, since nobody could tell its name else; another one says it itself
            note_answers(LocalMemos(self.blobs, ANSWERS_SUFFIX), key.tuned("").stem, network.record)
        return None

    def answers(self, key: NetworkKey) -> Iterator[Answers]:
        """Return the answers of families by which networks were made that differ from ``key`` in tuning alone."""
        yield from reversed(known_answers(LocalMemos(self.blobs, ANSWERS_SUFFIX), key.tuned("").stem))
        untuned = read_network(key.tuned("").stem, self.blobs, whole=False)
        if isinstance(untuned, NetworkFiles):
            yield from answers_of(untuned.record)

    def note(self, key: NetworkKey, states: Mapping[str, Any]) -> None:
        """Keep new states of a network's weights; lost ones cost only the reading next time."""
        self._states.write(key.stem, states)

    def _lookup(self, key: NetworkKey) -> StoredNetwork | Reason:
        stem = key.stem
        content = _content(stem, self.blobs, self.blobs.trust)
        if isinstance(content, Reason):
            return Reason(ABSENT, "there is none yet") if content.code == ABSENT else content
        try:
            if content["key"] != json.loads(canonical_json(dict(key.components))):
                return Reason("other-key", "it was made from something else")
            compiler = str(content["compiler"])
            if not key.suits(compiler):
                return Reason("other-compiler", "another compiler is installed now")
            self.blobs.used(f"{stem}.json")  # first, so that nobody ages it meanwhile
            library = _part(stem, ".so", content, self.blobs, "its library is damaged")
            if isinstance(library, Reason):
                return library
            small = self.blobs.mapped(f"{stem}.bin", *_size_and_digest(content["bin"]))
            if isinstance(small, Reason):
                return _incomplete(small)
            return StoredNetwork(content["record"], bytes(library), small[0], self._states.read(stem), compiler)
        except REFUSED as error:
            return reason_of(error)


def networks_in(folder: Path, *, keep_times: bool = False, trust: Trust = PRIVATE, copies: bool = False) -> Networks:
    """Return the networks in a folder; see ``Folder``."""
    return Networks(Folder(folder, trust, keep_times=keep_times, copies=copies))


class NetworkFiles(NamedTuple):
    """The content of a network's files, checked but for its weights.

    Attributes:
        key: What it was made from.
        compiler: Digest of the compiler that made its kernels; empty: a release brings all of them.
        record: What the runtime stored.
        library: Its shared library; empty if only the record was read.
        constants: Its small constants; empty if only the record was read.
    """

    key: NetworkKey
    compiler: str
    record: Any
    library: Data = b""
    constants: Data = b""


def read_network(name: str, blobs: Blobs, trust: Trust = PRIVATE, *, whole: bool = True) -> NetworkFiles | Reason:
    """Return the content of a network's files without knowing who asks for it, or their problem.

    Unless it is to be whole, only the record is read.
    """
    content = _content(name, blobs, trust)
    if isinstance(content, Reason):
        return _incomplete(content)
    try:
        key = NetworkKey(name.rpartition("_")[0], dict(content["key"]))
        parts = list[Data]()
        for suffix in (".so", ".bin") if whole else ():
            part = _part(name, suffix, content, blobs)
            if isinstance(part, Reason):
                return part
            parts.append(part)
        return NetworkFiles(key, str(content["compiler"]), content["record"], *parts)
    except REFUSED as error:
        return reason_of(error)


def _content(name: str, blobs: Blobs, trust: Trust) -> Any | Reason:
    """Return the content of a network's record, or its problem."""
    sealed = blobs.get(f"{name}.json", NETWORK)
    try:
        return sealed if isinstance(sealed, Reason) else unseal(bytes(sealed), f"{name}.json", trust)
    except REFUSED as error:
        return reason_of(error)


def _part(name: str, suffix: str, content: Any, blobs: Blobs, damaged: str = "") -> Data | Reason:
    """Return one of a network's other files, which must fit its record."""
    nbytes, digest = _size_and_digest(content[suffix[1:]])
    part = blobs.get(name + suffix, nbytes)
    if isinstance(part, Reason):
        return _incomplete(part)
    is_sound = (len(part), blake3_of(part)) == (nbytes, digest)
    return part if is_sound else Reason("damaged", damaged or f"{suffix} is not what was written")


def _incomplete(reason: Reason) -> Reason:
    """Return a reason of one file as that of a network which lacks it."""
    return reason._replace(code="incomplete") if reason.code == ABSENT else reason


def digests_in(record: Any) -> frozenset[str]:
    """Return the digests in a stored network's record: those of all its weights, and a few more."""
    return frozenset(digest.decode() for digest in re.findall(_DIGEST, json.dumps(record).encode()))


def weights_of(network: Item) -> frozenset[str]:
    """Return the digests that a stored network mentions: those of all its weights, and a few more."""
    try:
        record = read_quietly(Path(network.mark), NETWORK, _ANYBODYS)  # else this reading would be its last use
    except OSError:
        return frozenset()
    return frozenset(digest.decode() for digest in re.findall(_DIGEST, record))


def _size_and_digest(parts: Any) -> tuple[int, str]:
    nbytes, digest = parts
    return int(nbytes), str(digest)
