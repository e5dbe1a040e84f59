"""Files that a cache only remembers: memos, counters and settings, and the problems of each.

A build that meets a wrong one goes on without it; here it is found although no build asks for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from opbuild.files.trust import Trust
from opbuild.frontend.models.memory import read_declaration
from opbuild.kernel.reason import Reason
from opbuild.platform.paths import Path
from opbuild.store.counters import FILE, OLD_FILE, check_counters
from opbuild.store.items import REFUSED, Item, reason_of
from opbuild.store.measured import FILE as SIZE_FILE
from opbuild.store.measured import read_measured
from opbuild.store.networks import MODELS, NETWORKS
from opbuild.store.policy import read_policy
from opbuild.store.weights import read_reference

_STATES = NETWORKS.suffixes[-1]
_DECLARATION, _DIGEST = MODELS.suffixes


def remembered_items(items: Iterable[Item], settings: Path | None) -> list[Item]:
    """Return the files that remember something, each as an item, sorted by name.

    Args:
        items: What lies in the cache.
        settings: Its settings; None: it has none.
    """
    files = [
        file
        for item in items
        if item.kind in ("memo", "origin", "reference", "note", "image")
        for file in item.files
        if item.kind != "image" or file.endswith(_STATES)
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
        return read_measured
    if path.suffix == _DECLARATION:
        return read_declaration
    if path.parent.name == "weights":
        return read_reference
    return _read_digest if path.suffix == _DIGEST else _read_memo


def _read_memo(path: Path, trust: Trust) -> None:
    trust.read_memo(path)


def _read_digest(path: Path, trust: Trust) -> None:
    if not re.fullmatch(r"[0-9a-f]{64}", trust.read_memo(path)["blake3"]):
        raise ValueError("it holds no digest")
