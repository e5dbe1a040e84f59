"""Folders full of entries that were used long ago."""

from __future__ import annotations

import os
import time
from pathlib import Path

from opbuild.store.policy import MEGABYTE

OLD = 7200.0
"""Seconds since the last use."""


def fill(folder: Path, megabytes: float, count: int, *, idle: float = OLD) -> list[str]:
    """Put ``count`` entries into a folder, the first used longest ago; sparse files, so that they cost no disk."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"conv_{number}_0" for number in range(100, 100 + count)]
    for position, name in enumerate(names):
        for suffix, share in ((".o", 0.5), (".info", 0.25), (".json", 0.25)):
            path = folder / (name + suffix)
            with path.open("wb") as file:
                file.truncate(int(megabytes * MEGABYTE * share / count))
            moment = time.time() - idle - count + position
            os.utime(path, (moment, moment))
    return names


def left(folder: Path) -> list[str]:
    """Return the names of the entries in a folder."""
    return sorted(path.stem for path in folder.glob("*.json"))
