"""The sources of opbuild that run, a part of the key of whatever they build; and releases of installed packages.

A release that was installed brings a manifest of its sources, made when its package was built (``setup.py``). It holds
until another release takes its place, and no other file is looked at. Only where there is none, in a checkout or an
editable install, the files themselves are read, and looked at again to notice edits.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from functools import lru_cache

from opbuild.platform.digest import blake3_of_parts
from opbuild.platform.locks import lazy_property
from opbuild.platform.paths import Path

MANIFEST = "release.json"
"""The manifest, in the package's folder: by module, the digest of its code and what it imports of opbuild."""

NOT_MODEL = ("cli", "mindspore", "packs", "ranks", "__pycache__")
"""Folders of the package that decide nothing about a network once its graph is known."""

_SUFFIXES = (".py", ".o", ".so")
"""What Python runs, and what is linked into networks."""

State = tuple[int, int, int, int]
"""Size, times of modification and of change, and inode of a file. The time of change cannot be set back."""


class SourceFiles:
    """The sources at one moment: ``states`` are those of all files that count, by path below ``root``."""

    def __init__(self, root: str | Path = Path(__file__).parent.parent) -> None:
        self.root = os.path.abspath(root)
        self.states = _states(self.root)

    @property
    def are_released(self) -> bool:
        """Whether they are those of an installed release."""
        return MANIFEST in self.states

    @property
    def unchanged(self) -> bool:
        """Whether no file was touched since this object was made, and none came or went."""
        return _states(self.root) == self.states

    def still(self, paths: Iterable[str]) -> bool:
        """Return whether some files are as they were when this object was made; of a release its manifest is."""
        with contextlib.suppress(OSError):
            counted = [MANIFEST] if self.are_released else paths
            return all(self.states.get(each) == _state(os.stat(f"{self.root}/{each}")) for each in counted)  # noqa: PTH116
        return False

    @lazy_property
    def digest(self) -> str:
        """The digest of all of them."""
        return self._digest(self.states)

    @lazy_property
    def packing(self) -> str:
        """The digest of those that may decide how weights are packed, so not of those that only compile."""
        if not self.are_released:
            return self._digest(path for path in self.states if not only_compiles(path))
        import json

        modules = json.loads(self.read(MANIFEST))
        counted = (f"{name} {modules[name][0]}" for name in sorted(modules) if not only_compiles(name))
        return blake3_of_parts(["\n".join(counted).encode()])

    def _digest(self, paths: Iterable[str]) -> str:
        parts: list[bytes] = []
        for path in sorted(paths):
            content = self.read(path)
            parts += (f"{path} {len(content)}\n".encode(), content)
        return blake3_of_parts(parts)

    def is_outdated(self, path: str) -> bool:
        """Return whether Python might take code compiled before its last change for a source's.

        It compares size and time of modification, the latter in seconds: a source may be edited twice in a second, or
        its time be set back.
        """
        from importlib.util import cache_from_source

        try:
            compiled = os.stat(cache_from_source(f"{self.root}/{path}", optimization=""))  # noqa: PTH116
        except OSError:
            return False
        return path not in self.states or compiled.st_mtime_ns <= self.states[path][2]

    def read(self, path: str) -> bytes:
        """Return the bytes of a file now."""
        with open(f"{self.root}/{path}", "rb", buffering=0) as file:  # noqa: PTH123  paths as objects take as long again
            return file.read()


def own_sources() -> str:
    """Return the digest of the sources as they were when this process first asked."""
    return _first().digest


def only_compiles(name: str) -> bool:
    """Return whether a module, or the file of one, is loaded to compile a kernel and for nothing else."""
    parts = name.removesuffix(".py").replace("/", ".").removeprefix("opbuild.").split(".")
    backends = ("halide", "triton")
    is_backend = parts[0] == "backend" and parts[1:2] and parts[1] in backends
    return bool(is_backend) or (parts[0] == "families" and parts[-1] in backends)


def own_packing_sources() -> str:
    """Return the digest of those of ``own_sources`` that may decide how weights are packed."""
    return _first().packing


def own_sources_edited() -> bool:
    """Return whether a source has changed since ``own_sources``: parts of opbuild are loaded later than that."""
    try:
        return not _first().unchanged and SourceFiles().digest != own_sources()
    except OSError:  # files come and go just now
        return True


def recompile_outdated(sources: SourceFiles) -> None:
    """Compile sources again that were compiled before their last change, so that a process which starts now loads them.

    Who may not write there edits nothing there either; a source with an error is for whoever imports it.
    """
    for path in sources.states:
        if path.endswith(".py") and sources.is_outdated(path):
            import py_compile

            with contextlib.suppress(OSError, py_compile.PyCompileError):
                py_compile.compile(f"{sources.root}/{path}", doraise=True, optimize=0)


@lru_cache(maxsize=1)
def _first() -> SourceFiles:
    return SourceFiles()


def _states(root: str) -> dict[str, State]:
    """Return the state of every file that counts: of a release the manifest's alone."""
    with contextlib.suppress(OSError):
        return {MANIFEST: _state(os.stat(f"{root}/{MANIFEST}"))}  # noqa: PTH116
    found = {}
    folders = [root]
    for folder in folders:
        with contextlib.suppress(OSError):  # it goes just now
            for entry in os.scandir(folder):
                if entry.name.endswith(_SUFFIXES):
                    found[entry.path[len(root) + 1 :]] = _state(entry.stat())
                elif entry.name not in NOT_MODEL and entry.is_dir():
                    folders.append(entry.path)
    return found


def _state(stat: os.stat_result) -> State:
    return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino


def release_of(package: str) -> str:
    """Return the release of an installed package that has its distribution's name; empty if there is none.

    It is read from the metadata beside the package: ``importlib.metadata`` imports forty modules first.
    """
    if found := _metadata_of(package):
        return found
    from importlib import metadata

    with contextlib.suppress(
        metadata.PackageNotFoundError, OSError
    ):  # the latter of a package that stands in for this one
        return metadata.version(package) or ""
    return ""


def _metadata_of(package: str) -> str:
    """Return the metadata beside a package; empty where it is not as installers leave it."""
    from importlib.util import find_spec

    spec = find_spec(package)
    if spec is None or spec.origin is None:
        return ""
    folder = Path(spec.origin).parents[1]
    with contextlib.suppress(OSError, UnicodeDecodeError):
        names = [entry.name for entry in os.scandir(folder) if entry.name.startswith(f"{package}-")]
        found = [name for name in names if name.endswith(".dist-info")]
        if len(found) == 1:
            head, _, _ = (folder / found[0] / "METADATA").read_text("utf-8").partition("\n\n")
            marked = [line for line in head.splitlines() if line.startswith("Version: ")]
            return marked[0].removeprefix("Version: ").strip() if marked else ""
    return ""
