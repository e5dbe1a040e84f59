"""Built networks in a remote store: one object says what a network consists of, the rest of it are blobs.

So one request tells all that a start needs, and everything is then fetched at once. Blobs are written before what names
them, so that whoever reads a network finds all of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any

from opbuild.files.mapping import anonymous
from opbuild.files.trust import NETWORK, parse_json
from opbuild.kernel.networks import Bytes, ImageKey, StoredNetwork
from opbuild.kernel.reason import Reason
from opbuild.platform.records import NamedTuple
from opbuild.store.at_once import at_once
from opbuild.store.items import REFUSED
from opbuild.store.remote.contents import Contents, InMemory, Target, missing, split
from opbuild.store.remote.objects import NETWORKS, Objects
from opbuild.store.remote.operators import told
from opbuild.store.remote.service import described
from opbuild.text.canonical import canonical_json

LARGEST = 2**30
"""Bytes of a library, or of all small constants."""


class Manifest(NamedTuple):
    """What a network consists of.

    Attributes:
        key: What it was made from.
        compiler: Digest of the compiler that made its kernels; empty: a release brings all of them.
        record: What the runtime stored.
        library: Its shared library.
        constants: Its small constants.
        weights: Its packed weights, by BLAKE3.
        operators: Names without device of the operators that its library is linked of.
    """

    key: ImageKey
    compiler: str
    record: Any
    library: Contents
    constants: Contents
    weights: Mapping[str, Contents]
    operators: tuple[str, ...]


class RemoteNetworks:
    """Networks in a remote store. Threads may share it.

    Args:
        objects: The remote store's objects.
        goes_on: Returns whether what is being written is still to be written.
    """

    def __init__(self, objects: Objects, goes_on: Callable[[], bool] = lambda: True) -> None:
        self.objects = objects
        self._goes_on = goes_on

    def lookup(self, key: ImageKey) -> StoredNetwork | Reason:
        """Return the network of ``key`` without its weights, or why there is none.

        Codes of the reason are those of ``Objects.get``, ``other-key`` and ``other-compiler``.
        """
        manifest = self.manifest(key)
        return manifest if isinstance(manifest, Reason) else self.fetch(manifest)

    def manifest(self, key: ImageKey) -> Manifest | Reason:
        """Return what the network of ``key`` consists of, or why there is none; ``elsewhere`` of it is for people."""
        manifest = self.named(key.stem)
        if isinstance(manifest, Manifest):
            if canonical_json(dict(manifest.key.components)) != canonical_json(dict(key.components)):
                manifest = Reason("other-key", "it was made from something else")
            elif not key.suits(manifest.compiler):
                manifest = Reason("other-compiler", "another compiler made it")
        return manifest._replace(elsewhere=told(manifest)) if isinstance(manifest, Reason) else manifest

    def named(self, stem: str) -> Manifest | Reason:
        """Return what the network of a name consists of, whatever it was made from, or why there is none."""
        body = self.objects.get(NETWORKS + stem, NETWORK)
        if isinstance(body, Reason):
            return body
        try:
            return _parsed(stem, parse_json(body))
        except REFUSED:
            return Reason("damaged", "it says nothing of a network")

    def fetch(
        self,
        manifest: Manifest,
        more: Sequence[tuple[Contents, Target]] = (),
        came: Callable[[], None] = lambda: None,
    ) -> StoredNetwork | Reason:
        """Return a network, fetched at once with more contents, or why something of it is not there.

        Args:
            manifest: What it consists of.
            more: Contents and where they are to be put.
            came: Called when a piece came.
        """
        library, constants = anonymous(manifest.library.nbytes), anonymous(manifest.constants.nbytes)
        wanted = [(manifest.library, InMemory(library)), (manifest.constants, InMemory(constants)), *more]
        problem = fetch_all(self.objects, wanted, came)
        if problem is not None:
            return problem._replace(elsewhere=told(problem))
        constants.flags.writeable = False
        return StoredNetwork(manifest.record, library.tobytes(), constants, compiler=manifest.compiler)

    def publish(self, key: ImageKey, network: StoredNetwork, weights: Mapping[str, Bytes] | None = None) -> str | None:
        """Add or replace a network with its weights, by BLAKE3; return None, or why it could not be stored."""
        parts = {"library": memoryview(network.library), "constants": network.constants.data}
        parts |= {digest: array.data for digest, array in (weights or {}).items()}
        contents = {name: Contents.of(data) for name, data in parts.items()}
        pieces = [
            (digest, piece)
            for name, data in parts.items()
            for digest, piece in zip(contents[name].pieces, split(data), strict=True)
        ]
        with closing(at_once(pieces, self._put)) as answers:
            problem = next((each for _, each in answers if each is not None), None)
        library, constants = contents.pop("library"), contents.pop("constants")
        said = {
            "key": dict(key.components), "compiler": network.compiler, "record": network.record, "library": library,
            "constants": constants, "weights": contents, "operators": operators_of(network.record),
        }  # fmt: skip
        problem = problem or self.objects.put(NETWORKS + key.stem, json.dumps(said).encode())
        return None if problem is None else described(problem)

    def note(self, key: ImageKey, states: Mapping[str, Any]) -> None:
        """Do nothing: states are those of one machine's files."""

    def _put(self, piece: tuple[str, memoryview]) -> Reason | None:
        if not self._goes_on():
            return Reason("abandoned", "it was not written in time")
        return self.objects.put_blob(*piece)


def fetch_all(
    objects: Objects, wanted: Sequence[tuple[Contents, Target]], came: Callable[[], None] = lambda: None
) -> Reason | None:
    """Fetch all pieces that targets lack, at once; return None, or why one is not there.

    Args:
        objects: Where they are.
        wanted: What is wanted, and where it is put.
        came: Called when a piece came.
    """
    places = [(target, *place) for contents, target in wanted for place in missing(contents, target)]

    def fetch(place: tuple[Target, int, int, str]) -> Reason | None:
        target, start, nbytes, digest = place
        data = objects.get_blob(digest, nbytes)
        if isinstance(data, Reason):
            return data
        came()
        try:
            target.put(start, data)
        except OSError as error:
            return Reason("unwritable", error.strerror or str(error))
        return None

    with closing(at_once(places, fetch)) as answers:
        return next((problem for _, problem in answers if problem is not None), None)


def operators_of(record: Any) -> list[str]:
    """Return the names without device of the operators that a record says it was built of."""
    try:
        return [str(name).rpartition("_")[0] for name, *_ in record["notes"]["operators"]]
    except REFUSED:
        return []


def _parsed(stem: str, said: Any) -> Manifest:
    """Return what a manifest says.

    Raises:
        ValueError: If it says nothing of the kind; or one of ``REFUSED``.
    """
    library, constants = Contents.from_json(said["library"]), Contents.from_json(said["constants"])
    if max(library.nbytes, constants.nbytes) > LARGEST:
        raise ValueError("it is too large")
    weights = {str(digest): Contents.from_json(parts) for digest, parts in said["weights"].items()}
    key = ImageKey(stem.rpartition("_")[0], dict(said["key"]))
    operators = tuple(map(str, said["operators"]))
    return Manifest(key, str(said["compiler"]), said["record"], library, constants, weights, operators)
