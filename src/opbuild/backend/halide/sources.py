"""The sources that define how operators are compiled: which files they are, and their digest."""

from __future__ import annotations

import os
import re
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES
from pathlib import Path

from opbuild.platform.digest import fast

_SUFFIXES = (*EXTENSION_SUFFIXES, *SOURCE_SUFFIXES)
"""What a module's file may end with, in the order in which Python looks for them."""

_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+(opbuild[\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)|import[ \t]+(opbuild\b[^\n]*))",
    re.MULTILINE,
)


_State = tuple[int, int, int, int]


class Sources:
    """The sources as they are at one moment: each file is read at most once in the life of this object.

    Args:
        root: The folder of the package ``opbuild``.
    """

    def __init__(self, root: Path | None = None) -> None:
        self._root = root or Path(__file__).resolve().parents[2]
        self._names: dict[Path, frozenset[str]] = {}
        self._modules: dict[str, tuple[str, tuple[str, ...]] | None] = {}
        self._states: dict[str, tuple[Path, _State]] = {}
        self._digests: dict[tuple[str, ...], str] = {}

    def digest(self, modules: tuple[str, ...]) -> str:
        """Return one digest of modules and of all that they import from this package, transitively."""
        known = self._digests.get(modules)
        if known is None:
            found = self.closure(modules)
            text = "\n".join(f"{name} {digest}" for name, digest in sorted(found.items()))
            known = self._digests[modules] = fast(text.encode())
        return known

    def unchanged(self, modules: tuple[str, ...]) -> bool:
        """Return whether the files of ``closure`` are untouched since they were read; none of them is read again."""
        try:
            states = (self._states[name] for name in self.closure(modules))
            return all(_state(path) == state for path, state in states)
        except OSError:
            return False

    def closure(self, modules: tuple[str, ...]) -> dict[str, str]:
        """Return the names of modules and of all that they import from this package, each with its file's digest.

        The packages around a module belong to it, since importing it runs them; but not the outermost one, which only
        says where its names are.
        """
        found: dict[str, str] = {}
        seen: set[str] = set()
        waiting = [*modules]
        while waiting:
            name = waiting.pop()
            if name in seen:
                continue
            seen.add(name)
            module = self._module(name)
            if module is not None:
                found[name], imported = module
                waiting.extend(imported)
                waiting.append(name.rpartition(".")[0])
        return found

    def _module(self, name: str) -> tuple[str, tuple[str, ...]] | None:
        """Return the digest of a module's file and what it imports; None if it is no module of this package."""
        if name not in self._modules:
            path = self._path(name)
            self._modules[name] = None if path is None else self._read(name, path)
        return self._modules[name]

    def _read(self, name: str, path: Path) -> tuple[str, tuple[str, ...]]:
        self._states[name] = path, _state(path)
        text = path.read_bytes()
        return fast(text), _imports(text) if path.suffix in SOURCE_SUFFIXES else ()

    def _path(self, name: str) -> Path | None:
        """Return the file that Python would load a module from: a package comes before a file of its name."""
        parts = name.split(".")[1:]
        if not parts:
            return None
        folder = self._root.joinpath(*parts)
        for candidate in (folder / "__init__", folder):
            names = self._in_folder(candidate.parent)
            for suffix in _SUFFIXES:
                if candidate.name + suffix in names:
                    return candidate.with_name(candidate.name + suffix)
        return None

    def _in_folder(self, folder: Path) -> frozenset[str]:
        if folder not in self._names:
            try:
                self._names[folder] = frozenset(entry.name for entry in os.scandir(folder))
            except OSError:
                self._names[folder] = frozenset()
        return self._names[folder]


def _state(path: Path) -> _State:
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino


def _imports(text: bytes) -> tuple[str, ...]:
    """Return the modules of ``opbuild`` that a source imports (``from a import b`` may mean the module ``a.b``).

    Statements are found by their form, which is many times faster than parsing; what only looks like one, in a string,
    costs at most a superfluous rebuild.
    """
    found: list[str] = []
    for module, names, modules in _IMPORT.findall(text.decode()):
        words = [part.split()[0] for part in re.sub(r"#[^\n]*|[()]", "", names or modules).split(",") if part.split()]
        found += [module, *(f"{module}.{word}" for word in words)] if module else words
    return tuple(module for module in found if module.startswith("opbuild."))
