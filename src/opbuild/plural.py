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


def is_or_are(number: int) -> str:
    """Return the verb that goes with a number of things."""
    return "is" if number == 1 else "are"
