"""Cache: the folders of a cache seen as one, to list, to check, to clean, and to tell the needs of a stored network.

What commands show of it are tables, JSON values that the command line prints. A build that meets a wrong memo, counter
or setting goes on without it; here it is found although no build asks for it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from functools import cache
from typing import Any

from opbuild.config import Config
from opbuild.events import Watch, unwatched
from opbuild.frontend.models.memory import read_declaration
from opbuild.graph.types import TensorType
from opbuild.kernel.reason import Reason
from opbuild.platform.files.mapping import digest_file
from opbuild.platform.files.trust import PRIVATE, Trust, make_trust
from opbuild.platform.paths import Path
from opbuild.platform.records import dataclass
from opbuild.runtime.record_json import from_json
from opbuild.store import ageing
from opbuild.store.blobs import Folder
from opbuild.store.claims import sweep_claims
from opbuild.store.concurrent_map import watched_map
from opbuild.store.counters import FILE, OLD_FILE, Counters, check_counters, read_counters
from opbuild.store.inventory import SIZE_FILE, disk_usage, read_size, survey
from opbuild.store.items import REFUSED, Item, Kind, reason_of, remove_files
from opbuild.store.networks import MODELS, NETWORKS, NetworkFiles, read_network, weights_of
from opbuild.store.operators import entry_in, summarize
from opbuild.store.peers import claims_folder
from opbuild.store.policy import read_policy
from opbuild.store.weights import read_reference, remove_references, weights_file


@dataclass(frozen=True)
class ItemProblem:
    """Something that no look-up would accept, and why."""

    item: Item
    reason: Reason


@dataclass(frozen=True)
class Stats:
    """Numbers about a cache.

    Attributes:
        count: Number of items by kind.
        nbytes: Their bytes by kind.
        total: Bytes of everything in the folder, and of folders, as ``du`` counts them.
        counters: What look-ups found.
    """

    count: dict[Kind, int]
    nbytes: dict[Kind, int]
    total: int
    counters: Counters

    @property
    def others(self) -> int:
        """Bytes of files of no kind: memos, settings, folders."""
        return max(self.total - sum(self.nbytes.values()), 0)


@dataclass(frozen=True)
class Cache:
    """A cache's folders.

    Attributes:
        kernel_meta: The folder of operators.
        network_meta: The folder of networks, packed weights and the compiler's runtime library.
        trust: Whose files are believed.
        claims: The folder of claims; None: there is none.
        settings: ``op_cache.ini``; None: there is none.
    """

    kernel_meta: Path
    network_meta: Path
    trust: Trust = PRIVATE
    claims: Path | None = None
    settings: Path | None = None

    @property
    def folder(self) -> Path:
        """The folder in which everything lies."""
        return self.network_meta.parent

    @staticmethod
    def of(config: Config) -> Cache:
        """Return the cache that a build with these settings uses."""
        folders = config.kernel_meta, config.network_meta
        return Cache(*folders, make_trust(config), claims_folder(config), config.policy_file)

    def items(self, *kinds: Kind) -> list[Item]:
        """Return the items of some kinds, sorted by name."""
        found = survey(self.kernel_meta, self.network_meta).items
        return sorted((item for item in found if item.kind in kinds), key=lambda item: item.name)

    def find(self, name: str) -> list[Item]:
        """Return the operators and networks of a name, or else those whose names begin with it."""
        stored = survey(self.kernel_meta, self.network_meta, name).items
        found = sorted((item for item in stored if item.kind in ("operator", "network")), key=lambda item: item.name)
        return [item for item in found if item.name == name] or [item for item in found if item.name.startswith(name)]

    def stats(self) -> Stats:
        """Return numbers about the cache."""
        count, nbytes = dict.fromkeys(SHOWN, 0), dict.fromkeys(SHOWN, 0)
        for item in self.items(*SHOWN):
            count[item.kind] += 1
            nbytes[item.kind] += item.nbytes
        return Stats(count, nbytes, disk_usage(self.folder), read_counters(self.network_meta))

    def describe(self, item: Item) -> Description | Reason:
        """Return the description of a stored network, or why it cannot be read; looking is no use."""
        stored = read_network(item.name, looked_at(folder_of(item), self.trust), self.trust, whole=False)
        return stored if isinstance(stored, Reason) else describe(item.name, stored)

    def problems(self, watch: Watch = unwatched) -> Iterator[ItemProblem]:
        """Yield everything that is damaged; files of another release of opbuild are not."""
        items = self.checked()
        sizes = weights_sizes(self.items("reference"), self.trust)
        weights = [item for item in items if item.kind == "weight"]
        others = [item for item in items if item.kind != "weight"]
        digests = cache(digest_file)  # of the weights, so that networks which share them do not read them again

        def look(item: Item) -> Reason | None:
            return problem_of(item, self.trust, sizes, digests)

        for item, found in watched_map([(weights, look), (others, look)], watch):
            problem = self._problem(item, found, sizes)
            if problem is not None:
                yield problem

    def _problem(self, item: Item, reason: Reason | None, sizes: Mapping[str, int]) -> ItemProblem | None:
        """Return the problem of an item, unless it has none or has changed since."""
        if reason is not None and reason.code in ("incomplete", "damaged"):
            reason = problem_of(item, self.trust, sizes)  # it may just have been published, replaced or removed
        if reason is None or reason.code == "other-format" or not any(Path(file).exists() for file in item.files):
            return None
        return ItemProblem(item, reason)

    def checked(self) -> list[Item]:
        """Return everything that ``problems`` looks at."""
        found = sorted(survey(self.kernel_meta, self.network_meta).items, key=lambda item: item.name)
        stored = [item for item in found if item.kind in ("operator", "weight", "network")]
        return stored + remembered_items(found, self.settings)

    def repair(self, problem: ItemProblem) -> bool:
        """Remove a damaged item, which the next build that needs it makes again; return whether it is gone.

        Settings stay: they are their user's.
        """
        return problem.item.kind != "settings" and remove_files(problem.item.files)

    def repaired(self, problems: Iterable[ItemProblem]) -> None:
        """Remove the references to weights that were removed: once for all, since each such file must be read."""
        weights = {problem.item.name for problem in problems if problem.item.kind == "weight"}
        remove_references(self.network_meta / "weights", weights)

    def clear(self, watch: Watch = unwatched) -> tuple[Item, ...]:
        """Remove everything but the settings; return the removed items."""
        removed = ageing.clear(self.kernel_meta, self.network_meta, watch)
        if self.claims is not None:
            sweep_claims(self.claims)
        return removed

    def prune(
        self, *, older_than: float | None = None, max_bytes: int | None = None, watch: Watch = unwatched
    ) -> tuple[Item, ...]:
        """Remove the items not used for so many seconds, and then those used least recently until a size is reached.

        Returns what was removed.
        """
        removed: tuple[Item, ...] = ()
        if older_than is not None:
            removed += ageing.remove_idle(self.kernel_meta, self.network_meta, older_than, watch)
        if max_bytes is not None:
            removed += ageing.shrink(self.kernel_meta, self.network_meta, max_bytes, watch)
        return removed


_MOST_HOLES = 1024
"""How much larger than what it takes on the disk a file may be that is read whole; file systems compress less."""

SHOWN: tuple[Kind, ...] = ("operator", "network", "weight", "memo")
"""What the commands show."""


def folder_of(item: Item) -> Path:
    """Return the folder in which an item lies."""
    return Path(item.mark).parent


def problem_of(
    item: Item,
    trust: Trust = PRIVATE,
    sizes: Mapping[str, int] | None = None,
    digest: Callable[[Path, Trust], str] = digest_file,
) -> Reason | None:
    """Return the problem of an item, None if it is sound or gone.

    Args:
        item: What to look at.
        trust: Whose files are believed.
        sizes: Bytes that packed weights must have, by digest, as far as they are known.
        digest: Returns the BLAKE3 of weights.
    """
    if item.kind == "weight":
        return _wrong_weight(Path(item.mark), trust, (sizes or {}).get(item.name), digest)
    if item.kind in ("memo", "settings"):
        return problem_of_remembered(item, trust)
    if item.kind == "operator":
        entry = entry_in(looked_at(folder_of(item), trust), item.name)
        return entry if isinstance(entry, Reason) else None
    network = check_network(folder_of(item), item.name, trust, digest)
    return network if isinstance(network, Reason) else None


def check_network(
    folder: Path, name: str, trust: Trust = PRIVATE, digest: Callable[[Path, Trust], str] = digest_file
) -> Description | Reason:
    """Return the description of a stored network whose every byte was checked, its weights included, or its problem."""
    stored = read_network(name, looked_at(folder, trust), trust)
    network = stored if isinstance(stored, Reason) else describe(name, stored)
    for weight, nbytes in network.weights.items() if not isinstance(network, Reason) else ():
        path = folder / weights_file(weight)
        wrong = _wrong_weight(path, trust, nbytes, digest)
        if wrong is not None or not path.exists():
            return wrong or Reason("incomplete", f"{path.name} is missing")
    return network


def looked_at(folder: Path, trust: Trust = PRIVATE) -> Folder:
    """Return the blobs of a folder, of which looking at them is no use."""
    return Folder(folder, trust, is_quiet=True, is_judged=True)


def _wrong_weight(path: Path, trust: Trust, nbytes: int | None, digest: Callable[[Path, Trust], str]) -> Reason | None:
    """Return the problem of packed weights; those of a wrong size, or that are all but empty, are not read."""
    try:
        state = path.stat()
        if nbytes not in (None, state.st_size) or state.st_size > _MOST_HOLES * max(512 * state.st_blocks, 4096):
            return Reason("damaged", f"it has {state.st_size} bytes, which are not what was written")
        return None if digest(path, trust) == path.stem else Reason("damaged", "its digest differs from its name")
    except FileNotFoundError:
        return None
    except OSError as error:
        return reason_of(error, "it")


@dataclass(frozen=True)
class Description:
    """The description of a stored network.

    Attributes:
        network: The network's own name.
        target: The target that it is for.
        inputs: Name and type of each input.
        outputs: Name and type of each output.
        operators: Name of each operator, and the nodes that it computes.
        host: How many nodes of each type run on the host.
        weights: Digest and bytes of the packed weights that it maps.
        files: Its files and those of its weights, as paths below the folder; the commit mark last.
    """

    network: str
    target: str
    inputs: tuple[tuple[str, TensorType], ...]
    outputs: tuple[tuple[str, TensorType], ...]
    operators: tuple[tuple[str, tuple[str, ...]], ...]
    host: Mapping[str, int]
    weights: Mapping[str, int]
    files: tuple[str, ...]


def describe(name: str, stored: NetworkFiles) -> Description | Reason:
    """Return the description of a stored network, or why it cannot be run; its weights are not looked at."""
    try:
        record = from_json(stored.record)
        weights = record.constants.weights
        return Description(
            network=record.name,
            target=stored.key.target,
            inputs=tuple((port.name, port.type) for port in record.declared(record.inputs)),
            outputs=tuple((port.name, port.type) for port in record.declared(record.outputs)),
            operators=tuple(
                (str(operator), tuple(map(str, nodes))) for operator, nodes, _ in record.notes.get("operators", ())
            ),
            host=Counter(call.node.op_type for call in record.steps.hosts if call.computes),
            weights=weights,
            files=(*map(weights_file, weights), f"{name}.so", f"{name}.bin", f"{name}.json"),
        )
    except REFUSED as error:
        return reason_of(error)


_STATES = NETWORKS.suffixes[-1]
_DECLARATION, _DIGEST = MODELS.suffixes


def remembered_items(items: Iterable[Item], settings: Path | None) -> list[Item]:
    """Return the files that remember something, each as an item, sorted by name."""
    files = [
        file
        for item in items
        if item.kind in ("memo", "origin", "reference", "note", "network")
        for file in item.files
        if item.kind != "network" or file.endswith(_STATES)
    ]
    found = [Item("memo", Path(file).name, (file,), 0, 0.0) for file in sorted(files)]
    if settings is not None and settings.is_file():
        found.append(Item("settings", settings.name, (str(settings),), 0, 0.0))
    return found


def problem_of_remembered(item: Item, trust: Trust) -> Reason | None:
    """Return the problem of a memo, a counter or settings, None if the file is sound or gone."""
    path = Path(item.mark)
    if item.kind == "settings":
        _, warnings = read_policy(path, trust=trust)
        return Reason("invalid", warnings[0].removeprefix(f"{path} ")) if warnings else None
    try:
        _reader(path)(path, trust)
    except FileNotFoundError:
        return None
    except REFUSED as error:
        reason = reason_of(error, "it")
        known = isinstance(error, OSError) or reason.code != "damaged"
        return reason if known else Reason("damaged", "it is not what was written into a file of this name")
    return None


def weights_sizes(items: Iterable[Item], trust: Trust) -> dict[str, int]:
    """Return the bytes that packed weights must have, by digest, as far as it is remembered."""
    sizes = {}
    for item in items:
        if item.kind == "reference":
            try:
                digest, nbytes = read_reference(Path(item.mark), trust)
            except REFUSED:
                continue
            sizes[digest] = nbytes
    return sizes


def _reader(path: Path) -> Callable[[Path, Trust], Any]:
    if path.name in (FILE, OLD_FILE):
        return check_counters
    if path.name == SIZE_FILE:
        return read_size
    if path.suffix == _DECLARATION:
        return read_declaration
    if path.parent.name == "weights":
        return read_reference
    return _read_digest if path.suffix == _DIGEST else lambda path, trust: trust.read_memo(path)


def _read_digest(path: Path, trust: Trust) -> None:
    if not re.fullmatch(r"[0-9a-f]{64}", trust.read_memo(path)["blake3"]):
        raise ValueError("it holds no digest")


Row = dict[str, Any]

KINDS: Mapping[Kind, str] = {
    "operator": "operator", "network": "network", "weight": "weights", "memo": "memo", "settings": "settings",
}  # fmt: skip
"""What each kind of item is called."""

STORED: Mapping[Kind, str] = {
    "operator": "operators", "network": "networks", "weight": "packed weights", "memo": "models known",
}  # fmt: skip
"""What the items of each kind are called together."""


def rows(cache: Cache, watch: Watch = unwatched) -> tuple[list[Row], list[Row]]:
    """Return a row for each operator and network, the last used first, and one for each packed weight."""
    weights = {item.name: item for item in cache.items("weight")}
    items = sorted(cache.items("operator", "network"), key=lambda item: (-item.last_use, item.name))
    found = [row for _, row in watched_map([(items, lambda item: _row(item, weights))], watch)]
    return found, [_row(item, weights) for item in weights.values()]


def _row(item: Item, weights: Mapping[str, Item]) -> Row:
    row: Row = {"name": item.name, "kind": KINDS[item.kind]}
    row |= {"types": "", "target": "", "variant": "", "milliseconds": 0.0, "other_release": False}
    if item.kind == "operator":
        summary = summarize(looked_at(folder_of(item)), item.name)
        row |= {"types": summary.op_types, "target": summary.target, "variant": summary.variant}
        row["milliseconds"] = summary.milliseconds
        row["other_release"] = summary.is_of_another_release
    elif item.kind == "network":
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
    """Return the sizes of stored items, and the results of look-ups."""
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
