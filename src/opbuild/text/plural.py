"""Words of messages: numbers of things, of which some are left out, and names that are nearly those that exist."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


def counted(number: int, thing: str, things: str = "") -> str:
    """Return a number with the counted noun: ``1 operator``, ``2 operators``.

    Args:
        number: How many.
        thing: One of them.
        things: Several of them; default: with an ``s``.
    """
    return f"{number} {thing if number == 1 else things or f'{thing}s'}"


def verb(number: int, one: str, several: str) -> str:
    """Return the form of a verb that goes with a number of things, e.g. of ``is`` and ``are``."""
    return one if number == 1 else several


def first_of(names: Sequence[str], most: int) -> str:
    """Return names one after the other, no more than ``most``, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def listed(lines: Sequence[str], most: int = 20) -> str:
    """Return lines below each other, indented, no more than ``most``, and how many more there are."""
    more = len(lines) - most
    return "\n".join(f"  {line}" for line in [*lines[:most], *([f"and {more} more"] if more > 0 else [])])


def size(nbytes: int) -> str:
    """Return bytes for people: ``2.0 KiB``."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if nbytes >= factor:
            return f"{nbytes / factor:.1f} {unit}"
    return f"{nbytes} B"


def nearest(name: Any, known: Iterable[str]) -> str:
    """Return the beginning of a hint, such as ``did you mean 'probs'? ``; empty if no name is near."""
    near = close_to(name, known) if isinstance(name, str) else ""
    return f"did you mean {near!r}? " if near else ""


def close_to(name: str, known: Iterable[str]) -> str:
    """Return the name that is nearest, whatever the case of its letters; empty if none is near."""
    from difflib import get_close_matches

    spelled = {each.lower(): each for each in known}
    near = get_close_matches(name.lower(), spelled, 1)
    return spelled[near[0]] if near else ""
