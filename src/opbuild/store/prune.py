"""Pruning: removing from a cache folder because somebody asked for it, in the order in which ageing does.

Nothing is locked. An entry goes with its commit mark first, so who looks it up meanwhile finds all of it or a miss; a
process that has read or mapped something keeps it; what a build publishes meanwhile stays.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from itertools import count, groupby

from opbuild.events import Watch, unwatched
from opbuild.files.private import is_rubbish
from opbuild.platform.paths import Path
from opbuild.store.ageing import PROTECTED_SECONDS, choose
from opbuild.store.concurrent_map import concurrent_map
from opbuild.store.inventory import survey, tidy
from opbuild.store.items import REMEMBERED, Item, remove_files
from opbuild.store.networks import weights_of
from opbuild.store.weights import remove_references


def remove_idle(kernel_meta: Path, network_meta: Path, seconds: float, watch: Watch = unwatched) -> tuple[Item, ...]:
    """Remove items not used for a time, and the weights that no network maps any more; return the removed items."""
    inventory, now = survey(kernel_meta, network_meta), time.time()
    idle = [item for item in inventory.items if item.kind not in REMEMBERED and now - item.last_use > seconds]
    kept = {item.mark for item in inventory.items} - {item.mark for item in idle}
    images = [item for item in inventory.items if item.kind == "image" and item.mark in kept]
    mapped = frozenset[str]().union(*map(weights_of, images))
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
    now, numbers = time.time(), count()
    watch(next(numbers), len(items))

    def goes(item: Item) -> bool:
        idle = now - item.last_use
        return idle >= young if item.kind != "private" else is_rubbish(item.name, idle)

    def remove_one(item: Item) -> bool:
        gone = goes(item) and remove_files(item.files)
        watch(next(numbers), len(items))
        return gone

    removed: list[Item] = []
    for _, part in groupby(items, lambda item: item.kind == "weight"):  # networks are gone before their weights go
        with closing(concurrent_map(part, remove_one)) as done:
            removed += [item for item, gone in done if gone]
    remove_references(network_meta / "weights", {item.name for item in removed if item.kind == "weight"})
    return tuple(removed)
