"""Manifest: one object that lists the parts of a network, and has its small pieces in it.

    a line of JSON, with SHA-256 and size of each piece that follows; then those pieces

So a network of small contents is one request. Of others the library and the constants come first, then the smallest
pieces of weights: all of it is no more than one piece, which one limit of time is for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from opbuild.files.trust import parse_json
from opbuild.kernel.networks import NetworkKey, StoredNetwork
from opbuild.platform.records import NamedTuple
from opbuild.store.items import REFUSED
from opbuild.store.remote.contents import PIECE, ContentDigests
from opbuild.store.remote.objects import sha256_of

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
    """Return a manifest as it is written.

    Args:
        key: What the network was made from.
        network: The network.
        contents: Its ``library`` and ``constants``, and its weights by BLAKE3.
        held: The pieces that it has in it.
    """
    said = {
        "key": dict(key.components), "compiler": network.compiler, "record": network.record,
        "library": contents["library"], "constants": contents["constants"],
        "weights": {name: each for name, each in contents.items() if name not in ("library", "constants")},
        "operators": operators_of(network.record),
        "held": [[digest, piece.nbytes] for digest, piece in held.items()],
    }  # fmt: skip
    return b"".join([json.dumps(said).encode(), b"\n", *held.values()])


def parse_manifest(stem: str, body: bytes) -> Manifest:
    """Return the manifest in some bytes.

    Args:
        stem: What the network is called.
        body: The manifest.

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
    held = _held(said["held"], rest)
    return Manifest(key, str(said["compiler"]), said["record"], library, constants, weights, operators, held)


def _held(said: Any, rest: bytes) -> dict[str, bytes]:
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
