"""Compiled modules that Python might take for those of sources that were edited since."""

from __future__ import annotations

import contextlib
import os
from importlib.util import cache_from_source
from pathlib import Path


def forget_outdated(package: Path, folders: tuple[str, ...]) -> None:
    """Remove the bytecode that is older than its source's last change; Python then compiles the source again.

    Python itself compares size and time of modification, the latter in seconds: of a source that was edited twice in a
    second, or whose time was set back, it may load what is outdated. The time of change can not be set back. What can
    not be removed stays: who may not write there edits nothing there either.

    Args:
        package: The package's folder.
        folders: Those of its folders in which to look, with all inside them.
    """
    for name in folders:
        for folder, _, _ in os.walk(package / name):
            for entry in os.scandir(folder):
                if entry.name.endswith(".py"):
                    with contextlib.suppress(OSError):
                        compiled = Path(cache_from_source(entry.path, optimization=""))
                        if compiled.stat().st_mtime_ns <= entry.stat().st_ctime_ns:
                            compiled.unlink()
