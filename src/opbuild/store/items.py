"""Items: what a cache's folders hold, and the forms of files by which each store says what is its own."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from typing import Literal, NamedTuple

Kind = Literal["operator", "image", "memo", "weight", "reference", "note", "private", "settings"]

REMEMBERED: frozenset[Kind] = frozenset({"reference", "note"})
"""Kinds of what is only remembered of the rest, and has no age of its own."""


class Form(NamedTuple):
    """How the files of one kind of item are named: ``<stem><suffix>``, all of an item with one stem.

    Attributes:
        kind: See ``Item``.
        suffixes: Of the files, the commit mark's first.
        stem: What stems look like; None: anything.
        marked: Whether the access time of the commit mark is the time of the last use.
        needs: Suffixes of which one must be there, where another form has the same stems; none: any will do.
    """

    kind: Kind
    suffixes: tuple[str, ...]
    stem: re.Pattern[str] | None = None
    marked: bool = False
    needs: frozenset[str] = frozenset()

    def fits(self, stem: str, suffixes: Collection[str]) -> bool:
        """Return whether files of one stem are such an item."""
        return (
            any(suffix in suffixes for suffix in self.suffixes)
            and (self.stem is None or self.stem.fullmatch(stem) is not None)
            and (not self.needs or not self.needs.isdisjoint(suffixes))
        )


class Item(NamedTuple):
    """Something that goes as a whole.

    Attributes:
        kind: ``operator``; ``image``, a network's; ``memo``, what is known of a model; ``weight``, packed weights;
            ``reference``, which weights a source packs to; ``note``, what is known of the folder itself;
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


def remove_files(files: Sequence[str]) -> bool:
    """Remove the files of one item; return whether it is gone, by whomever.

    Who looks it up meanwhile finds all of it or a miss. An interruption (Ctrl-C) is raised after the last file, so that
    it leaves no part of an item.

    Args:
        files: Paths, the commit mark first.
    """
    try:
        gone = [_remove(path) for path in files]
    except BaseException:
        for path in files:
            _remove(path)
        raise
    return gone[0]


def _remove(path: str) -> bool:
    try:
        os.unlink(path)  # noqa: PTH108  for 150,000 of them, paths as objects cost a second
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
