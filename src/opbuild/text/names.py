"""Names that do not exist, and those that are nearly so."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def nearest(name: Any, known: Iterable[str]) -> str:
    """Return the beginning of a hint, such as ``did you mean 'probs'? ``; empty if no name is near.

    Args:
        name: What was given.
        known: What there is.
    """
    near = close_to(name, known) if isinstance(name, str) else ""
    return f"did you mean {near!r}? " if near else ""


def close_to(name: str, known: Iterable[str]) -> str:
    """Return the name that is nearest, whatever the case of its letters; empty if none is near.

    Args:
        name: What was given.
        known: What there is.
    """
    from difflib import get_close_matches

    spelled = {each.lower(): each for each in known}
    near = get_close_matches(name.lower(), spelled, 1)
    return spelled[near[0]] if near else ""
