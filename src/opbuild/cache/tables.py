"""Tables: the contents of a cache as JSON values; the command line prints them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from datetime import datetime, timezone
from typing import Any

from opbuild.cache.folder import Cache, Description, ItemProblem, Stats, folder_of, looked_at, problem_of
from opbuild.events import Watch, unwatched
from opbuild.kernel.reason import Reason
from opbuild.platform.paths import Path
from opbuild.store.concurrent_map import concurrent_map
from opbuild.store.items import Item, Kind
from opbuild.store.networks import weights_of
from opbuild.store.operators import summarize

Row = dict[str, Any]

KINDS: Mapping[Kind, str] = {
    "operator": "operator", "image": "network", "weight": "weights", "memo": "memo", "settings": "settings",
}  # fmt: skip
"""What each kind of item is called."""

STORED: Mapping[Kind, str] = {
    "operator": "operators", "image": "networks", "weight": "packed weights", "memo": "models known",
}  # fmt: skip
"""What the items of each kind are called together."""


def rows(cache: Cache, watch: Watch = unwatched) -> tuple[list[Row], list[Row]]:
    """Return a row for each operator and network, the last used first, and one for each packed weight."""
    weights = {item.name: item for item in cache.items("weight")}
    items = sorted(cache.items("operator", "image"), key=lambda item: (-item.last_use, item.name))
    found = list[Row]()
    with closing(concurrent_map(items, lambda item: _row(item, weights))) as read:
        for _, row in read:
            found.append(row)
            watch(len(found), len(items))
    return found, [_row(item, weights) for item in weights.values()]


def _row(item: Item, weights: Mapping[str, Item]) -> Row:
    row: Row = {"name": item.name, "kind": KINDS[item.kind]}
    row |= {"types": "", "target": "", "variant": "", "milliseconds": 0.0, "other_release": False}
    if item.kind == "operator":
        summary = summarize(looked_at(folder_of(item)), item.name)
        row |= {"types": summary.op_types, "target": summary.target, "variant": summary.variant}
        row["milliseconds"] = summary.milliseconds
        row["other_release"] = summary.is_of_another_release
    elif item.kind == "image":
        mapped = [weights[digest].nbytes for digest in weights_of(item) if digest in weights]
        row |= {"weights": len(mapped), "weights_bytes": sum(mapped)}
    return {**row, "bytes": item.nbytes, "last_use": item.last_use}


def details(cache: Cache, item: Item) -> Row:
    """Return the details of one operator or network."""
    problem = problem_of(item, cache.trust)
    found: Row = {
        "name": item.name,
        "state": "sound" if problem is None else problem.text,
        "files": [Path(file).name for file in item.files if Path(file).exists()],
        "bytes": item.nbytes,
        "last use": datetime.fromtimestamp(item.last_use, timezone.utc).isoformat(timespec="seconds"),
    }
    if item.kind == "operator":
        summary = summarize(looked_at(folder_of(item)), item.name)
        return found | {"asked by": summary.node, "compile ms": summary.milliseconds, "key": summary.components}
    described = cache.describe(item)
    return found if isinstance(described, Reason) else found | _of_network(described)


def _of_network(network: Description) -> Row:
    def ports(each: Any) -> list[Row]:
        return [{"name": name, "dtype": type_.dtype, "shape": list(type_.shape)} for name, type_ in each]

    return {
        "network": network.network,
        "target": network.target,
        "inputs": ports(network.inputs),
        "outputs": ports(network.outputs),
        "weights": {"count": len(network.weights), "bytes": sum(network.weights.values())},
        "host": dict(network.host),
        "operators": {name: list(nodes) for name, nodes in network.operators},
    }


def statistics(numbers: Stats) -> Row:
    """Return the sizes of what is stored, and the results of look-ups."""
    counters = numbers.counters
    return {
        "stored": {STORED[kind]: {"count": n, "bytes": numbers.nbytes[kind]} for kind, n in numbers.count.items()},
        "other_bytes": numbers.others,
        "total_bytes": numbers.total,
        "builds": counters.builds,
        "since": counters.since,
        "hits": counters.hits,
        "misses": dict(counters.misses),
        "saved_ms": round(counters.saved_ms, 1),
        "spent_ms": round(counters.spent_ms, 1),
    }


def damaged(problems: Iterable[ItemProblem]) -> list[Row]:
    """Return a row for each problem of a cache."""
    return [
        {"kind": KINDS[each.item.kind], "name": each.item.name, "code": each.reason.code, "why": each.reason.text}
        for each in problems
    ]


def removed(items: Sequence[Item]) -> Row:
    """Return the numbers of removed items, and their bytes."""
    count = {name: sum(item.kind == kind for item in items) for kind, name in KINDS.items()}
    return {
        "operators": count["operator"],
        "networks": count["network"],
        "bytes": sum(item.nbytes for item in items),
        "names": sorted(item.name for item in items),
    }
