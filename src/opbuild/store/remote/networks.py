"""Built networks in a remote store: a manifest lists a network's parts, and its large ones are blobs.

So one request brings what is small and tells what else a start needs, which is then fetched at once. Blobs are written
before what names them, so that whoever reads a network finds all of it. One's own store takes from there what it lacks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

from opbuild.events import NetworkFetched, tell
from opbuild.kernel.interfaces import NetworkStore
from opbuild.kernel.networks import Answers, Bytes, NetworkKey, StoredNetwork, Weight
from opbuild.kernel.reason import Reason
from opbuild.platform.digest import is_digest
from opbuild.platform.files.mapping import anonymous
from opbuild.platform.files.trust import NETWORK
from opbuild.platform.records import dataclass
from opbuild.store.blobs import Folder
from opbuild.store.claims import Flight, Flights
from opbuild.store.concurrent_map import concurrent_map
from opbuild.store.hints import known_answers, note_answers
from opbuild.store.items import REFUSED
from opbuild.store.networks import digests_in
from opbuild.store.remote.failures import ABSENT
from opbuild.store.remote.manifest import (
    ContentDigests,
    Destination,
    InFile,
    InMemory,
    Manifest,
    manifest_bytes,
    missing,
    parse_manifest,
    room_in,
    room_in_memory,
    split,
    to_hold,
)
from opbuild.store.remote.objects import ANSWERS, NETWORKS, Objects, SealedMemos
from opbuild.store.remote.operators import message_of
from opbuild.store.remote.service import described
from opbuild.store.weights import StoredWeights
from opbuild.text.canonical import canonical_json


class RemoteNetworks:
    """Networks in a remote store. Threads may share it."""

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
        """Return a network, fetched at once with more contents, or why something of it is not there."""
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

    Some came already (``held``, by SHA-256); ``came`` is called with each that comes.
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


Offer = Callable[[NetworkKey, StoredNetwork, Mapping[str, Bytes]], None]
"""Told of a network that was built, with its weights by digest."""


_KEPT = "kept"


def stored_weights(weights: StoredWeights, network: StoredNetwork) -> dict[str, Bytes] | None:
    """Return the weights of one's own network, compared with their digests; None if some are not sound."""
    found: dict[str, Bytes] = {}
    for digest in {*network.states, *digests_in(network.record)}:
        weight = weights.whole(digest)
        if isinstance(weight, Weight):
            found[digest] = weight.array
        elif digest in network.states or weight.code != ABSENT:  # a record has other digests, too
            return None
    return found


def _targets(near: StoredWeights, lacking: Mapping[str, ContentDigests]) -> dict[str, Destination] | Reason:
    """Return the destinations of weights: files as long as there is room, then memory; or why there are none."""
    on_disk = room_in(near.blobs.path) if isinstance(near.blobs, Folder) else -1
    in_memory = room_in_memory()
    targets: dict[str, Destination] = {}
    for digest, contents in lacking.items():
        if contents.nbytes <= on_disk:
            with contextlib.suppress(OSError):
                path = near.blobs.path / f"{digest}.bin"
                targets[digest] = InFile(path, contents.nbytes, near.blobs.trust)
                on_disk -= contents.nbytes
                continue
        elif contents.nbytes > in_memory:
            return Reason("unwritable", f"there is no room for {contents.nbytes} bytes")
        targets[digest] = InMemory(anonymous(contents.nbytes))
        in_memory -= contents.nbytes
    return targets


def _finished(near: StoredWeights, digest: str, nbytes: int, target: Destination) -> Weight | Reason:
    """Return weights, which are whole, or why they do not fit their digest."""
    try:
        return Weight(digest, *target.finish(digest))
    except FileNotFoundError:  # another process was done before
        return near.get(digest, nbytes)
    except OSError as error:
        return Reason("damaged", error.strerror or str(error))


