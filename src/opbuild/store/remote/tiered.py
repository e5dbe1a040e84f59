"""Networks and weights of one's own store, which take from the remote store what they lack."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from weakref import WeakValueDictionary

from opbuild.files.mapping import anonymous
from opbuild.kernel.answers import Answers
from opbuild.kernel.interfaces import NetworkStore
from opbuild.kernel.networks import Bytes, ImageKey, StoredNetwork, Weight
from opbuild.kernel.reason import Reason
from opbuild.platform.digest import blake3_of, is_digest
from opbuild.store.memory import MemoryWeights
from opbuild.store.networks import digests_in
from opbuild.store.remote.contents import Contents, InFile, InMemory, room_in, room_in_memory
from opbuild.store.remote.failures import ABSENT
from opbuild.store.remote.manifest import Manifest
from opbuild.store.remote.networks import RemoteNetworks
from opbuild.store.remote.operators import told
from opbuild.store.turns import Turn, Turns
from opbuild.store.weights import DiskWeights

Offer = Callable[[ImageKey, StoredNetwork, Mapping[str, Bytes]], None]
"""Told of a network that was built, with its weights by digest."""


_KEPT = "kept"


class TieredWeights:
    """Weights on disk, and those that were fetched and could not be put there. Threads may share it.

    Args:
        near: One's own store.
    """

    def __init__(self, near: DiskWeights | MemoryWeights) -> None:
        self.near = near
        self._held: dict[str, Bytes] = {}
        self._used: WeakValueDictionary[str, Bytes] = WeakValueDictionary()

    def get(self, digest: str, nbytes: int, state: Any = None) -> Weight | Reason:
        """Return weights as ``WeightStore.get`` does."""
        found = self.near.get(digest, nbytes, state)
        held = self._held.get(digest) if isinstance(found, Reason) else None
        if held is not None and held.nbytes == nbytes:
            return Weight(digest, held)
        return self._noted(found)

    def put(self, digest: str, array: Bytes) -> Weight | Reason:
        """Add weights to one's own store."""
        return self._noted(self.near.put(digest, array))

    def find(self, source: str, nbytes: int) -> Weight | Reason:
        """Return what a source was packed to here; fetching takes longer than packing."""
        return self._noted(self.near.find(source, nbytes))

    def remember(self, source: str, weight: Weight) -> str | None:
        """Write down what a source packs to."""
        return self.near.remember(source, weight)

    def used(self, digests: Mapping[str, Any]) -> dict[str, Bytes]:
        """Return those of some weights that passed here and are in use."""
        known = {digest: self._used.get(digest) for digest in digests}
        return {digest: array for digest, array in known.items() if array is not None}

    def stored(self, network: StoredNetwork) -> dict[str, Bytes] | None:
        """Return the weights of one's own network, compared with their digests; None if some are not sound."""
        found: dict[str, Bytes] = {}
        for digest in {*network.states, *digests_in(network.record)}:
            weight = self.near.whole(digest)
            if isinstance(weight, Weight):
                found[digest] = weight.array
            elif digest in network.states or weight.code != ABSENT:  # a record has other digests, too
                return None
        return found

    def hold(self, weight: Weight) -> None:
        """Keep weights that were fetched, if they could not be put on the disk."""
        if weight.state is None:
            self._held[weight.digest] = weight.array

    def _noted(self, found: Weight | Reason) -> Weight | Reason:
        if isinstance(found, Weight):
            self._used.setdefault(found.digest, found.array)  # another mapping of the same may not live long
        return found


class Place:
    """Where one weight is put while it is fetched: its file, or where the storage refuses, memory.

    Args:
        near: Whose file it is to be.
        digest: BLAKE3 of the bytes.
        nbytes: Their number.
        in_file: Whether its file has room.
    """

    def __init__(self, near: DiskWeights | MemoryWeights, digest: str, nbytes: int, *, in_file: bool) -> None:
        self.digest, self.nbytes = digest, nbytes
        self._memory = anonymous(0)
        self._near = near
        self.target: InFile | InMemory
        if in_file and isinstance(near, DiskWeights):
            with contextlib.suppress(OSError):
                self.target = InFile(near.folder / f"{digest}.bin", nbytes, near.trust)
                return
        self._memory = anonymous(nbytes)
        self.target = InMemory(self._memory)

    def finish(self) -> Weight | Reason:
        """Return the weights, which are whole, or why they are not what their digest says."""
        if isinstance(self.target, InMemory):
            if blake3_of(self._memory.data) != self.digest:
                return Reason("damaged", "weights do not have the digest they should have")
            return Weight(self.digest, self._memory)
        try:
            return Weight(self.digest, *self.target.finish(self.digest))
        except FileNotFoundError:  # another process was done before
            return self._near.get(self.digest, self.nbytes)
        except OSError as error:
            return Reason("damaged", error.strerror or str(error))


