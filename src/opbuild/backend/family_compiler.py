"""A compiler of kernel families: what is installed of it, which module defines a family, the digest of sources."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from opbuild.errors import CompileError
from opbuild.kernel.opdesc import OpDesc
from opbuild.platform.locks import lazy_property

if TYPE_CHECKING:
    from opbuild.platform.imports import Modules
    from opbuild.platform.paths import Path


class FamilyCompiler:
    """A compiler of kernel families: a module of each, which has the compiler's name, defines its kernels.

    Attributes:
        name: The compiler's name.
        emission: The module that makes artifacts of what those modules define.
        undeciding: Modules that decide no byte of an artifact although what compiles imports them.
    """

    name: str
    emission: str
    undeciding: frozenset[str]

    def __init__(self) -> None:
        self._modules: Modules | None = None
        self._is_loaded = False

    @classmethod
    def version(cls) -> str:
        """Return the release of the installed package; empty if there is none."""
        from opbuild.platform.sources import release_of

        return release_of(cls.name)

    @classmethod
    def library(cls) -> Path | None:
        """Return the compiler's shared library; None if it is not installed."""
        return next(iter(cls.files()), None)

    @classmethod
    def files(cls) -> tuple[Path, ...]:
        """Return the files whose bytes are part of every key, the library first; none if it is not installed."""
        raise NotImplementedError

    def new_modules(self) -> Modules:
        """Return the sources as they are now, without those that decide nothing."""
        from opbuild.platform.imports import Modules  # a network that is built starts without it

        return Modules(without=self.undeciding)

    @lazy_property
    def released(self) -> Modules:
        """The same as a release digests them: their code, and not its comments."""
        from opbuild.platform.imports import Modules
        from opbuild.platform.release import code

        return Modules(without=self.undeciding, digested=code)

    def sources_digest(self, desc: OpDesc) -> str:
        """Return the digest of every source file that defines how ``desc`` is compiled.

        They are read once in the life of this object. From one that has loaded them (``prepare``) comes no digest of
        sources that are not what was loaded any more.
        """
        modules = self.modules(desc)
        self._modules = self._modules or self.new_modules()
        if not self._is_loaded:
            return self._modules.digest(modules)
        with suppress(OSError):  # files come and go just now
            digest = self._modules.digest(modules)
            if self._modules.unchanged(modules):
                return digest
        return "edited"

    def released_digest(self, desc: OpDesc) -> str:
        """Return the digest that the release which is made of these sources has for them."""
        return self.released.digest(self.modules(desc))

    def prepare(self) -> None:
        """Import everything that a compile needs, so that forked children start ready."""
        self._modules, self._is_loaded = self.new_modules(), True  # first, to see whether sources are edited meanwhile
        from opbuild.families import catalogue

        self.load()
        for module in filter(find_spec, map(self.module_of, catalogue.names())):
            import_module(module)

    def load(self) -> None:
        """Import the compiler itself."""
        raise NotImplementedError

    def modules(self, desc: OpDesc) -> tuple[str, ...]:
        """Return the modules of which the sources are, with all that they import."""
        return self.emission, self.module(desc)

    @classmethod
    def module(cls, desc: OpDesc) -> str:
        """Return the module that defines a descriptor's family.

        Raises:
            CompileError: If there is none.
        """
        if not _is_there(desc.family, cls.module_of(desc.family)):
            raise CompileError(f"{desc.op_type}: the family {desc.family!r} has no kernel in {cls.name.title()}")
        return cls.module_of(desc.family)

    @classmethod
    def module_of(cls, family: str) -> str:
        """Return the name of the module that defines a family's kernels."""
        return f"opbuild.families.{family}.{cls.name}"


def _is_there(family: str, module: str) -> bool:
    from opbuild.families import catalogue

    return family in catalogue.names() and find_spec(module) is not None
