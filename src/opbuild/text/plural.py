"""Numbers of things in messages: the only place that makes a plural."""

from __future__ import annotations


def counted(number: int, thing: str, things: str = "") -> str:
    """Return a number with what it counts: ``1 operator``, ``2 operators``.

    Args:
        number: How many.
        thing: One of them.
        things: Several of them; default: with an ``s``.
    """
    return f"{number} {thing if number == 1 else things or f'{thing}s'}"


def verb(number: int, one: str, several: str) -> str:
    """Return the form of a verb that goes with a number of things, e.g. of ``is`` and ``are``."""
    return one if number == 1 else several


def size(nbytes: int) -> str:
    """Return bytes for people: ``2.0 KiB``."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if nbytes >= factor:
            return f"{nbytes / factor:.1f} {unit}"
    return f"{nbytes} B"
