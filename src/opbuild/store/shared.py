"""A rank's store that takes from its peers what it lacks itself.

A peer's entry is checked as one's own is, and then made one's own: by a hard link where the file system allows, so that
the ranks of a host keep one copy. Everything is written to one's own folder only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from opbuild.config import Config
from opbuild.kernel.entry import Entry
from opbuild.kernel.interfaces import Found, Missing
from opbuild.kernel.key import Key
from opbuild.store.disk import DiskStore
from opbuild.store.peers import Peers


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
            store = self._stores.get(folder) or self._stores.setdefault(folder, self._open_store(folder))
            lent = store.lookup(key)
            if isinstance(lent, Found):
                self._lent[lent.entry.name] = lent.entry, folder
                return Found(lent.entry, name)
        return answer

    def publish(self, entry: Entry, linked_from: Path | None = None) -> str | None:
        """Add or replace an entry, a peer's by a link if that is possible; return None, or why it is not stored."""
        lent, folder = self._lent.pop(entry.name, (None, None))
        return super().publish(entry, linked_from or (folder if lent is entry else None))


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
