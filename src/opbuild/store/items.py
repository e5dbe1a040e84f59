"""Items: the content of a cache's folders, by the forms of files that each store states; showing and removing them.

The order of events, for all kinds of items:

* What is named comes before what names it, and goes after it: the files of an item before its commit mark, which is
  shown last (``store.items``) and removed first; weights before the networks that map them; blobs of a remote store
  before the manifests of networks. What is one file (weights, memos, bundles, offline models) is renamed, and unlinked.
* No order alone suffices where one publishes what another removes: the one's last step may come before the other's
  first, for each file in another way. So whoever is done looks: who published, whether all of it is still there, and
  else does it again; who removed, whether the mark is there again, and else removes what came meanwhile. So when both
  are done a mark that is there has all its files. A reader that comes between two steps, or after one of them was
  killed between two, finds a miss with a reason.

The time of an item's last use is the access time of its commit mark. It is set by hand, because file systems are
mounted without access times, and seldom, because a write for each reading would cost more than the reading.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import time
from collections.abc import Collection, Sequence
from typing import Literal

from opbuild.kernel.reason import Reason
from opbuild.platform.files.private import private_stem, replace, sweep
from opbuild.platform.files.trust import PRIVATE, SignatureError, Trust, UntrustedError
from opbuild.platform.files.writing import count_written, make_folder, write_new
from opbuild.platform.paths import Path
from opbuild.platform.records import NamedTuple

Kind = Literal["operator", "network", "memo", "weight", "reference", "note", "origin", "private", "settings"]

REMEMBERED: frozenset[Kind] = frozenset({"reference", "note"})
"""Kinds of what is only remembered of the rest, and has no age of its own."""


LONGEST = 200
"""Letters of a name without suffix at most; a file system takes 255, and opbuild's own have half of that."""


class FileForm(NamedTuple):
    """The names of the files of one kind of item: ``<stem><suffix>``, all of an item with one stem.

    Attributes:
        kind: See ``Item``.
        suffixes: Of the files, the commit mark's first; in this order they go, in the reverse they are shown.
        stem: What stems look like, as a regular expression that is compiled where it is used; None: anything.
        marked: Whether the access time of the commit mark is the time of the last use.
        needs: Suffixes of which one must be there, where another form has the same stems; none: any will do.
    """

    kind: Kind
    suffixes: tuple[str, ...]
    stem: str | None = None
    marked: bool = False
    needs: frozenset[str] = frozenset()

    def fits(self, stem: str, suffixes: Collection[str]) -> bool:
        """Return whether files of one stem are such an item."""
        return (
            len(stem) <= LONGEST
            and any(suffix in suffixes for suffix in self.suffixes)
            and (self.stem is None or re.fullmatch(self.stem, stem) is not None)
            and (not self.needs or not self.needs.isdisjoint(suffixes))
        )


