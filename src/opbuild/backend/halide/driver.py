"""The driver: from a descriptor to the bytes of an object file. Imports halide only when it compiles."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING

from opbuild.backend.family_compiler import FamilyCompiler
from opbuild.errors import CompileError, OpbuildError
from opbuild.kernel.opdesc import OpDesc
from opbuild.platform.paths import Path
from opbuild.target.level import Level

if TYPE_CHECKING:
    from opbuild.kernel.artifact import Artifact

PACKAGE = "opbuild.backend.halide"


class HalideCompiler(FamilyCompiler):
    """Compiles descriptors with Halide."""

    import_string = f"{PACKAGE}.driver:HalideCompiler"
    name = "halide"
    emission = f"{PACKAGE}.emission"
    undeciding = frozenset({"opbuild.errors", "opbuild.graph.types", "opbuild.platform.digest", "opbuild.text.plural"})
    """What is raised ends a compile, and the others serve what is said of operators and how they are registered."""

    @classmethod
    def files(cls) -> tuple[Path, ...]:
        """Return the files whose bytes are part of every key: the library, its Python binding, and Python sources."""
        return _installed()

    def load(self) -> None:
        """Import halide, and what emits objects."""
        library = self.library()
        if library is not None and library.name.startswith("libHalide"):
            ctypes.CDLL(str(library))  # this one, whatever the search path for libraries says
        for module in (self.emission, f"{PACKAGE}.object_file"):
            import_module(module)

    def modules(self, desc: OpDesc) -> tuple[str, ...]:
        """Return the modules of which the sources are; the runtime library has those alone that emit it."""
        return (self.emission,) if desc.family == "runtime" else super().modules(desc)

    @staticmethod
    def define(desc: OpDesc, level: Level) -> HalidePipeline:
        """Return the pipeline of an operator, as Halide gets it; in a fresh process each time.

        Raises:
            CompileError: If Halide refuses the operator; the message is Halide's.
        """
        return HalidePipeline(desc, level)

    @staticmethod
    def compile(desc: OpDesc, symbol: str, level: Level) -> bytes:
        """Return the bytes of a relocatable object; equal arguments give equal bytes in a fresh process.

        Raises:
            CompileError: If Halide refuses the operator; the message is Halide's.
        """
        return HalidePipeline(desc, level).compile(symbol).data

    @staticmethod
    def inspect(desc: OpDesc, symbol: str, level: Level, options: Collection[str]) -> Mapping[str, bytes]:
        """Compile one operator with debug options.

        Args:
            desc: What to compile.
            symbol: The kernel's symbol.
            level: What to compile for.
            options: What is asked for, of ``kernel.debug``.

        Returns:
            The object (``.o``) and the files asked for, by suffix; equal arguments give equal bytes in a fresh process.

        Raises:
            CompileError: If Halide refuses the operator; the message is Halide's.
        """
        import tempfile

        from opbuild.backend.halide.debug import compile_debug
        from opbuild.backend.halide.target import spelled

        with _compiling(desc), tempfile.TemporaryDirectory(prefix="opbuild-") as folder:
            module = HalideCompiler.module(desc)
            return compile_debug(desc, symbol, spelled(level), options, module=module, folder=Path(folder))


class HalidePipeline:
    """The pipeline of an operator, as Halide gets it.

    Args:
        desc: The operator.
        level: What to compile for.

    Attributes:
        digest: Of all that decides the object but its symbol and the compiler.
        symbol: The kernel's symbol, whatever is asked for; empty: what is asked for.

    Raises:
        CompileError: If Halide refuses the operator; the message is Halide's. ``compile`` raises it too.
    """

    def __init__(self, desc: OpDesc, level: Level) -> None:
        from opbuild.backend.halide.emission import OperatorPipeline, RuntimePipeline
        from opbuild.backend.halide.target import spelled

        self._desc, own = desc, spelled(level)
        with _compiling(desc):
            self._made = (
                RuntimePipeline(own)
                if desc.family == "runtime"
                else OperatorPipeline(desc, own, (HalideCompiler.module(desc),) * 2)
            )
            self.digest = self._made.digest()
        self.symbol = ""

    def compile(self, symbol: str) -> Artifact:
        """Return a relocatable object whose kernel has a symbol."""
        from opbuild.backend.halide.object_file import object_file
        from opbuild.kernel.artifact import Artifact

        with _compiling(self._desc), object_file() as path:
            self._made.compile(self.symbol or symbol, path)
            return Artifact(path.read_bytes(), symbol)


@contextmanager
def _compiling(desc: OpDesc) -> Iterator[None]:
    """Turn an error of Halide's into a ``CompileError``."""
    import halide as hl

    try:
        yield
    except OpbuildError:
        raise
    except (hl.HalideError, RuntimeError, ValueError, TypeError, KeyError, IndexError) as error:
        raise CompileError(f"halide cannot compile {desc.op_type} (family {desc.family}): {error}") from error


def _installed() -> tuple[Path, ...]:
    """Return the files of the installed halide that decide its objects, its shared library first."""
    from importlib.util import find_spec

    spec = find_spec("halide")
    if spec is None or not spec.submodule_search_locations:
        return ()
    folder = os.path.realpath(next(iter(spec.submodule_search_locations)))
    inside = _names(folder)
    subfolders = [Path(folder, name) for name in inside if name.startswith("lib") and Path(folder, name).is_dir()]
    libraries = [sub / name for sub in subfolders for name in _names(sub) if name.startswith("libHalide.so")]
    binding = [name for name in inside if name.startswith("halide_") and name.endswith(".so")]
    python = [name for name in inside if name.endswith(".py")]
    if not libraries and not binding:
        return ()
    return (*libraries[:1], *(Path(folder, name) for name in (*binding, *python)))


def _names(folder: str | Path) -> list[str]:
    try:
        return sorted(entry.name for entry in os.scandir(folder))
    except OSError:
        return []
