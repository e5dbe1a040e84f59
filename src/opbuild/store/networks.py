"""Built networks on disk, which the next process starts without compiler and without model reader.

    network_meta/<network>_<number>.so      the linked kernels
    network_meta/<network>_<number>.bin     all small constants
    network_meta/<network>_<number>.json    key, record, and size and digest of the two: the commit mark, shown last
    network_meta/<network>_<number>.seen    states of the weights' files when they were last verified

A network can only save work: anything missing, damaged or different is a miss with a reason, the network is put
together again and replaced.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from opbuild.files.mapping import verified
from opbuild.files.private import publish
from opbuild.files.sealed import seal, unseal
from opbuild.files.trust import NETWORK, PRIVATE, Trust
from opbuild.kernel.networks import ImageKey, StoredNetwork
from opbuild.kernel.reason import Reason
from opbuild.platform.digest import blake3_of
from opbuild.platform.paths import Path
from opbuild.platform.records import NamedTuple
from opbuild.store.items import REFUSED, Form, Item, mark_used, read_quietly, reason_of
from opbuild.text.canonical import canonical_json

if TYPE_CHECKING:
    from opbuild.kernel.answers import Answers

_STEM = r"[a-z0-9_]+_[0-9]+"

NETWORKS = Form("image", (".json", ".so", ".bin", ".seen"), _STEM, marked=True)
"""A network's files."""

MODELS = Form("memo", (".model", ".digest"), _STEM)
"""What is remembered beside networks of models, and of their files."""

_DIGEST = rb'"([0-9a-f]{64})"'
_ANYBODYS = Trust(shared=True)
"""What is only to be removed may be anybody's; but a pipe in a file's place must make nobody wait."""


class DiskNetworks:
    """Networks in one folder. Threads and processes may share it.

    Args:
        folder: ``network_meta``; created when the first network is published.
        keep_times: Whether a look-up that finds a network notes the time, for ageing.
        trust: Whose files are believed, and what they are signed with.
        copies: Whether constants are copied instead of mapped.
    """

    def __init__(self, folder: Path, *, keep_times: bool = False, trust: Trust = PRIVATE, copies: bool = False) -> None:
        self.folder = folder
        self.keep_times = keep_times
        self.trust = trust
        self.copies = copies

    def lookup(self, key: ImageKey) -> StoredNetwork | Reason:
        """Return a network, library and constants checked byte for byte, or why there is none.

        Codes of the reason are those of an entry's look-up, and ``other-compiler``.
        """
        found = self._lookup(key)
        if isinstance(found, Reason) and found.code != "absent":  # another process may just have replaced the files
            found = self._lookup(key)
        return found

    def publish(self, key: ImageKey, network: StoredNetwork) -> str | None:
        """Add or replace a network; return None, or why the storage refused."""
        from opbuild.store.publish import publish_files  # a start never needs it

        names = [key.stem + suffix for suffix in (".so", ".bin", ".seen", ".json")]
        content = {
            "key": dict(key.components),
            "compiler": network.compiler,
            "so": [len(network.library), blake3_of(network.library)],
            "bin": [network.constants.nbytes, blake3_of(network.constants.data)],
            "record": network.record,
        }
        sealed = seal(content, names[-1], self.trust)
        if len(sealed) > NETWORK:
            return f"its record has {len(sealed)} bytes"
        states = self.trust.write_memo(self.folder / names[2], network.states)
        contents = (network.library, network.constants.data, states, sealed)
        problem = publish_files(self.folder, list(zip(names, contents, strict=True)))
        if problem is None:
            mark_used(self.folder / names[-1], keep_time=False)
            self._note_answers(key, network)
        return problem

    def answers(self, key: ImageKey) -> Iterator[Answers]:
        """Return the answers of families by which networks were made that differ from ``key`` in tuning alone."""
        from opbuild.store.answers import answers_of, known_answers  # without banks a start never needs it

        yield from reversed(known_answers(self.folder, key.tuned("").stem, self.trust))
        untuned = read_network(key.tuned("").stem, self._read, self.trust, whole=False)
        if isinstance(untuned, Contents):
            yield from answers_of(untuned.record)

    def note(self, key: ImageKey, states: Mapping[str, Any]) -> None:
        """Keep new states of a network's weights."""
        seen = self.folder / f"{key.stem}.seen"
        with contextlib.suppress(OSError):  # costs only the reading next time
            publish(seen, self.trust.write_memo(seen, states))

    def _lookup(self, key: ImageKey) -> StoredNetwork | Reason:
        stem = key.stem
        mark = self.folder / f"{stem}.json"
        try:
            content = unseal(self.trust.read(mark, NETWORK), mark.name, self.trust)
            if content["key"] != json.loads(canonical_json(dict(key.components))):
                return Reason("other-key", "it was made from something else")
            compiler = str(content["compiler"])
            if not key.suits(compiler):
                return Reason("other-compiler", "another compiler is installed now")
            mark_used(mark, keep_time=self.keep_times)  # first, so that nobody ages it meanwhile
            nbytes, digest = _size_and_digest(content["so"])
            library = self.trust.read(self.folder / f"{stem}.so", nbytes)
            if (len(library), blake3_of(library)) != (nbytes, digest):
                return Reason("damaged", "its library is damaged")
            constants = self.folder / f"{stem}.bin"
            small, _ = verified(constants, *_size_and_digest(content["bin"]), None, self.trust, copies=self.copies)
            return StoredNetwork(content["record"], library, small, self._states(stem), compiler)
        except REFUSED as error:
            if isinstance(error, FileNotFoundError) and str(error.filename) == str(mark):
                return Reason("absent", "there is none yet")
            return reason_of(error)

    def _note_answers(self, key: ImageKey, network: StoredNetwork) -> None:
        """Remember how a network was tuned, since nobody could tell its name else; another one says it itself."""
        if key.is_tuned:
            from opbuild.store.answers import answers_of, note_answers

            for answers in answers_of(network.record):
                note_answers(self.folder, key.tuned("").stem, answers, self.trust)

    def _read(self, name: str, most: int) -> bytes:
        return self.trust.read(self.folder / name, most)

    def _states(self, stem: str) -> Mapping[str, Any]:
        try:
            return self.trust.read_memo(self.folder / f"{stem}.seen")
        except (OSError, ValueError):
            return {}


