"""The items in a cache's folders, by the forms of files that the stores state, with sizes and times of the last use.

Names, sizes and times only: nothing is opened, so that 50,000 entries are listed in a second.

How large a large folder is, is remembered, so that not every build looks at each of its files:

    network_meta/size.jsonl    the measurement as JSON; then for each build since the bytes that it added, a line each

Whoever measured a folder of many files writes down what was found; a build that adds something adds a line, with one
write that appends. While the sum is below the limit nothing needs to age, and nothing is listed. The sum may be too
large (what was replaced counts twice, what was removed still counts), and then the folder is measured early. It is too
small by what killed processes published, and for that it is believed for a day only. Folders of few files have no such
file: they are measured each time. A file that is damaged, gone, or anybody else's costs a measurement.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import stat
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from opbuild.config import COMPILER_MEMO
from opbuild.platform.background import BACKGROUND_WRITER
from opbuild.platform.files.private import PREFIX, is_private, publish, remove_rubbish
from opbuild.platform.files.trust import Trust, parse_json
from opbuild.platform.files.writing import append
from opbuild.platform.paths import Path
from opbuild.platform.records import dataclass
from opbuild.store import counters
from opbuild.store.hints import ANSWERS, ORIGINS
from opbuild.store.items import FileForm, Item
from opbuild.store.networks import MODELS, NETWORKS
from opbuild.store.operators import ENTRIES, ENTRIES_BESIDE_NETWORKS
from opbuild.store.weights import REFERENCES, WEIGHTS

SIZE_FILE = "size.jsonl"

LOOKED_AT = 10_000
"""Files of a folder whose size and times ``tidy`` asks for; it takes 40 ms."""

_NOTES = (
    *(
        FileForm("note", (Path(name).suffix,), re.escape(Path(name).stem))
        for name in (COMPILER_MEMO, counters.FILE, counters.OLD_FILE, SIZE_FILE)
    ),
    FileForm("note", (".json",), f"{Path(COMPILER_MEMO).stem}_[a-z0-9]+"),
)
"""What is only remembered of the folder itself."""


def folders_of(kernel_meta: Path, network_meta: Path) -> tuple[tuple[Path, tuple[FileForm, ...]], ...]:
    """Return the folders of a cache, and the forms of the files in each; earlier ones take files first."""
    return (
        (kernel_meta, (ENTRIES,)),
        (network_meta, (*_NOTES, ENTRIES_BESIDE_NETWORKS, ORIGINS, ANSWERS, MODELS, NETWORKS)),
        (network_meta / "weights", (WEIGHTS, REFERENCES)),
    )


@dataclass(frozen=True)
class Inventory:
    """The items in a cache folder that opbuild can do without, and the size of everything, strange files too."""

    items: tuple[Item, ...]
    nbytes: int


class _ListedFile:
    """One file as the listing shows it."""

    __slots__ = ("accessed", "nbytes", "path", "used")

    def __init__(self, path: str, state: os.stat_result) -> None:
        self.path = path
        self.nbytes = max(state.st_size, 512 * state.st_blocks)  # what it takes on the disk; some systems say it late
        self.accessed = state.st_atime
        self.used = max(state.st_atime, state.st_mtime)


_Groups = dict[str, dict[str, _ListedFile]]


@dataclass(frozen=True)
class FolderSize:
    """The size of a cache folder, as far as a look at some of its files can tell.

    Attributes:
        files: Number of files, and folders.
        nbytes: The files' size; an estimate where there are more than were looked at.
        oldest: The least recent use of an operator or a network that was seen, in seconds since the epoch; infinite
            where none was.
    """

    files: int
    nbytes: int
    oldest: float


def tidy(kernel_meta: Path, network_meta: Path, look_at: int) -> FolderSize:
    """Remove the private files of writers that are gone, and return how much is left; all names are listed once.

    The size and the times of so many files of each folder are asked for.
    """
    parts = [_tidy(folder, forms, look_at) for folder, forms in folders_of(kernel_meta, network_meta)]
    nbytes = sum(part.nbytes for part in parts)
    return FolderSize(sum(part.files for part in parts), nbytes, min(part.oldest for part in parts))


def _tidy(folder: Path, forms: Sequence[FileForm], look_at: int) -> FolderSize:
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
    files = list(_listed_files(chosen))
    share = len(entries) / max(len(chosen), 1)
    oldest = min((file.accessed for name, file in files if _is_mark(name, forms)), default=math.inf)
    return FolderSize(len(entries), round(sum(file.nbytes for _, file in files) * share), oldest)


def _is_mark(name: str, forms: Sequence[FileForm]) -> bool:
    """Return whether the access time of a file is the time of something's last use."""
    stem, suffix = os.path.splitext(name)  # noqa: PTH122  10,000 names
    if not any(form.marked and suffix == form.suffixes[0] for form in forms):
        return False
    return next((form.marked for form in forms if form.fits(stem, (suffix, *form.needs))), False)


