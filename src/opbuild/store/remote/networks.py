"""Built networks in a remote store: a manifest lists a network's parts, and its large ones are blobs.

So one request brings what is small and tells what else a start needs, which is then fetched at once. Blobs are written
before what names them, so that whoever reads a network finds all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

from opbuild.files.mapping import anonymous
from opbuild.files.trust import NETWORK
from opbuild.kernel.networks import Answers, Bytes, NetworkKey, StoredNetwork
from opbuild.kernel.reason import Reason
from opbuild.store.answers import known_answers, note_answers
from opbuild.store.concurrent_map import concurrent_map
from opbuild.store.items import REFUSED
from opbuild.store.remote.contents import ContentDigests, Destination, InMemory, missing, split
from opbuild.store.remote.manifest import Manifest, manifest_bytes, parse_manifest, to_hold
from opbuild.store.remote.objects import ANSWERS, NETWORKS, Objects, SealedMemos
from opbuild.store.remote.operators import message_of
from opbuild.store.remote.service import described
from opbuild.text.canonical import canonical_json


class RemoteNetworks:
    """Networks in a remote store. Threads may share it.

    Args:
        objects: The remote store's objects.
    """

    def __init__(self, objects: Objects) -> None:
        self.objects = objects
        self._answers = SealedMemos(objects, ANSWERS)

    def lookup(self, key: NetworkKey) -> StoredNetwork | Reason:
        """Return the network of ``key`` without its weights, or why there is none.

        Codes of the reason are those of ``Objects.get``, ``other-key`` and ``other-compiler``.
        """
        manifest = self.manifest(key)
        return manifest if isinstance(manifest, Reason) else self.fetch(manifest)

    def manifest(self, key: NetworkKey) -> Manifest | Reason:
        """Return the manifest of the network of ``key``, or why there is none; ``elsewhere`` of it is for people."""
        manifest = self.named(key.stem)
        if isinstance(manifest, Manifest):
            if canonical_json(dict(manifest.key.components)) != canonical_json(dict(key.components)):
                reason = Reason("other-key", "it was made from something else")
                manifest = self.objects.damaged(NETWORKS + key.stem, reason)
            elif not key.suits(manifest.compiler):
                manifest = Reason("other-compiler", "another compiler made it")
        return manifest._replace(elsewhere=message_of(manifest)) if isinstance(manifest, Reason) else manifest

    def named(self, stem: str) -> Manifest | Reason:
        """Return the manifest of the network of a name, whatever it was made from, or why there is none."""
        body = self.objects.get(NETWORKS + stem, NETWORK)
        if isinstance(body, Reason):
            return body
        try:
            return parse_manifest(stem, body)
        except REFUSED:
            return self.objects.damaged(NETWORKS + stem, Reason("damaged", "it says nothing of a network"))

    def fetch(
        self,
        manifest: Manifest,
        more: Sequence[tuple[ContentDigests, Destination]] = (),
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
        problem = fetch_all(self.objects, wanted, manifest.held, came)
        if problem is not None:
            return problem._replace(elsewhere=message_of(problem))
        constants.flags.writeable = False
        return StoredNetwork(manifest.record, library.tobytes(), constants, compiler=manifest.compiler)

    def publish(
        self, key: NetworkKey, network: StoredNetwork, weights: Mapping[str, Bytes] | None = None
    ) -> str | None:
        """Add or replace a network with its weights, by BLAKE3; return None, or why it could not be stored."""
        parts = {"library": memoryview(network.library), "constants": network.constants.data}
        parts |= {digest: array.data for digest, array in sorted((weights or {}).items())}  # alike, whoever writes it
        contents = {name: ContentDigests.of(data) for name, data in parts.items()}
        pieces = [
            (digest, piece)
            for name, data in parts.items()
            for digest, piece in zip(contents[name].pieces, split(data), strict=True)
        ]
        own = len(contents["library"].pieces) + len(contents["constants"].pieces)
        held = to_hold(pieces[:own] + sorted(pieces[own:], key=lambda piece: (piece[1].nbytes, piece[0])))
        blobs = [(digest, piece) for digest, piece in pieces if digest not in held]
        with closing(concurrent_map(blobs, lambda piece: self.objects.put_blob(*piece))) as answers:
            problem = next((each for _, each in answers if each is not None), None)
        body = manifest_bytes(key, network, contents, held)
        problem = problem or self.objects.put([(NETWORKS + key.stem, body)])
        problem = problem or note_answers(self._answers, key.tuned("").stem, network.record)
        return None if problem is None else described(problem)

    def answers(self, key: NetworkKey) -> Iterator[Answers]:
        """Return the answers of families by which networks were made that differ from ``key`` in tuning alone."""
        yield from reversed(known_answers(self._answers, key.tuned("").stem))

    def note(self, key: NetworkKey, states: Mapping[str, Any]) -> None:
        """Do nothing: states are those of one machine's files."""


def fetch_all(
    objects: Objects,
    wanted: Sequence[tuple[ContentDigests, Destination]],
    held: Mapping[str, bytes],
    came: Callable[[], None] = lambda: None,
) -> Reason | None:
    """Fetch all pieces that targets lack, at once; return None, or why one is not there.

    Args:
        objects: Where they are.
        wanted: What is wanted, and where it is put.
        held: Pieces that came already, by SHA-256.
        came: Called when a piece came.
    """
    places = [(target, *place) for contents, target in wanted for place in missing(contents, target)]

    def fetch(place: tuple[Destination, int, int, str]) -> Reason | None:
        target, start, nbytes, digest = place
        data = held.get(digest, b"")
        if len(data) != nbytes:
            got = objects.get_blob(digest, nbytes)
            if isinstance(got, Reason):
                return got
            data = got
        came()
        try:
            target.put(start, data)
        except OSError as error:
            return Reason("unwritable", error.strerror or str(error))
        return None

    with closing(concurrent_map(places, fetch)) as answers:
        return next((problem for _, problem in answers if problem is not None), None)
