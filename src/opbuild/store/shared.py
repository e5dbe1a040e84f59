"""A rank's stores that take from its peers the entries that it lacks itself.

A peer's entry is checked as one's own is, and then made one's own: by a hard link where the file system allows, so that
the ranks of a host keep one copy. Everything is written to one's own folder only.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from opbuild.config import Config
from opbuild.files.private import private_path, replace
from opbuild.files.writing import make_folder
from opbuild.kernel.interfaces import Found, Missing
from opbuild.kernel.key import Key
from opbuild.kernel.networks import Answers, NetworkKey, StoredNetwork
from opbuild.kernel.reason import Reason
from opbuild.platform.paths import Path
from opbuild.store.blobs import Folder
from opbuild.store.networks import Networks
from opbuild.store.operators import Operators
from opbuild.store.peers import Peer, Peers
from opbuild.store.tiers import TieredStore
from opbuild.store.weights import weights_file

_ABSENT = Missing(Reason("absent", "no other rank has it"))


class PeerOperators:
    """A tier of what other ranks have. Threads may share it.

    Args:
        peers: Returns what the peers are called, and their folders.
        open_store: Opens a peer's folder with the same rules as one's own.
    """

    def __init__(
        self, peers: Callable[[], Sequence[tuple[str, Path]]], open_store: Callable[[Path], Operators]
    ) -> None:
        self._peers, self._open_store = peers, open_store
        self._stores: dict[Path, Operators] = {}

    def lookup(self, key: Key) -> Found | Missing:
        """Return the first entry that a peer has, which may be linked."""
        for name, store in self._opened():
            lent = store.lookup(key)
            if isinstance(lent, Found):
                return Found(lent.entry, name, folder=store.blobs.path)
        return _ABSENT

    def origins(self, keys: Sequence[Key]) -> list[Mapping[str, str]]:
        """Return the origins of operators as the peers remember them."""
        known = [store.origins(keys) for _, store in self._opened()]
        return [dict(ChainMap(*map(dict, each))) for each in zip(*known, strict=True)] or [{} for _ in keys]

    def _opened(self) -> Iterator[tuple[str, Operators]]:
        for name, folder in self._peers():
            if folder.is_dir():
                yield name, self._stores.get(folder) or self._stores.setdefault(folder, self._open_store(folder))


class SharedNetworks:
    """One's own networks and those of peers, which become one's own with their weights. Threads may share it.

    Args:
        own: The networks that are written to, and asked first.
        peers: Returns the peers' folders of networks.
    """

    def __init__(self, own: Networks, peers: Callable[[], Iterable[Path]]) -> None:
        self._own, self._peers = own, peers

    def lookup(self, key: NetworkKey) -> StoredNetwork | Reason:
        """Return one's own network, else a peer's; else why there is no own one."""
        own = self._own.lookup(key)
        if isinstance(own, StoredNetwork):
            return own
        taken = (self._taken(key, each) for each in self._opened() if each.blobs.has(f"{key.stem}.json"))
        return next(filter(None, taken), own)

    def publish(self, key: NetworkKey, network: StoredNetwork) -> str | None:
        """Add or replace a network of one's own."""
        return self._own.publish(key, network)

    def answers(self, key: NetworkKey) -> Iterator[Answers]:
        """Return the answers by which one's own networks were made, then those of peers."""
        for store in (self._own, *self._opened()):
            yield from store.answers(key)

    def note(self, key: NetworkKey, states: Mapping[str, object]) -> None:
        """Keep new states of the weights of a network of one's own."""
        self._own.note(key, states)

    def _opened(self) -> Iterator[Networks]:
        blobs = self._own.blobs
        return (Networks(Folder(folder, blobs.trust, copies=blobs.copies)) for folder in self._peers())

    def _taken(self, key: NetworkKey, peer: Networks) -> StoredNetwork | None:
        """Make a peer's network one's own; None if it has none, or not all of it can be had here."""
        found = peer.lookup(key)
        if isinstance(found, Reason):
            return None
        found = found._replace(states={})  # links are changes of the files: they are looked at once
        try:
            for digest in sorted(set(_DIGEST.findall(json.dumps(found.record)))):
                _link(peer.blobs.path, self._own.blobs.path, weights_file(digest))
        except OSError:
            return None
        self._own.publish(key, found)
        return found


_DIGEST = re.compile(r"\b[0-9a-f]{64}\b")


def _link(folder: Path, own: Path, name: str) -> None:
    """Link a peer's file, which is checked where it is used; not all digests of a record are those of weights."""
    if (own / name).exists():
        return
    make_folder((own / name).parent)
    with contextlib.suppress(FileNotFoundError), private_path((own / name).parent) as temporary:
        os.link(folder / name, temporary, follow_symlinks=False)
        replace(temporary, own / name)


def rank_networks(config: Config, own: Networks) -> SharedNetworks:
    """Return a rank's networks.

    Args:
        config: Where they are.
        own: One's own.
    """
    peers = Peers(config)
    return SharedNetworks(own, lambda: [peer.network_meta for peer in peers()])


def rank_stores(config: Config, open_store: Callable[[Path], Operators]) -> tuple[TieredStore, TieredStore]:
    """Return a rank's stores of operators and of the compiler's runtime library.

    Args:
        config: Where they are.
        open_store: Opens a folder, one's own or a peer's.
    """
    peers = Peers(config)

    def store(own: Path, folder_of: Callable[[Peer], Path]) -> TieredStore:
        others = PeerOperators(lambda: [(str(peer), folder_of(peer)) for peer in peers()], open_store)
        return TieredStore(open_store(own), [others])

    return (
        store(config.kernel_meta, lambda peer: peer.kernel_meta),
        store(config.network_meta, lambda peer: peer.network_meta),
    )
