"""Which kernel families there are: every folder beside this file is one. Nothing is listed by hand."""

from __future__ import annotations

from functools import cache
from pathlib import Path


@cache
def names() -> tuple[str, ...]:
    """Return the names of all families, sorted."""
    from pkgutil import iter_modules  # a network that is built starts without it

    return tuple(sorted(module.name for module in iter_modules([str(Path(__file__).parent)]) if module.ispkg))
