"""Ageing: when a cache folder is larger than its policy allows, items not used for half an hour go.

Constraints, and how they are met:

* It is work that is lost, never correctness: a removed entry is a miss, and is built again.
* Any number of processes may age one folder at once, without a lock that one of them could die with. All see the same
  order, so all choose the same victims; what another has removed already counts as gone.
* What this process uses, and what anybody used in the last half hour, stays, however large the folder is.
* Weights cannot push operators out: a few large networks in use would otherwise empty the folder of everything else.

Pruning removes because somebody asked for it, in the same order. Nothing is locked there either: what a build publishes
meanwhile stays.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from time import perf_counter

from opbuild.events import Watch, unwatched
from opbuild.platform.files.private import is_rubbish
from opbuild.platform.files.trust import PRIVATE, Trust
from opbuild.platform.files.writing import written
from opbuild.platform.paths import Path
from opbuild.platform.records import dataclass
from opbuild.store.concurrent_map import watched_map
from opbuild.store.inventory import (
    FEW_FILES,
    LOOKED_AT,
    Inventory,
    MeasuredFolder,
    add_to_size,
    forget_size,
    remember_size,
    remembered_size,
    survey,
    tidy,
)
from opbuild.store.items import REMEMBERED, Item, is_in_use, remove_files
from opbuild.store.networks import weights_of
from opbuild.store.policy import Policy
from opbuild.store.weights import remove_references

PROTECTED_SECONDS = 1800.0
"""For how long a use protects an entry."""

Clock = Callable[[], float]

_CLOCKS_DIFFER = 86400.0
"""A time of use that lies further than this in the future says nothing, and counts as long ago."""

_LONGEST_SECONDS = 1.0
"""For how long the end of a build removes things; what is left to remove, the next builds do."""

_SHARE = 20
"""A folder that stays too large is looked at again after so many times what looking took: a twentieth of the time."""

_IN_VAIN_SECONDS = 300.0
"""After which it is looked at again where all that is left is protected."""


@dataclass(frozen=True)
class Aged:
    """The result of ageing.

    Attributes:
        files: Number of files in the folder before.
        nbytes: Their size.
        removed: What was removed.
        ended: Whether nothing is left to remove.
    """

    files: int
    nbytes: int
    removed: tuple[Item, ...] = ()
    ended: bool = True

    @property
    def freed(self) -> int:
        """Bytes removed."""
        return sum(item.nbytes for item in self.removed)


def age_after_build(
    kernel_meta: Path, network_meta: Path, policy: Policy, trust: Trust = PRIVATE, clock: Clock = time.time
) -> None:
    """Age a folder at the end of a build that added something, in a time that does not grow with its content.

    The size of a large folder is remembered, so it is looked at only once it may exceed its limit.
    """
    now, count = clock(), written()
    added = count - _COUNTED.get(network_meta, 0)
    _COUNTED[network_meta] = count
    known = remembered_size(network_meta, now, trust)
    if known is not None and (not policy.ages or known.nbytes + added <= policy.max_bytes or now < known.again):
        add_to_size(network_meta, added)
        return
    started = perf_counter()
    aged = age(kernel_meta, network_meta, policy, least=added, seconds=_LONGEST_SECONDS, clock=clock)
    if aged.files <= FEW_FILES:
        if known is not None:
            forget_size(network_meta)
        return
    left, pause = aged.nbytes - aged.freed, 0.0
    if policy.ages and left > policy.max_bytes:
        pause = max(_SHARE * (perf_counter() - started), _IN_VAIN_SECONDS if aged.ended else 0.0)
    remember_size(network_meta, MeasuredFolder(left, now, now + pause))


_COUNTED: dict[Path, int] = {}
"""For each folder the bytes that this process had written when it was last aged."""


def age(
    kernel_meta: Path,
    network_meta: Path,
    policy: Policy,
    *,
    least: int = 0,
    seconds: float = math.inf,
    clock: Clock = time.time,
    is_used: Callable[[str], bool] = is_in_use,
) -> Aged:
    """Remove the rests of killed writers, and bring a folder down to its policy if it is too large.

    Never raises for a fault of the storage: what cannot be removed stays.

    Args:
        kernel_meta: The folder of operators.
        network_meta: The folder of stored networks.
        policy: Its limits.
        least: Bytes to remove however long it takes.
        seconds: After how many seconds of removing to leave the rest to the next build.
        clock: Says the time, in seconds since the epoch.
        is_used: Whether this process uses the item with this commit mark.
    """
    if not policy.ages:
        return Aged(tidy(kernel_meta, network_meta, look_at=0).files, 0)
    found, now = tidy(kernel_meta, network_meta, LOOKED_AT), clock()
    if found.nbytes <= policy.max_bytes or (found.files > LOOKED_AT and _is_recent(found.oldest, now)):
        return Aged(found.files, found.nbytes)
    inventory = survey(kernel_meta, network_meta)
    chosen = choose(inventory, policy.remaining_bytes, now, lambda item: is_used(item.mark), weights_of)
    removed, ended = remove_unused(chosen, now, least, seconds)
    remove_references(network_meta / "weights", {item.name for item in removed if item.kind == "weight"})
    return Aged(found.files, inventory.nbytes, removed, ended)


def remove_unused(
    chosen: Iterable[Item], now: float, least: int = 0, seconds: float = math.inf
) -> tuple[tuple[Item, ...], bool]:
    """Remove items that nobody has used since they were listed; return those gone, and whether none is left to remove.

    For ``least`` and ``seconds`` see ``age``.
    """
    removed: list[Item] = []
    freed, end = 0, perf_counter() + seconds
    for item in chosen:
        if freed >= least and perf_counter() > end:
            return tuple(removed), False
        if not _is_in_use_again(item, now) and remove_files(item.files):
            removed.append(item)
            freed += item.nbytes
    return tuple(removed), True


def choose(
    inventory: Inventory,
    remaining: int,
    now: float,
    is_used: Callable[[Item], bool],
    weights: Callable[[Item], frozenset[str]],
) -> Iterator[Item]:
    """Yield the items that must go, in order: rubbish, weights without a network, networks with weights, operators.

    Args:
        inventory: What there is.
        remaining: Bytes at which to stop.
        now: Seconds since the epoch.
        is_used: Whether this process uses an item.
        weights: Digests of the weights that a network maps; asked once for each.
    """
    yield from _Shrinking(inventory, remaining, now, is_used, weights).victims()


@dataclass
class _Shrinking:
    """A folder of which more and more goes; fields are the arguments of ``choose``."""

    inventory: Inventory
    remaining: int
    now: float
    is_used: Callable[[Item], bool]
    weights_of: Callable[[Item], frozenset[str]]

    def __post_init__(self) -> None:
        self._size = self.inventory.nbytes
        self._items = sorted(self.inventory.items, key=lambda item: (item.last_use, item.name))
        self._weights = {item.name: item for item in self._items if item.kind == "weight"}
        self._mapped = {item.mark: self.weights_of(item) for item in self._items if item.kind == "network"}
        self._users = Counter(digest for digests in self._mapped.values() for digest in digests)

    def victims(self) -> Iterator[Item]:
        for item in self._items:
            if item.kind == "private" and is_rubbish(item.name, self.now - item.last_use):
                yield self._subtract(item)
        orphans = [item for name, item in self._weights.items() if not self._users[name]]
        for item in [*orphans, *(item for item in self._items if item.kind in ("network", "memo", "origin"))]:
            if self._size <= self.remaining:
                return
            if self._is_idle(item):
                yield self._subtract(item)
                yield from map(self._subtract, self._weights_orphaned_by(item))
        weights = sum(item.nbytes for item in self._weights.values())
        for item in self._items:
            if self._size - weights <= self.remaining:
                return
            if item.kind == "operator" and self._is_idle(item):
                yield self._subtract(item)

    def _subtract(self, item: Item) -> Item:
        self._size -= item.nbytes
        if item.kind == "weight":
            del self._weights[item.name]
        return item

    def _weights_orphaned_by(self, network: Item) -> list[Item]:
        """Return the weights that nobody maps once this network is gone."""
        self._users.subtract(self._mapped.get(network.mark, ()))
        stored = [self._weights[digest] for digest in self._mapped.get(network.mark, ()) if digest in self._weights]
        return [weight for weight in stored if not self._users[weight.name] and self._is_idle(weight)]

    def _is_idle(self, item: Item) -> bool:
        return not self.is_used(item) and not _is_recent(item.last_use, self.now)


def _is_recent(last_use: float, now: float) -> bool:
    return -_CLOCKS_DIFFER < now - last_use < PROTECTED_SECONDS


def _is_in_use_again(item: Item, now: float) -> bool:
    with contextlib.suppress(OSError):
        return item.kind in ("operator", "network") and now - Path(item.mark).stat().st_atime < PROTECTED_SECONDS
    return False


def remove_idle(kernel_meta: Path, network_meta: Path, seconds: float, watch: Watch = unwatched) -> tuple[Item, ...]:
    """Remove items not used for a time, and the weights that no network maps any more; return the removed items."""
    inventory, now = survey(kernel_meta, network_meta), time.time()
    idle = [item for item in inventory.items if item.kind not in REMEMBERED and now - item.last_use > seconds]
    kept = {item.mark for item in inventory.items} - {item.mark for item in idle}
    networks = [item for item in inventory.items if item.kind == "network" and item.mark in kept]
    mapped = frozenset[str]().union(*map(weights_of, networks))
    chosen = [item for item in idle if item.kind != "weight" or item.name not in mapped]
    return remove(chosen, network_meta, young=seconds, watch=watch)


def shrink(kernel_meta: Path, network_meta: Path, max_bytes: int, watch: Watch = unwatched) -> tuple[Item, ...]:
    """Remove items used least recently, networks before operators, until a size is reached; return those gone.

    Unlike ageing it does not spare what was used in the last half hour: somebody has asked for the size.
    """
    inventory = survey(kernel_meta, network_meta)
    later = time.time() + PROTECTED_SECONDS
    chosen = choose(inventory, max_bytes, later, lambda item: False, weights_of) if inventory.nbytes > max_bytes else ()
    return remove(tuple(chosen), network_meta, watch=watch)


def clear(kernel_meta: Path, network_meta: Path, watch: Watch = unwatched) -> tuple[Item, ...]:
    """Remove everything that opbuild put there and can do without; return the removed items."""
    tidy(kernel_meta, network_meta, look_at=0)
    items = survey(kernel_meta, network_meta).items
    removed = remove([item for item in items if item.kind not in REMEMBERED], network_meta, watch=watch)
    for item in items:
        if item.kind in REMEMBERED:
            remove_files(item.files)
    return removed


def remove(items: Sequence[Item], network_meta: Path, young: float = 0.0, watch: Watch = unwatched) -> tuple[Item, ...]:
    """Remove items, each with its commit mark first; those that cannot be removed stay.

    Args:
        items: What to remove; files that somebody may still be writing stay.
        network_meta: Where the weights are whose references go with them.
        young: Seconds since its last use for which an item stays.
        watch: Told how many items were dealt with.
    """
    now = time.time()

    def remove_one(item: Item) -> bool:
        idle = now - item.last_use
        goes = idle >= young if item.kind != "private" else is_rubbish(item.name, idle)
        return goes and remove_files(item.files)

    parts = [list(part) for _, part in groupby(items, lambda item: item.kind == "weight")]
    done = watched_map([(part, remove_one) for part in parts], watch)  # networks are gone before their weights go
    removed = [item for item, gone in done if gone]
    remove_references(network_meta / "weights", {item.name for item in removed if item.kind == "weight"})
    return tuple(removed)
