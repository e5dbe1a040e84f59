"""Tiers: the user's store, and below it stores that are only read; entries that none of them has are compiled.

A rank's tier are its peers. A peer's entry is checked as one's own is, and then made one's own: by a hard link where
the file system allows, so that the ranks of a host keep one copy. Everything is written to one's own folder only.
"""

from __future__ import annotations

import contextlib
import os
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from opbuild.config import Config
from opbuild.kernel.entry import Entry
from opbuild.kernel.interfaces import Found, ListedEntries, Looks, Missing, Store, look_up
from opbuild.kernel.key import Key
from opbuild.kernel.networks import Answers, NetworkKey, StoredNetwork
from opbuild.kernel.reason import Reason
from opbuild.platform.files.private import private_path
from opbuild.platform.files.private import replace as put_in_place
from opbuild.platform.files.writing import make_folder
from opbuild.platform.paths import Path
from opbuild.platform.records import dataclass, replace
from opbuild.store.blobs import Folder
from opbuild.store.networks import Networks, digests_in
from opbuild.store.operators import Operators
from opbuild.store.peers import Peer, Peers
from opbuild.store.weights import weights_file


@dataclass(eq=False, repr=False)
class TieredStore:
    """A store that takes missing entries from tiers below it. Threads may share it if they may share each of them.

    An entry of a tier is lent until it is published here, unless it stays where it is (``Found.stays``). What was lent
    is not offered: it came from there, or who lends it has offered it.

    Attributes:
        near: The store that is asked first, and the only one that is written to, listed and emptied.
        tiers: What is asked next, in this order, and only read. They can only save work: none raises.
        offer: Told of each entry that is published.
        known: Told of each entry that the near store had.
    """

    near: Store
    tiers: Sequence[Looks]
    offer: Callable[[Entry], None] | None = None
    known: Callable[[Entry], None] | None = None

    def __post_init__(self) -> None:
        self.tiers = tuple(self.tiers)
        self._lent: set[str] = set()
        self._kept: dict[str, str] = {}
        self._linkable: dict[str, tuple[Entry, Path]] = {}

    def lookup(self, key: Key) -> Found | Missing:
        """Return the nearest entry of ``key``; if there is none, why the near store has none."""
        return self.lookup_all([key])[0]

    def lookup_all(self, keys: Sequence[Key]) -> list[Found | Missing]:
        """Return the answer of ``lookup`` for each of several keys; each tier is asked at once for all it may have."""
        answers = [self._named(answer) for answer in look_up(self.near, keys)]
        if self.known is not None:
            for answer in answers:
                if isinstance(answer, Found) and not answer.source:
                    self.known(answer.entry)
        for tier in self.tiers:
            lacking = [number for number, answer in enumerate(answers) if isinstance(answer, Missing)]
            lent = look_up(tier, [keys[number] for number in lacking]) if lacking else []
            for number, answer in zip(lacking, lent, strict=True):
                answers[number] = answer if isinstance(answer, Found) else _combined(answers[number], answer)
                if isinstance(answer, Found) and answer.is_kept:
                    self._kept[answer.entry.sha256] = answer.source
                if isinstance(answer, Found) and answer.folder is not None:
                    self._linkable[answer.entry.name] = answer.entry, answer.folder
        self._lent.update(each.entry.sha256 for each in answers if isinstance(each, Found) and each.is_lent)
        return answers

    def origins(self, keys: Sequence[Key]) -> list[Mapping[str, str]]:
        """Return the origins of operators that the near store and the tiers remember."""
        known = [store.origins(keys) for store in (self.near, *self.tiers)]
        return [dict(ChainMap(*map(dict, each))) for each in zip(*known, strict=True)]

    def note_origin(self, key: Key, pipeline: str) -> None:
        """Let the near store remember the pipeline of an operator's sources."""
        self.near.note_origin(key, pipeline)

    def publish(self, entry: Entry, linked_from: Path | None = None) -> str | None:
        """Add or replace an entry in the near store, and offer it; return None, or why it could not be stored.

        That of a tier with files is linked if that is possible.
        """
        if self.offer is not None and entry.sha256 not in self._lent:
            self.offer(entry)
        lent, folder = self._linkable.pop(entry.name, (None, None))
        return self.near.publish(entry, linked_from or (folder if lent is entry else None))

    def _named(self, answer: Found | Missing) -> Found | Missing:
        """Return the near store's answer; an entry put there by a tier since this store was opened is the tier's."""
        source = "" if isinstance(answer, Missing) else self._kept.get(answer.entry.sha256, "")
        return replace(answer, source=source, is_kept=True) if isinstance(answer, Found) and source else answer

    @property
    def listed(self) -> ListedEntries:
        """The near store's."""
        return self.near.listed


def _combined(own: Found | Missing, other: Missing) -> Found | Missing:
    """Return the reason that the near store has no entry, with a tier's word on itself."""
    if isinstance(own, Found) or not other.reason.elsewhere:
        return own
    return Missing(own.reason._replace(elsewhere=other.reason.elsewhere))


_ABSENT = Missing(Reason("absent", "no other rank has it"))


class PeerOperators:
    """A tier of other ranks' entries, opened with the same rules as one's own. Threads may share it."""

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
    """One's own networks and those of peers, which become one's own with their weights. Threads may share it."""

    def __init__(self, own: Networks, peers: Callable[[], Iterable[Path]]) -> None:
        self._own, self._peers = own, peers

    def lookup(self, key: NetworkKey) -> StoredNetwork | Reason:
        """Return one's own network, else a peer's; else why there is no own one."""
        own = self._own.lookup(key)
        if isinstance(own, StoredNetwork):
            return own
        taken = (self._take_network(key, each) for each in self._opened() if each.blobs.has(f"{key.stem}.json"))
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

    def _take_network(self, key: NetworkKey, peer: Networks) -> StoredNetwork | None:
        """Make a peer's network one's own; None if it has none, or not all of it can be had here."""
        found = peer.lookup(key)
        if isinstance(found, Reason):
            return None
        found = found._replace(states={})  # links are changes of the files: they are looked at once
        try:
            for digest in sorted(digests_in(found.record)):
                _link(peer.blobs.path, self._own.blobs.path, weights_file(digest))
        except OSError:
            return None
        self._own.publish(key, found)
        return found


def _link(folder: Path, own: Path, name: str) -> None:
    """Link a peer's file, which is checked where it is used; not all digests of a record are those of weights."""
    if (own / name).exists():
        return
    make_folder((own / name).parent)
    with contextlib.suppress(FileNotFoundError), private_path((own / name).parent) as temporary:
        os.link(folder / name, temporary, follow_symlinks=False)
        put_in_place(temporary, own / name)


def rank_networks(config: Config, own: Networks) -> SharedNetworks:
    """Return a rank's networks, its own and its peers'."""
    peers = Peers(config)
    return SharedNetworks(own, lambda: [peer.network_meta for peer in peers()])


def rank_stores(config: Config, open_store: Callable[[Path], Operators]) -> tuple[TieredStore, TieredStore]:
    """Return a rank's stores of operators and of the compiler's runtime library."""
    peers = Peers(config)

    def store(own: Path, folder_of: Callable[[Peer], Path]) -> TieredStore:
        others = PeerOperators(lambda: [(str(peer), folder_of(peer)) for peer in peers()], open_store)
        return TieredStore(open_store(own), [others])

    return (
        store(config.kernel_meta, lambda peer: peer.kernel_meta),
        store(config.network_meta, lambda peer: peer.network_meta),
    )
