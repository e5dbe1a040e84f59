"""Modules under a second name: ``import onnxruntime`` finds ``opbuild.onnxruntime``."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class AliasFinder(MetaPathFinder):
    """Finds a package and its modules in another one, also where the package itself is installed.

    Args:
        face: The name of the package that stands in.
        missing: Returns the error for a module that is not there.
        place: Returns the name there of one of its modules; default: the same below ``face``.
    """

    def __init__(
        self,
        name: str,
        face: str,
        missing: Callable[[str], ImportError],
        place: Callable[[str], str] | None = None,
    ) -> None:
        self.name = name
        self._face = face
        self._place = place or (lambda fullname: face + fullname.removeprefix(name))
        self._missing = missing

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module of the package, which must be there; None for any other."""
        if fullname.partition(".")[0] != self.name:
            return None
        try:
            module = importlib.import_module(self._place(fullname))
        except ModuleNotFoundError as error:
            if error.name is None or not error.name.startswith(self._face):
                raise
            raise self._missing(fullname) from None
        return ModuleSpec(fullname, _Alias(module), is_package=hasattr(module, "__path__"))


class _Alias(Loader):
    """Gives a module that is loaded already a second name."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module
        self._spec = module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import system put the alias's there
