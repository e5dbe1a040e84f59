"""Requests of a program that opbuild cannot serve, or serves in another way: said once in a process."""

from __future__ import annotations

import warnings

from opbuild.text.visible import visible

_SAID = set[str]()


def warn_once(text: str) -> None:
    """Warn, unless the same was said already."""
    if text not in _SAID:
        _SAID.add(text)
        warnings.warn(f"opbuild: {visible(text)}", UserWarning, stacklevel=4)
