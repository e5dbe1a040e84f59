"""The parts of a module of opbuild: its source, and those of all modules that it imports from opbuild."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Collection
from functools import lru_cache
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES, ExtensionFileLoader, FileFinder, SourceFileLoader
from types import CodeType

from opbuild.platform.digest import blake3_of
from opbuild.platform.records import NamedTuple
from opbuild.platform.sources import MANIFEST, SourceFiles

_LOADERS = ((ExtensionFileLoader, EXTENSION_SUFFIXES), (SourceFileLoader, SOURCE_SUFFIXES))
"""What Python tries for a module that is no package, in its order."""


class SourceModule(NamedTuple):
    """A module: its source's digest, its possible imports from this package, and its file (of a release none)."""

    digest: str
    imports: tuple[str, ...]
    path: str = ""


class Modules:
    """The modules of a package, and the sources of each; each file is read at most once.

    Args:
        without: Modules that count for nothing, with all that is imported only by them.
        digested: What of a source is digested, where there is no manifest; None: all of it.
    """

    def __init__(
        self,
        sources: SourceFiles | None = None,
        without: Collection[str] = (),
        digested: Callable[[bytes], bytes] | None = None,
    ) -> None:
        self._sources = sources or SourceFiles()
        self._without = without
        self._digested = digested
        self._finders: dict[str, FileFinder] = {}
        self._paths: dict[str, str | None] = {}
        self._closures: dict[tuple[str, ...], dict[str, SourceModule]] = {}
        self._modules: dict[str, SourceModule | None] = {}
        if self._sources.are_released:
            content = json.loads(self._sources.read(MANIFEST))
            self._modules = {name: SourceModule(digest, tuple(imports)) for name, (digest, imports) in content.items()}

    def digest(self, names: tuple[str, ...]) -> str:
        """Return one digest of modules and of all that they import from this package, transitively."""
        found = self.closure(names)
        return blake3_of("\n".join(f"{name} {found[name].digest}" for name in sorted(found)).encode())

    def unchanged(self, names: tuple[str, ...]) -> bool:
        """Return whether modules, and all that they import, are unchanged since ``sources`` was made."""
        return self._sources.still([module.path for module in self.closure(names).values()])

    def closure(self, names: tuple[str, ...]) -> dict[str, SourceModule]:
        """Return modules and all that they import from this package, by name.

        The packages around a module belong to it, since importing it runs them; but not the outermost one, which only
        says where its names are.
        """
        if names not in self._closures:
            self._closures[names] = self._closure(names)
        return self._closures[names]

    def _closure(self, names: tuple[str, ...]) -> dict[str, SourceModule]:
        found: dict[str, SourceModule] = {}
        waiting = [*names]
        while waiting:
            name = waiting.pop()
            module = None if name in found or name in self._without else self.module(name)
            if module is not None:
                found[name] = module
                waiting += (*module.imports, name.rpartition(".")[0])
        return found

    def module(self, name: str) -> SourceModule | None:
        """Return a module inside the package; None if there is none of this name."""
        if "." not in name:
            return None
        if name not in self._modules and not self._sources.are_released:
            path = self._path(name)
            self._modules[name] = None if path is None else self._described(name, path)
        return self._modules.get(name)

    def _described(self, name: str, path: str) -> SourceModule:
        text = self._sources.read(path)
        if not path.endswith(".py"):
            return SourceModule(blake3_of(text), (), path)
        digest = blake3_of(text if self._digested is None else self._digested(text))
        modules, names = _imported(name, f"{self._sources.root}/{path}", text, self._sources.is_outdated(path))
        packages = [each for each in modules if (self._path(each) or "").endswith("__init__.py")]
        return SourceModule(digest, (*modules, *(f"{package}.{each}" for package in packages for each in names)), path)

    def _path(self, name: str) -> str | None:
        """Return the file that Python would load a module from."""
        if name not in self._paths:
            folder = "/".join((self._sources.root, *name.split(".")[1:-1]))
            finder = self._finders.setdefault(folder, FileFinder(folder, *_LOADERS))
            spec = finder.find_spec(name) if "." in name else None
            origin = None if spec is None else spec.origin
            self._paths[name] = None if origin is None else origin[len(self._sources.root) + 1 :]
        return "__init__.py" if name == "opbuild" else self._paths[name]


@lru_cache(maxsize=1024)
def _imported(name: str, path: str, text: bytes, is_outdated: bool) -> tuple[list[str], list[str]]:
    """Return the modules of opbuild that a module imports, and its possible imports from one that is a package.

    A name with dots among a code's names is that of a module to import; what is imported from it stands among the
    constants. So nothing is parsed that Python has compiled before.
    """
    modules, names = set[str](), set[str]()
    waiting: list[CodeType] = []
    with contextlib.suppress(SyntaxError, ValueError):  # whoever loads it is told what is wrong
        known = None if is_outdated else SourceFileLoader(name, path).get_code(name)
        waiting.append(known or compile(text, path, "exec", dont_inherit=True))
    while waiting:
        each = waiting.pop()
        modules.update(name for name in each.co_names if name.partition(".")[0] == "opbuild")
        for constant in each.co_consts:
            if isinstance(constant, CodeType):
                waiting.append(constant)
            elif isinstance(constant, tuple):
                names.update(name for name in constant if isinstance(name, str) and name.isidentifier())
    return sorted(modules), sorted(names)
