"""The rules for ATen's operators, a module a kind; see ``frontend.torch.registry``."""

from __future__ import annotations

from importlib import import_module

_MODULES = (
    "elementwise",
    "matrix",
    "movement",
    "creation",
    "recurrent",
    "reduction",
    "window",
    "backward",
    "normalization",
    "attention",
    "selection",
    "division",
    "floating",
    "statistics",
    "ordering",
    "scattering",
    "resizing",
)


def load_rules() -> None:
    """Import the modules, which registers their rules."""
    for name in _MODULES:
        import_module(f"{__name__}.{name}")