class Contents(NamedTuple):
    """What a network's files hold, checked but for its weights.

    Attributes:
        key: What it was made from.
        compiler: Digest of the compiler that made its kernels; empty: a release brings all of them.
        record: What the runtime stored.
        library: Its shared library; empty if only the record was read.
        constants: Its small constants; empty if only the record was read.
    """

    key: ImageKey
    compiler: str
    record: Any
    library: bytes | memoryview = b""
    constants: bytes | memoryview = b""


ReadFile = Callable[[str, int], "bytes | memoryview"]
"""Returns the contents of one of a network's files by its name, which can have so many bytes at most."""


def read_network(name: str, read_file: ReadFile, trust: Trust = PRIVATE, *, whole: bool = True) -> Contents | Reason:
    """Return what a network's files hold without knowing who asks for it, or what is wrong with them.

    Args:
        name: The files' name without suffix.
        read_file: Reads one of them.
        trust: What the network must be signed with.
        whole: Whether to read all files, not only the record.
    """
    mark = f"{name}.json"
    try:
        content = unseal(bytes(read_file(mark, NETWORK)), mark, trust)
        key = ImageKey(name.rpartition("_")[0], dict(content["key"]))
        parts = []
        for suffix in (".so", ".bin") if whole else ():
            nbytes, digest = _size_and_digest(content[suffix[1:]])
            parts.append(read_file(name + suffix, nbytes))
            if (len(parts[-1]), blake3_of(parts[-1])) != (nbytes, digest):
                return Reason("damaged", f"{suffix} is not what was written")
        return Contents(key, str(content["compiler"]), content["record"], *parts)
    except REFUSED as error:
        return reason_of(error)


def digests_in(record: Any) -> frozenset[str]:
    """Return the digests in what the runtime stored of a network: those of all its weights, and a few more."""
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