def _places(
    near: DiskWeights | MemoryWeights, lacking: Mapping[str, Contents]
) -> list[tuple[Contents, Place]] | Reason:
    """Return where weights are put, files as long as there is room, then memory; or why there is none for all."""
    on_disk = room_in(near.folder) if isinstance(near, DiskWeights) else -1
    in_memory = room_in_memory()
    places = []
    for digest, contents in lacking.items():
        in_file = contents.nbytes <= on_disk
        if not in_file and contents.nbytes > in_memory:
            return Reason("unwritable", f"there is no room for {contents.nbytes} bytes")
        try:
            place = Place(near, digest, contents.nbytes, in_file=in_file)
        except OSError as error:
            return Reason("unwritable", error.strerror or str(error))
        is_in_memory = isinstance(place.target, InMemory)
        on_disk -= 0 if is_in_memory else contents.nbytes
        in_memory -= contents.nbytes if is_in_memory else 0
        places.append((contents, place))
    return places


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
        weights: TieredWeights,
        remote: RemoteNetworks,
        offer: Offer | None = None,
        filled: Callable[[], None] = lambda: None,
        turns: Turns | None = None,
        known: Callable[[ImageKey, StoredNetwork], None] | None = None,
    ) -> None:
        self._known = known
        self._near, self._weights, self._remote = near, weights, remote
        self._offer, self._filled, self._turns = offer, filled, turns

    def lookup(self, key: ImageKey) -> StoredNetwork | Reason:
        """Return one's own network, else the remote store's; else why there is no own one, and no remote one."""
        own = self._near.lookup(key)
        if isinstance(own, StoredNetwork):
            if self._known is not None:
                self._known(key, own)
            return own
        with contextlib.nullcontext(Turn()) if self._turns is None else self._turns.turn(f"fetch_{key.stem}") as turn:
            found = self._found(key, turn)
        if isinstance(found, Reason):
            return own._replace(elsewhere=found.elsewhere or told(found))
        return found

    def _found(self, key: ImageKey, turn: Turn) -> StoredNetwork | Reason:
        """Return what another process has fetched meanwhile, else fetch it and tell the others."""
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

    def take(self, manifest: Manifest, turn: Turn | None = None) -> StoredNetwork | Reason:
        """Fetch a network with what one lacks of its weights, and keep all of it.

        Args:
            manifest: What it consists of.
            turn: Told of each piece that came, and where all was kept that it was.
        """
        turn = turn or Turn()
        lacking = {d: c for d, c in manifest.weights.items() if isinstance(self._weights.get(d, c.nbytes), Reason)}
        if any(not is_digest(digest) for digest in lacking):
            return Reason("damaged", "it names weights by what is no digest")
        places = _places(self._weights.near, lacking)
        if isinstance(places, Reason):
            return places
        network = self._remote.fetch(manifest, [(contents, place.target) for contents, place in places], turn.came)
        if isinstance(network, Reason):
            return network
        states = {}
        for _, place in places:
            weight = place.finish()
            if isinstance(weight, Reason):
                return weight
            states[weight.digest] = weight.state
            self._weights.hold(weight)
        network = network._replace(states=states)
        problem = self._near.publish(manifest.key, network)  # what can not be kept is fetched again
        if problem is None and None not in states.values():
            turn.end(_KEPT)
        self._filled()
        return network

    def publish(self, key: ImageKey, network: StoredNetwork) -> str | None:
        """Add or replace a network in one's own store, and offer it; return None, or why the storage refused."""
        weights = self._weights.used(network.states)
        if self._offer is not None and len(weights) == len(network.states):
            self._offer(key, network, weights)
        return self._near.publish(key, network)

    def answers(self, key: ImageKey) -> Iterator[Answers]:
        """Return the answers by which one's own networks were made, then those of the remote store's."""
        yield from self._near.answers(key)
        yield from self._remote.answers(key)

    def note(self, key: ImageKey, states: Mapping[str, Any]) -> None:
        """Keep new states of a network's weights."""
        self._near.note(key, states)
