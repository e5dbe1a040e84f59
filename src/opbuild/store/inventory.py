"""What lies in a cache folder: operators, network images, weights, with their sizes and the times of their last use.

Names, sizes and times only: nothing is opened, so that 50,000 entries are listed in a second.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import stat
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from opbuild.files.private import PREFIX, remove_rubbish
from opbuild.kernel.entry import SUFFIXES

Kind = Literal["operator", "image", "memo", "weight", "private", "settings"]

MARK = SUFFIXES[-1]
"""The suffix of the commit mark: of the file whose access time is the time of an entry's last use."""

LOOKED_AT = 10_000
"""Files of a folder whose size and times ``tidy`` asks for; it takes 40 ms."""

_OPERATOR = re.compile(r"[a-z0-9_]+_[0-9]+_[0-9]+")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_COMPILER = "compiler"
_MEMO_SUFFIXES = (".model", ".digest")


@dataclass(frozen=True)
class Item:
    """Something that goes as a whole.

    Attributes:
        kind: ``operator``; ``image``, a network's; ``memo``, what is known of a model; ``weight``, packed weights;
            ``private``, a file that somebody is writing or was killed writing; ``settings``, which are its user's.
        name: The files' name without suffix.
        files: Paths of its files, the commit mark first if it is there.
        nbytes: What they take on the disk: small files take more than they hold.
        last_use: Seconds since the epoch.
    """

    kind: Kind
    name: str
    files: tuple[str, ...]
    nbytes: int
    last_use: float

    @property
    def mark(self) -> str:
        """The path of the commit mark."""
        return self.files[0]


@dataclass(frozen=True)
class Inventory:
    """What lies in a cache folder.

    Attributes:
        items: What opbuild put there and can do without.
        nbytes: The size of everything, strange files too.
    """

    items: tuple[Item, ...]
    nbytes: int


class _File:
    """One file as the listing shows it."""

    __slots__ = ("accessed", "nbytes", "path", "used")

    def __init__(self, path: str, state: os.stat_result) -> None:
        self.path = path
        self.nbytes = max(state.st_size, 512 * state.st_blocks)  # what it takes on the disk; some systems say it late
        self.accessed = state.st_atime
        self.used = max(state.st_atime, state.st_mtime)


_Groups = dict[str, dict[str, _File]]


def measure(kernel_meta: Path, network_meta: Path) -> int:
    """Return the size that ``survey`` finds, in less time."""
    return sum(file.nbytes for folder in folders_of(kernel_meta, network_meta) for _, file in _files(folder))


@dataclass(frozen=True)
class Extent:
    """How much lies in a cache folder, as far as a look at some of its files can tell.

    Attributes:
        files: Number of files, and folders.
        nbytes: The files' size; an estimate where there are more than were looked at.
        oldest: The least recent use of an operator or a network that was seen, in seconds since the epoch; infinite
            where none was.
    """

    files: int
    nbytes: int
    oldest: float


def tidy(kernel_meta: Path, network_meta: Path, look_at: int) -> Extent:
    """Remove the private files of writers that are gone, and return how much is left; all names are listed once.

    Args:
        kernel_meta: The folder of operators.
        network_meta: The folder of network images.
        look_at: Files of each folder whose size and times are asked for.
    """
    parts = [_tidy(folder, look_at) for folder in folders_of(kernel_meta, network_meta)]
    nbytes = sum(part.nbytes for part in parts)
    return Extent(sum(part.files for part in parts), nbytes, min(part.oldest for part in parts[:2]))


def _tidy(folder: Path, look_at: int) -> Extent:
    entries = []
    with contextlib.suppress(OSError), os.scandir(folder) as listing:
        for entry in listing:
            if entry.name.startswith(PREFIX):
                remove_rubbish(entry)
            entries.append(entry)
    chosen = entries
    if len(entries) > look_at:
        import random  # a start never needs it

        chosen = random.Random(len(entries)).sample(entries, look_at)  # noqa: S311  no secret
    files = [file for _, file in _looked_at(chosen)]
    share = len(entries) / max(len(chosen), 1)
    marks = (file for file in files if file.path.endswith(MARK) and not file.path.endswith(_COMPILER + MARK))
    oldest = min((file.accessed for file in marks), default=math.inf)
    return Extent(len(entries), round(sum(file.nbytes for file in files) * share), oldest)


