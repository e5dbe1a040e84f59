"""A rank's stores that take from its peers what it lacks itself.

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
from opbuild.kernel.answers import Answers
from opbuild.kernel.entry import Entry
from opbuild.kernel.interfaces import Found, Missing
from opbuild.kernel.key import Key
from opbuild.kernel.networks import ImageKey, StoredNetwork
from opbuild.kernel.reason import Reason
from opbuild.platform.paths import Path
from opbuild.store.disk import DiskStore
from opbuild.store.networks import DiskNetworks
from opbuild.store.peers import Peers
from opbuild.store.weights import weights_file


class SharedStore(DiskStore):
    """A store on disk and those of peers. Threads may share it.

    Args:
        own: The store that is written to, and asked first.
        peers: Returns what the peers are called, and their folders.
        open_store: Opens a peer's folder with the same rules as ``own``.
    """

    def __init__(
        self,
        own: DiskStore,
        peers: Callable[[], Sequence[tuple[str, Path]]],
        open_store: Callable[[Path], DiskStore],
    ) -> None:
        super().__init__(own.folder, own.device_id, keep_times=own.keep_times, trust=own.trust)
        self._peers = peers
        self._open_store = open_store
        self._stores: dict[Path, DiskStore] = {}
        self._lent: dict[str, tuple[Entry, Path]] = {}

    def lookup(self, key: Key) -> Found | Missing:
        """Return one's own entry, else a peer's, which is lent until it is published; else why there is no own one."""
        answer = super().lookup(key)
        if isinstance(answer, Found):
            return answer
        for name, folder in self._peers():
            if not folder.is_dir():
                continue
            lent = self._store_of(folder).lookup(key)
            if isinstance(lent, Found):
                self._lent[lent.entry.name] = lent.entry, folder
                return Found(lent.entry, name)
        return answer

    def origins(self, keys: Sequence[Key]) -> list[Mapping[str, str]]:
        """Return what one's own store and those of the peers remember of operators."""
        stores = [self._store_of(folder) for _, folder in self._peers() if folder.is_dir()]
        known = [super().origins(keys), *(store.origins(keys) for store in stores)]
        return [dict(ChainMap(*map(dict, each))) for each in zip(*known, strict=True)]

    def _store_of(self, folder: Path) -> DiskStore:
        return self._stores.get(folder) or self._stores.setdefault(folder, self._open_store(folder))

    def publish(self, entry: Entry, linked_from: Path | None = None) -> str | None:
        """Add or replace an entry, a peer's by a link if that is possible; return None, or why it is not stored."""
        lent, folder = self._lent.pop(entry.name, (None, None))
        return super().publish(entry, linked_from or (folder if lent is entry else None))


class SharedNetworks(DiskNetworks):
    """Networks on disk and those of peers, which become one's own with their weights. Threads may share it.

    Args:
        own: The networks that are written to, and asked first.
        peers: Returns the peers' folders of networks.
    """

    def __init__(self, own: DiskNetworks, peers: Callable[[], Iterable[Path]]) -> None:
        super().__init__(own.folder, keep_times=own.keep_times, trust=own.trust, copies=own.copies)
        self._peers = peers

    def lookup(self, key: ImageKey) -> StoredNetwork | Reason:
        """Return one's own network, else a peer's; else why there is no own one."""
        own = super().lookup(key)
        if isinstance(own, StoredNetwork):
            return own
        for folder in self._peers():
            found = self._taken(key, folder) if (folder / f"{key.stem}.json").is_file() else None
            if found is not None:
                return found
        return own

    def answers(self, key: ImageKey) -> Iterator[Answers]:
        """Return the answers by which one's own networks were made, then those of peers."""
        yield from super().answers(key)
        for folder in self._peers():
            yield from DiskNetworks(folder, trust=self.trust).answers(key)

    def _taken(self, key: ImageKey, folder: Path) -> StoredNetwork | None:
        """Make a peer's network one's own; None if it has none, or not all of it can be had here."""
        found = DiskNetworks(folder, trust=self.trust, copies=self.copies).lookup(key)
        if isinstance(found, Reason):
            return None
        found = found._replace(states={})  # links are changes of the files: they are looked at once
        try:
            for digest in sorted(set(_DIGEST.findall(json.dumps(found.record)))):
                self._link(folder, weights_file(digest))
        except OSError:
            return None
        self.publish(key, found)
        return found

    def _link(self, folder: Path, name: str) -> None:
        """Link a peer's file, which is checked where it is used; not all digests of a record are those of weights.

        Raises:
            OSError: If it can not be linked.
        """
        own = self.folder / name
        if own.exists():
            return
        make_folder(own.parent)
        with contextlib.suppress(FileNotFoundError), private_path(own.parent) as temporary:
            os.link(folder / name, temporary, follow_symlinks=False)
            replace(temporary, own)


_DIGEST = re.compile(r"\b[0-9a-f]{64}\b")


def rank_networks(config: Config, own: DiskNetworks) -> SharedNetworks:
    """Return a rank's networks.

    Args:
        config: Where they are.
        own: One's own.
    """
    peers = Peers(config)
    return SharedNetworks(own, lambda: [peer.network_meta for peer in peers()])


def rank_stores(config: Config, open_store: Callable[[Path], DiskStore]) -> tuple[SharedStore, SharedStore]:
    """Return a rank's stores of operators and of the compiler's runtime library.

    Args:
        config: Where they are.
        open_store: Opens a folder, one's own or a peer's.
    """
    peers = Peers(config)
    return (
        SharedStore(open_store(config.kernel_meta), lambda: [(str(p), p.kernel_meta) for p in peers()], open_store),
        SharedStore(open_store(config.network_meta), lambda: [(str(p), p.network_meta) for p in peers()], open_store),
    )
