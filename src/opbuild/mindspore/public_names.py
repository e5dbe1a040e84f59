"""MindSpore's public names and their kinds, from ``public_names.json`` (which ``tools/mindspore_names.py`` writes)."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from opbuild.platform.paths import Path

_FILE = Path(__file__).with_name("public_names.json")

_MODULES = {
    "amp": "training", "boost": "training", "dataset": "data", "experimental": "training", "mindrecord": "data",
    "parallel": "parallel", "profiler": "device", "runtime": "device", "hal": "device", "train": "training",
    "device_context": "device", "device_manager": "device",
}  # fmt: skip
"""Kinds of MindSpore's modules; the others are used inside it."""


@lru_cache(maxsize=1)
def content() -> dict[str, Any]:
    """Return the content of the file: ``version``, ``modules``, and ``names`` by module and kind."""
    read: dict[str, Any] = json.loads(_FILE.read_text())
    return read


@lru_cache(maxsize=32)
def kinds(owner: str) -> dict[str, list[str]]:
    """Return the public names of a module or class of MindSpore by kind; empty if it is not listed."""
    return {kind: names.split() for kind, names in content()["names"].get(owner, {}).items()}


def kind_of(owner: str, name: str) -> str:
    """Return the kind of a name or module of MindSpore, or an empty text if it has none of that name."""
    for kind, names in kinds(owner).items():
        if name in names:
            return kind
    top = f"{owner}.{name}".split(".")
    if top[0] == "mindspore" and len(top) > 1 and top[1] in _MODULES:
        return _MODULES[top[1]]
    return "internal" if owner == "mindspore" and name in content()["modules"].split() else ""
