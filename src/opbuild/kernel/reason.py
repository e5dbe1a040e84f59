"""Reason: why something was not found, not used or not stored."""

from __future__ import annotations

from opbuild.platform.records import NamedTuple

NOWHERE = "absent from "
"""With which it is told that a store of others, which was asked, has nothing either."""


class Reason(NamedTuple):
    """The reason of an event: a code for programs, a text for people.

    Attributes:
        code: One of a few words, e.g. ``absent``, ``damaged``, ``other-key``, ``unreadable``.
        text: What exactly, e.g. ``the object's digest differs from the one in .json``.
        elsewhere: What came of asking a store of others; empty if none was asked.
    """

    code: str
    text: str
    elsewhere: str = ""

    def __str__(self) -> str:
        return f"{self.text}; {self.elsewhere}" if self.elsewhere else self.text
