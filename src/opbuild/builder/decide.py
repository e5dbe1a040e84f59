"""Deciding, apart from doing: whether an operator must be compiled, and why. Build, dry run and explain share it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from opbuild.kernel.entry import Entry
from opbuild.kernel.interfaces import Found, Missing
from opbuild.kernel.opdesc import OpDesc
from opbuild.kernel.reason import Reason

FORCED = Reason("forced", "a rebuild was asked for")


@dataclass(frozen=True)
class UpToDate:
    """The stored entry serves.

    Attributes:
        entry: The entry.
        source: Whose it is, where another store lends it.
    """

    entry: Entry
    source: str = ""


@dataclass(frozen=True)
class Rebuild:
    """The operator must be compiled."""

    reason: Reason


@dataclass(frozen=True)
class Decision:
    """What became of one operator of a build.

    Attributes:
        desc: The operator.
        name: Its entry's name.
        nodes: The network's nodes that need it.
        outcome: ``built``, ``reused`` from the store, or ``shared``: another process or rank built it.
        reason: Why.
        milliseconds: How long compiling took; 0 if it was not built here.
    """

    desc: OpDesc
    name: str
    nodes: tuple[str, ...]
    outcome: Literal["built", "reused", "shared"]
    reason: Reason
    milliseconds: float


def decide(lookup: Found | Missing, *, force: bool = False) -> UpToDate | Rebuild:
    """Return whether an operator must be compiled.

    Args:
        lookup: What the store answered.
        force: Compile even what is stored.
    """
    if isinstance(lookup, Missing):
        return Rebuild(lookup.reason)
    return Rebuild(FORCED) if force else UpToDate(lookup.entry, lookup.source)
