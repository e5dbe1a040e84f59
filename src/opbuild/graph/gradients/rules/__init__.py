"""The rules of gradients, by kind; importing a module registers its rules."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module

_MODULES = (
    *("elementwise", "matrix", "movement", "neighbourhood", "normalization", "picking", "recurrent", "reduction"),
    *("sampling", "window"),
)


@lru_cache(maxsize=1)
def load_rules() -> None:
    """Register all rules; who only runs networks never loads them."""
    for name in _MODULES:
        import_module(f"{__name__}.{name}")