def folders_of(kernel_meta: Path, network_meta: Path) -> tuple[Path, Path, Path]:
    """Return the folders of a cache."""
    return kernel_meta, network_meta, network_meta / "weights"


def disk_usage(folder: Path) -> int:
    """Return what a folder takes on the disk with all that is in it, folders too, as ``du`` counts it."""
    linked: set[tuple[int, int]] = set()
    nbytes = 0
    with contextlib.suppress(OSError):
        nbytes += 512 * os.lstat(folder).st_blocks
    folders = [str(folder)]
    while folders:
        with contextlib.suppress(OSError), os.scandir(folders.pop()) as listing:
            for entry in listing:
                with contextlib.suppress(OSError):
                    state = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(state.st_mode):
                        folders.append(entry.path)
                    elif state.st_nlink > 1:
                        if (state.st_dev, state.st_ino) in linked:
                            continue
                        linked.add((state.st_dev, state.st_ino))
                    is_file = stat.S_ISREG(state.st_mode)
                    nbytes += _File(entry.path, state).nbytes if is_file else 512 * state.st_blocks
    return nbytes


def survey(kernel_meta: Path, network_meta: Path, prefix: str = "") -> Inventory:
    """List a cache folder; what can not be read counts as absent.

    Args:
        kernel_meta: The folder of operators.
        network_meta: The folder of network images; it may lie in ``kernel_meta``.
        prefix: What names of files must begin with.
    """
    items: list[Item] = []
    nbytes = 0
    weights = network_meta / "weights"
    for folder in folders_of(kernel_meta, network_meta):
        groups: _Groups = defaultdict(dict)
        for name, file in _files(folder, prefix):
            nbytes += file.nbytes
            stem, suffix = (name, "") if name.startswith(".") else os.path.splitext(name)  # noqa: PTH122  50,000 names
            groups[stem][suffix] = file
        for stem, group in groups.items():
            item = _weight(stem, group) if folder == weights else _item(stem, group, in_networks=folder == network_meta)
            if item is not None:
                items.append(item)
    return Inventory(tuple(items), nbytes)


def is_digest(text: str) -> bool:
    """Return whether a name is that of packed weights, or of what refers to them."""
    return _DIGEST.fullmatch(text) is not None


def _files(folder: Path, prefix: str = "") -> Iterator[tuple[str, _File]]:
    with contextlib.suppress(OSError), os.scandir(folder) as listing:
        yield from _looked_at(entry for entry in listing if entry.name.startswith(prefix))


def _looked_at(entries: Iterable[os.DirEntry[str]]) -> Iterator[tuple[str, _File]]:
    for entry in entries:
        try:
            if entry.is_file(follow_symlinks=False):
                yield entry.name, _File(entry.path, entry.stat(follow_symlinks=False))
        except OSError:
            continue  # removed since it was listed


def _item(stem: str, group: dict[str, _File], *, in_networks: bool) -> Item | None:
    """Return what a group of files of one name is; None if it is not opbuild's or must stay."""
    if stem.startswith(".publish-") or (stem.startswith(".") and stem.endswith(".tmp")):
        return _make("private", stem, group, tuple(group))
    operator = _OPERATOR.fullmatch(stem) is not None
    if operator and (not in_networks or ".o" in group or ".info" in group):
        return _make("operator", stem, group, (MARK, *SUFFIXES[:-1]))
    if not in_networks or stem == _COMPILER:
        return None
    if any(suffix in group for suffix in _MEMO_SUFFIXES):
        return _make("memo", stem, group, _MEMO_SUFFIXES)
    return _make("image", stem, group, (MARK, ".so", ".bin", ".seen"))


def _weight(stem: str, group: dict[str, _File]) -> Item | None:
    if stem.startswith("."):
        return _make("private", stem, group, tuple(group))
    return _make("weight", stem, group, (".bin",)) if _DIGEST.fullmatch(stem) and ".bin" in group else None


def _make(kind: Kind, name: str, group: dict[str, _File], suffixes: tuple[str, ...]) -> Item | None:
    files = [group[suffix] for suffix in suffixes if suffix in group]
    if not files:
        return None
    marked = kind in ("operator", "image") and MARK in group
    last_use = group[MARK].accessed if marked else max(file.used for file in files)
    return Item(kind, name, tuple(file.path for file in files), sum(file.nbytes for file in files), last_use)