@dataclass(eq=False, repr=False)
class TieredNetworks:
    """Networks on disk; one that is not there comes from the remote store with all its weights, and stays here.

    Of several processes of a host that lack one, one fetches it.

    Attributes:
        near: One's own store.
        weights: One's own weights.
        remote: The remote store.
        offer: Told of networks that were built here.
        filled: Called when something came.
        turns: Whose turn it is to fetch; None: nobody else is asked.
        known: Told of networks that are one's own already.
    """

    near: NetworkStore
    weights: StoredWeights
    remote: RemoteNetworks
    offer: Offer | None = None
    filled: Callable[[], None] = lambda: None
    turns: Flights | None = None
    known: Callable[[NetworkKey, StoredNetwork], None] | None = None

    def lookup(self, key: NetworkKey) -> StoredNetwork | Reason:
        """Return one's own network, else the remote store's; else why there is no own one, and no remote one."""
        own = self.near.lookup(key)
        if isinstance(own, StoredNetwork):
            if self.known is not None:
                self.known(key, own)
            return own
        with contextlib.nullcontext(Flight()) if self.turns is None else self.turns.turn(f"fetch_{key.stem}") as turn:
            found = self._find_or_fetch(key, turn)
        if isinstance(found, Reason):
            return own._replace(elsewhere=found.elsewhere or message_of(found))
        return found

    def _find_or_fetch(self, key: NetworkKey, turn: Flight) -> StoredNetwork | Reason:
        """Return the network that another process has fetched meanwhile, else fetch it and tell the others."""
        if turn.said == ABSENT:
            return Reason(ABSENT, "")
        if turn.said and isinstance(found := self.near.lookup(key), StoredNetwork):
            return found
        manifest = self.remote.manifest(key)
        if isinstance(manifest, Reason):
            if manifest.code == ABSENT:
                turn.end(ABSENT)
            return manifest
        return self.take(manifest, turn)

    def take(self, manifest: Manifest, turn: Flight | None = None) -> StoredNetwork | Reason:
        """Fetch a network with those of its weights that one lacks, and keep all of it.

        The turn is told of each piece that came, and where all was kept that it was.
        """
        turn = turn or Flight()
        lacking = {d: c for d, c in manifest.weights.items() if isinstance(self.weights.get(d, c.nbytes), Reason)}
        if any(not is_digest(digest) for digest in lacking):
            return Reason("damaged", "it names weights by what is no digest")
        targets = _targets(self.weights, lacking)
        if isinstance(targets, Reason):
            return targets
        more = [(lacking[digest], target) for digest, target in targets.items()]
        network = self.remote.fetch(manifest, more, turn.came)
        if isinstance(network, Reason):
            return network
        states = {}
        for digest, target in targets.items():
            weight = _finished(self.weights, digest, lacking[digest].nbytes, target)
            if isinstance(weight, Reason):
                return weight
            states[weight.digest] = weight.state
            self.weights.hold(weight)
        network = network._replace(states=states)
        problem = self.near.publish(manifest.key, network)  # what cannot be kept is fetched again
        if problem is None and None not in states.values():
            turn.end(_KEPT)
        tell(NetworkFetched(manifest.key.network))
        self.filled()
        return network

    def publish(self, key: NetworkKey, network: StoredNetwork) -> str | None:
        """Add or replace a network in one's own store, and offer it; return None, or why the storage refused."""
        weights = self.weights.used(network.states)
        if self.offer is not None and len(weights) == len(network.states):
            self.offer(key, network, weights)
        return self.near.publish(key, network)

    def answers(self, key: NetworkKey) -> Iterator[Answers]:
        """Return the answers by which one's own networks were made, then those of the remote store's."""
        yield from self.near.answers(key)
        yield from self.remote.answers(key)

    def note(self, key: NetworkKey, states: Mapping[str, Any]) -> None:
        """Keep new states of a network's weights."""
        self.near.note(key, states)
