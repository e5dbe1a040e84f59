"""What a module of opbuild consists of: its source, and those of all modules that it imports from opbuild."""

from __future__ import annotations

import ast
import contextlib
import json
from functools import lru_cache
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES, ExtensionFileLoader, FileFinder, SourceFileLoader
from typing import NamedTuple

from opbuild.platform.digest import fast
from opbuild.platform.sources import MANIFEST, Sources

_LOADERS = ((ExtensionFileLoader, EXTENSION_SUFFIXES), (SourceFileLoader, SOURCE_SUFFIXES))
"""What Python tries for a module that is no package, in its order."""


class Module(NamedTuple):
    """A module: its source's digest, what it imports from this package, and its file (in a release there is none)."""

    digest: str
    imports: tuple[str, ...]
    path: str = ""


class Modules:
    """The modules of a package, and what each consists of; each file is read at most once.

    Args:
        sources: The package's files.
    """

    def __init__(self, sources: Sources | None = None) -> None:
        self._sources = sources or Sources()
        self._finders: dict[str, FileFinder] = {}
        self._modules: dict[str, Module | None] = {}
        if self._sources.are_released:
            content = json.loads(self._sources.read(MANIFEST))
            self._modules = {name: Module(digest, tuple(imports)) for name, (digest, imports) in content.items()}

    def digest(self, names: tuple[str, ...]) -> str:
        """Return one digest of modules and of all that they import from this package, transitively."""
        found = self.closure(names)
        return fast("\n".join(f"{name} {found[name].digest}" for name in sorted(found)).encode())

    def unchanged(self, names: tuple[str, ...]) -> bool:
        """Return whether modules, and all that they import, are what they were when ``sources`` was made."""
        if self._sources.unchanged:
            return True
        then, now = self._sources.states, Sources(self._sources.root).states
        paths = [module.path for module in self.closure(names).values()]
        return all(path in then and then[path] == now.get(path) for path in paths)

    def closure(self, names: tuple[str, ...]) -> dict[str, Module]:
        """Return modules and all that they import from this package, by name.

        The packages around a module belong to it, since importing it runs them; but not the outermost one, which only
        says where its names are.
        """
        found: dict[str, Module] = {}
        waiting = [*names]
        while waiting:
            name = waiting.pop()
            module = None if name in found else self._module(name)
            if module is not None:
                found[name] = module
                waiting += (*module.imports, name.rpartition(".")[0])
        return found

    def _module(self, name: str) -> Module | None:
        """Return a module inside the package; None if there is none of this name."""
        if "." not in name:
            return None
        if name not in self._modules and not self._sources.are_released:
            path = self._path(name)
            if path is None:
                self._modules[name] = None
            else:
                text = self._sources.read(path)
                self._modules[name] = Module(fast(text), imports(text) if path.endswith(".py") else (), path)
        return self._modules.get(name)

    def _path(self, name: str) -> str | None:
        """Return the file that Python would load a module from."""
        folder = "/".join((self._sources.root, *name.split(".")[1:-1]))
        finder = self._finders.setdefault(folder, FileFinder(folder, *_LOADERS))
        spec = finder.find_spec(name)
        return None if spec is None or spec.origin is None else spec.origin[len(self._sources.root) + 1 :]


@lru_cache(maxsize=1024)
def imports(text: bytes) -> tuple[str, ...]:
    """Return the modules of opbuild that a source imports (``from a import b`` may mean the module ``a.b``).

    Only statements are looked at, which is half of what a whole tree costs; a source with an error imports nothing.
    """
    found: list[str] = []
    waiting: list[ast.AST] = []
    with contextlib.suppress(SyntaxError):
        waiting.append(ast.parse(text))
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.ImportFrom) and node.module:
            found += (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
        elif isinstance(node, ast.Import):
            found += (alias.name for alias in node.names)
        else:
            for part in ("body", "orelse", "finalbody", "handlers", "cases"):
                waiting += getattr(node, part, ())
    return tuple(sorted({name for name in found if name.startswith("opbuild.")}))