def disk_usage(folder: Path) -> int:
    """Return the space that a folder takes on the disk with all that is in it, folders too, as ``du`` counts it."""
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
                    nbytes += _ListedFile(entry.path, state).nbytes if is_file else 512 * state.st_blocks
    return nbytes


def survey(kernel_meta: Path, network_meta: Path, prefix: str = "") -> Inventory:
    """List a cache folder, with all that this process puts there; unreadable files count as absent.

    The folder of networks may lie in that of operators. Names of files must begin with the prefix.
    """
    BACKGROUND_WRITER.finish()
    items: list[Item] = []
    nbytes = 0
    for folder, forms in folders_of(kernel_meta, network_meta):
        groups: _Groups = defaultdict(dict)
        for name, file in _files(folder, prefix):
            nbytes += file.nbytes
            if is_private(name):
                items.append(Item("private", name, (file.path,), file.nbytes, file.used))
            else:
                stem, suffix = os.path.splitext(name)  # noqa: PTH122  50,000 names
                groups[stem][suffix] = file
        for stem, group in groups.items():
            items += [_item(form, stem, group) for form in forms if form.fits(stem, group)]
    return Inventory(tuple(items), nbytes)


def _files(folder: Path, prefix: str = "") -> Iterator[tuple[str, _ListedFile]]:
    with contextlib.suppress(OSError), os.scandir(folder) as listing:
        yield from _listed_files(entry for entry in listing if entry.name.startswith(prefix))


def _listed_files(entries: Iterable[os.DirEntry[str]]) -> Iterator[tuple[str, _ListedFile]]:
    for entry in entries:
        try:
            if entry.is_file(follow_symlinks=False):
                yield entry.name, _ListedFile(entry.path, entry.stat(follow_symlinks=False))
        except OSError:
            continue  # removed since it was listed


def _item(form: FileForm, stem: str, group: dict[str, _ListedFile]) -> Item:
    """Return an item, and take its files out of those that have its stem."""
    marked = form.marked and form.suffixes[0] in group
    files = [group.pop(suffix) for suffix in form.suffixes if suffix in group]
    last_use = files[0].accessed if marked else max(file.used for file in files)
    paths = [file.path for file in files]
    if form.marked and not marked:
        paths.insert(0, f"{os.path.splitext(paths[0])[0]}{form.suffixes[0]}")  # noqa: PTH122  50,000 names
    return Item(form.kind, stem, tuple(paths), sum(file.nbytes for file in files), last_use)


BELIEVED_SECONDS = 86400.0
"""For how long a measurement is believed."""

FEW_FILES = 1000
"""Files up to which a folder is measured at the end of each build that adds something: it takes 5 ms."""

_READ_AT_MOST = 65536
"""Bytes of the file: some thousand builds, after which the folder is measured again."""


@dataclass(frozen=True)
class MeasuredFolder:
    """A measurement.

    Attributes:
        nbytes: The folder's size, with what was added since.
        time: When it was measured, in seconds since the epoch.
        again: Before when ageing again would be in vain, or would take too large a part of the time.
    """

    nbytes: int
    time: float
    again: float = 0.0


def remembered_size(network_meta: Path, now: float, trust: Trust) -> MeasuredFolder | None:
    """Return the known size of a folder; None if it must be measured."""
    try:
        known = read_size(network_meta / SIZE_FILE, trust)
    except (OSError, ValueError, TypeError):
        return None
    if not 0 <= now - known.time < BELIEVED_SECONDS or known.again - now > BELIEVED_SECONDS:
        return None
    return known


def read_size(path: Path, trust: Trust) -> MeasuredFolder:
    """Return the measurement in a file, however old it is.

    Raises:
        OSError: If it cannot be read, has too many lines or others can write to it.
        ValueError: If it is no measurement.
        TypeError: If it is no measurement.
    """
    first, *added = trust.read(path, _READ_AT_MOST).decode("ascii").splitlines() or [""]
    known = MeasuredFolder(**parse_json(first.encode()))
    if not all(_is_number(each) for each in (known.nbytes, known.time, known.again)):
        raise ValueError(f"{path.name} holds no measurement")
    return MeasuredFolder(known.nbytes + sum(map(int, added)), known.time, known.again)


def remember_size(network_meta: Path, measured: MeasuredFolder) -> None:
    """Write a measurement down; a folder that refuses is measured by the next build too."""
    with contextlib.suppress(OSError):
        publish(network_meta / SIZE_FILE, json.dumps(vars(measured)).encode() + b"\n")


def forget_size(network_meta: Path) -> None:
    """Let the next build measure."""
    with contextlib.suppress(OSError):
        (network_meta / SIZE_FILE).unlink()


def add_to_size(network_meta: Path, nbytes: int) -> None:
    """Note a build's additions to a folder whose size is remembered."""
    with contextlib.suppress(OSError):
        append(network_meta / SIZE_FILE, b"%d\n" % nbytes)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e18
