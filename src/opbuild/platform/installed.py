"""Releases of installed packages, from the metadata beside them: ``importlib.metadata`` imports forty modules first."""

from __future__ import annotations

import os
from contextlib import suppress
from importlib.util import find_spec

from opbuild.platform.paths import Path


def release_of(package: str) -> str:
    """Return the release of an installed package that has its distribution's name; empty if there is none."""
    if found := _beside(package):
        return found
    from importlib import metadata

    with suppress(metadata.PackageNotFoundError, OSError):  # the latter of a package that stands in for this one
        return metadata.version(package) or ""
    return ""


def _beside(package: str) -> str:
    """Return the metadata beside a package; empty where it is not as installers leave it."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        return ""
    folder = Path(spec.origin).parents[1]
    with suppress(OSError, UnicodeDecodeError):
        names = [entry.name for entry in os.scandir(folder) if entry.name.startswith(f"{package}-")]
        found = [name for name in names if name.endswith(".dist-info")]
        if len(found) == 1:
            head, _, _ = (folder / found[0] / "METADATA").read_text("utf-8").partition("\n\n")
            marked = [line for line in head.splitlines() if line.startswith("Version: ")]
            return marked[0].removeprefix("Version: ").strip() if marked else ""
    return ""