class Item(NamedTuple):
    """Something that goes as a whole.

    Attributes:
        kind: ``operator``; ``image``, a network's; ``memo``, what is known of a model; ``weight``, packed weights;
            ``origin``, from which sources an operator was compiled; ``reference``, which weights a source packs to;
            ``note``, what is known of the folder itself; ``private``, a file that somebody is writing or was killed
            writing; ``settings``, which are its user's.
        name: The files' name without suffix.
        files: Paths of its files; where one of them is a commit mark that first, also if it is not there.
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


def remove_files(files: Sequence[str]) -> bool:
    """Remove the files of one item, the commit mark first; return whether it is gone, by whomever.

    Who looks it up meanwhile finds all of it or a miss; what is published meanwhile is gone or whole. An interruption
    (Ctrl-C) is raised after the last file, so that it leaves no part of an item.
    """
    try:
        return _remove_all(files)
    except BaseException:
        _remove_all(files)
        raise


def _remove_all(files: Sequence[str]) -> bool:
    """Remove files until nobody shows the first again, which then lacks some of the others."""
    gone = [_remove(path) for path in files]
    while all(gone) and len(files) > 1 and os.path.lexists(files[0]):
        gone = [_remove(path) for path in files]
    return gone[0]


def _remove(path: str) -> bool:
    try:
        os.unlink(path)  # noqa: PTH108  for 150,000 of them, paths as objects cost a second
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


REFUSED = (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError)
"""What reading raises, and taking apart what was read where nothing of it is believed."""

_QUIETLY = getattr(os, "O_NOATIME", 0)
"""Setting an access time back writes to the disk, for each of 150,000 files; not changing it does not."""


def read_quietly(path: Path, most: int, trust: Trust = PRIVATE) -> bytes:
    """Return a file's contents without changing its access time, by which ageing knows when it was last used.

    Raises:
        OSError: If it cannot be read, has more than ``most`` bytes, or others can write to it.
    """
    before = path.stat()
    try:
        data = trust.read(path, most, _QUIETLY)
    except UntrustedError:
        raise
    except PermissionError:  # another user's file
        data = trust.read(path, most)
    with contextlib.suppress(OSError):
        after = path.stat()
        if after.st_atime_ns != before.st_atime_ns and after.st_mtime_ns == before.st_mtime_ns:
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    return data


def reason_of(error: Exception, what: str = "", *, missing: str = "incomplete") -> Reason:
    """Return the reason that something is not used, by the error that reading it raised.

    Args:
        error: One of ``REFUSED``.
        what: What was read, for people; default the name of the error's file.
        missing: The code where it is not there.
    """
    what = what or Path(str(getattr(error, "filename", None) or "it")).name
    if isinstance(error, SignatureError):
        return Reason(error.code, str(error))
    if isinstance(error, UntrustedError):
        return Reason("untrusted", f"{what} is not used: {error.strerror}")
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return Reason(missing, f"{what} is missing")
    if isinstance(error, OSError) and error.errno is not None:
        code = "damaged" if error.errno == errno.EFBIG else "unreadable"
        return Reason(code, f"{what} cannot be read: {error.strerror}")
    return Reason(
        "damaged", str(error)[:500] if isinstance(error, (OSError, ValueError)) else "it is not what was written"
    )


KNOWN_SECONDS = 600.0
"""A use that was noted less than this long ago is not noted again; well below the half hour that a use protects."""

_USED: set[str] = set()


def mark_used(mark: Path, *, keep_time: bool) -> None:
    """Note that this process uses an entry; ``keep_time``: write the time too, if it can be written."""
    _USED.add(str(mark))
    if not keep_time:
        return
    with contextlib.suppress(OSError):
        state = mark.stat()
        if abs(time.time() - state.st_atime) > KNOWN_SECONDS:
            os.utime(mark, ns=(time.time_ns(), state.st_mtime_ns))


def is_in_use(mark: str) -> bool:
    """Return whether this process uses the entry with this commit mark."""
    return mark in _USED


_TRIES = 4
"""How often something is written that others remove at the same time; it takes bad luck to need the second."""

_PASSING = (errno.ENOENT, errno.ESTALE, errno.EBUSY)
"""What is answered where somebody removed the folder or the private files between two steps."""

Files = Sequence[tuple[str, "bytes | memoryview"]]


def publish_files(folder: Path, files: Files, linked_from: Path | None = None) -> str | None:
    """Write files into ``folder``, each whole or not at all, and show them in the order given.

    All are written before the first is renamed, so that a full disk leaves what was there before. Where somebody
    removes some of them meanwhile they are written again: see the module.

    Args:
        folder: Created if it is missing, for this user alone.
        files: Names and contents; the last one is the mark that the others are complete.
        linked_from: A folder that may have the same files; they are linked where they can be, not written.

    Returns:
        None, or why the storage refused; no temporary file stays behind.
    """
    try:
        for _ in range(_TRIES):
            with contextlib.suppress(_RemovedError):
                _publish(folder, files, linked_from)
                return None
        remove_files([str(folder / name) for name, _ in reversed(files)])
        return f"{folder}: it is emptied again and again while something is written to it"
    except OSError as error:
        return f"{folder}: {error.strerror or error}"


class _RemovedError(Exception):
    """Somebody removed the file that was being written, or the folder."""


def _publish(folder: Path, files: Files, linked_from: Path | None) -> None:
    try:
        _show(folder, files, linked_from)
    except OSError as error:
        if error.errno in _PASSING:
            raise _RemovedError from error
        raise
    if not all(os.path.lexists(folder / name) for name, _ in files):
        raise _RemovedError


def _show(folder: Path, files: Files, linked_from: Path | None) -> None:
    make_folder(folder)
    stem = private_stem()
    staged: list[tuple[Path, Path]] = []
    try:
        for name, content in files:
            temporary = folder / f"{stem}{len(staged)}"
            staged.append((temporary, folder / name))
            if linked_from is None or not _link(linked_from / name, temporary, content):
                write_new(temporary, content)
        for temporary, final in staged:
            replace(temporary, final)
            if linked_from is not None:
                temporary.unlink(missing_ok=True)  # renaming a link to its own file does nothing
    except BaseException:
        for temporary, _ in staged:
            with contextlib.suppress(OSError):
                temporary.unlink()
        raise


def _link(path: Path, temporary: Path, content: bytes | memoryview) -> bool:
    """Return whether a file holds just this content and has the private name too now."""
    try:
        os.link(path, temporary, follow_symlinks=False)
    except (OSError, NotImplementedError):  # another file system, or one without links
        return False
    with contextlib.suppress(OSError):
        state = temporary.lstat()
        if stat.S_ISREG(state.st_mode) and state.st_size == len(content) and temporary.read_bytes() == content:
            count_written(len(content))
            return True
    temporary.unlink()
    return False


def write_debug_files(folder: Path, files: Files) -> str | None:
    """Write files for people, which no build reads, each whole or not at all; return None, or why storage refused."""
    sweep(folder)
    return publish_files(folder, files)
