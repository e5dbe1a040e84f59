"""Networks and weights of one's own store, which take from the remote store those that they lack."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from opbuild.files.mapping import anonymous
from opbuild.kernel.interfaces import NetworkStore
from opbuild.kernel.networks import Answers, Bytes, NetworkKey, StoredNetwork, Weight
from opbuild.kernel.reason import Reason
from opbuild.platform.digest import is_digest
from opbuild.store.blobs import Folder
from opbuild.store.flights import Flight, Flights
from opbuild.store.networks import digests_in
from opbuild.store.remote.contents import ContentDigests, Destination, InFile, InMemory, room_in, room_in_memory
from opbuild.store.remote.failures import ABSENT
from opbuild.store.remote.manifest import Manifest
from opbuild.store.remote.networks import RemoteNetworks
from opbuild.store.remote.operators import message_of
from opbuild.store.weights import StoredWeights

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


class TieredNetworks:
    """Networks on disk; one that is not there comes from the remote store with all its weights, and stays here.

    Of several processes of a host that lack one, one fetches it.

    Args:
        near: One's own store.
        weights: One's own weights.
        remote: The remote store.
        offer: Told of networks that were built here.
        filled: Called when something came.
        turns: Whose turn it is to fetch; None: nobody else is asked.
        known: Told of networks that are one's own already.
    """

    def __init__(
        self,
        near: NetworkStore,
        weights: StoredWeights,
        remote: RemoteNetworks,
        offer: Offer | None = None,
        filled: Callable[[], None] = lambda: None,
        turns: Flights | None = None,
        known: Callable[[NetworkKey, StoredNetwork], None] | None = None,
    ) -> None:
        self._known = known
        self._near, self._weights, self._remote = near, weights, remote
        self._offer, self._filled, self._turns = offer, filled, turns

    def lookup(self, key: NetworkKey) -> StoredNetwork | Reason:
        """Return one's own network, else the remote store's; else why there is no own one, and no remote one."""
        own = self._near.lookup(key)
        if isinstance(own, StoredNetwork):
            if self._known is not None:
                self._known(key, own)
            return own
        with contextlib.nullcontext(Flight()) if self._turns is None else self._turns.turn(f"fetch_{key.stem}") as turn:
            found = self._found(key, turn)
        if isinstance(found, Reason):
            return own._replace(elsewhere=found.elsewhere or message_of(found))
        return found

    def _found(self, key: NetworkKey, turn: Flight) -> StoredNetwork | Reason:
        """Return the network that another process has fetched meanwhile, else fetch it and tell the others."""
        if turn.said == ABSENT:
            return Reason(ABSENT, "")
        if turn.said and isinstance(found := self._near.lookup(key), StoredNetwork):
            return found
        manifest = self._remote.manifest(key)
        if isinstance(manifest, Reason):
            if manifest.code == ABSENT:
                turn.end(ABSENT)
            return manifest
        return self.take(manifest, turn)

    def take(self, manifest: Manifest, turn: Flight | None = None) -> StoredNetwork | Reason:
        """Fetch a network with those of its weights that one lacks, and keep all of it.

        Args:
            manifest: What it consists of.
            turn: Told of each piece that came, and where all was kept that it was.
        """
        turn = turn or Flight()
        lacking = {d: c for d, c in manifest.weights.items() if isinstance(self._weights.get(d, c.nbytes), Reason)}
        if any(not is_digest(digest) for digest in lacking):
            return Reason("damaged", "it names weights by what is no digest")
        targets = _targets(self._weights, lacking)
        if isinstance(targets, Reason):
            return targets
        more = [(lacking[digest], target) for digest, target in targets.items()]
        network = self._remote.fetch(manifest, more, turn.came)
        if isinstance(network, Reason):
            return network
        states = {}
        for digest, target in targets.items():
            weight = _finished(self._weights, digest, lacking[digest].nbytes, target)
            if isinstance(weight, Reason):
                return weight
            states[weight.digest] = weight.state
            self._weights.hold(weight)
        network = network._replace(states=states)
        problem = self._near.publish(manifest.key, network)  # what cannot be kept is fetched again
        if problem is None and None not in states.values():
            turn.end(_KEPT)
        self._filled()
        return network

    def publish(self, key: NetworkKey, network: StoredNetwork) -> str | None:
        """Add or replace a network in one's own store, and offer it; return None, or why the storage refused."""
        weights = self._weights.used(network.states)
        if self._offer is not None and len(weights) == len(network.states):
            self._offer(key, network, weights)
        return self._near.publish(key, network)

    def answers(self, key: NetworkKey) -> Iterator[Answers]:
        """Return the answers by which one's own networks were made, then those of the remote store's."""
        yield from self._near.answers(key)
        yield from self._remote.answers(key)

    def note(self, key: NetworkKey, states: Mapping[str, Any]) -> None:
        """Keep new states of a network's weights."""
        self._near.note(key, states)
