"""The driver: from a descriptor to the bytes of an object file. Imports halide only when it compiles."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module, util
from pathlib import Path
from typing import Any

from opbuild.backend.halide.object_file import object_file
from opbuild.backend.halide.registry import FAMILIES
from opbuild.digest import fast
from opbuild.errors import CompileError, OpbuildError
from opbuild.kernel.opdesc import OpDesc
from opbuild.kernel.target import Target

PACKAGE = "opbuild.backend.halide"
OPERATORS = f"{PACKAGE}.operators"

NO_CHECKS = ("no_runtime", "no_asserts", "no_bounds_query")
"""Shapes are checked once, when a signature is bound; without these features compiling takes 2.5 times as long."""


class HalideCompiler:
    """Compiles descriptors with Halide."""

    import_string = f"{PACKAGE}.driver:HalideCompiler"
    name = "halide"

    @staticmethod
    def version() -> str:
        """Return the version of the installed halide package; empty if there is none."""
        from importlib import metadata  # slow to import, and not needed to start a network that is built

        try:
            return metadata.version("halide")
        except metadata.PackageNotFoundError:
            return ""

    @staticmethod
    def library() -> Path | None:
        """Return the compiler's shared library, whose bytes are part of every key; None if halide is not installed."""
        spec = util.find_spec("halide")
        if spec is None or not spec.submodule_search_locations:
            return None
        folder = Path(next(iter(spec.submodule_search_locations)))
        found = sorted(folder.glob("lib*/libHalide.so*")) or sorted(folder.glob("halide_*.so"))
        return found[0] if found else None

    @staticmethod
    def sources_digest(desc: OpDesc) -> str:
        """Return the digest of every source file that defines how ``desc`` is compiled."""
        if desc.family == "runtime":
            return sources_of((f"{PACKAGE}.driver",))
        return sources_of(_modules(desc))

    @staticmethod
    def prepare() -> None:
        """Import everything that a compile needs, so that forked children start ready."""
        import_module("halide")
        for module in sorted(set(FAMILIES.values())):
            for part in ("compute", "schedule"):
                name = f"{OPERATORS}.{part}.{module}"
                if util.find_spec(name) is not None:
                    import_module(name)

    @staticmethod
    def compile(desc: OpDesc, symbol: str, target: Target) -> bytes:
        """Compile one operator.

        Args:
            desc: What to compile.
            symbol: The kernel's symbol.
            target: The machine to compile for.

        Returns:
            The bytes of a relocatable object; equal arguments give equal bytes in a fresh process.

        Raises:
            CompileError: If Halide refuses the operator; the message is Halide's.
        """
        import halide as hl

        with _compiling(desc), object_file() as path:
            if desc.family == "runtime":
                hl.compile_standalone_runtime(str(path), hl.Target(str(target)))
            else:
                _compile_operator(desc, symbol, target, path)
            return path.read_bytes()

    @staticmethod
    def inspect(desc: OpDesc, symbol: str, target: Target, options: Collection[str]) -> Mapping[str, bytes]:
        """Compile one operator with debug options.

        Args:
            desc: What to compile.
            symbol: The kernel's symbol.
            target: The machine to compile for.
            options: What is asked for, of ``kernel.debug``.

        Returns:
            The object (``.o``) and the files asked for, by suffix; equal arguments give equal bytes in a fresh process.

        Raises:
            CompileError: If Halide refuses the operator; the message is Halide's.
        """
        import tempfile

        from opbuild.backend.halide.debug import compile_debug

        with _compiling(desc), tempfile.TemporaryDirectory(prefix="opbuild-") as folder:
            return compile_debug(desc, symbol, target, options, modules=_modules(desc), folder=Path(folder))


@contextmanager
def _compiling(desc: OpDesc) -> Iterator[None]:
    """Turn what Halide raises into a ``CompileError``."""
    import halide as hl

    try:
        yield
    except OpbuildError:
        raise
    except (hl.HalideError, RuntimeError, ValueError, TypeError, KeyError, IndexError) as error:
        raise CompileError(f"halide can not compile {desc.op_type} (family {desc.family}): {error}") from error


def _compile_operator(desc: OpDesc, symbol: str, target: Target, path: Path) -> None:
    import halide as hl

    compute, schedule = _modules(desc)
    definition = import_module(compute).define(desc)
    import_module(schedule).schedule(definition, desc, target)
    features = "-".join((str(target), *NO_CHECKS))
    outputs: list[Any] = definition.outputs
    pipeline = outputs[0] if len(outputs) == 1 else hl.Pipeline(outputs)
    pipeline.compile_to({hl.OutputFileType.object: str(path)}, definition.inputs, symbol, hl.Target(features))


def _modules(desc: OpDesc) -> tuple[str, str]:
    """Return the modules that define and that schedule a descriptor's family."""
    if desc.family not in FAMILIES:
        raise CompileError(f"{desc.op_type}: the Halide backend has no family {desc.family!r}")
    module = FAMILIES[desc.family]
    return f"{OPERATORS}.compute.{module}", f"{OPERATORS}.schedule.{module}"


_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+(opbuild[\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)|import[ \t]+(opbuild\b[^\n]*))",
    re.MULTILINE,
)


@cache
def sources_of(modules: tuple[str, ...]) -> str:
    """Return one digest of the sources of modules and of all that they import from this package, transitively."""
    seen: dict[str, str] = {}
    waiting = [*modules]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        path = _source_path(name)
        if path is None:
            continue
        text = path.read_bytes()
        seen[name] = fast(text)
        waiting.extend(_imports(text))
    return fast("\n".join(f"{name} {digest}" for name, digest in sorted(seen.items())).encode())


def _source_path(name: str) -> Path | None:
    """Return the file of a module inside the package ``opbuild``, without importing it."""
    root = Path(__file__).resolve().parents[2]
    parts = name.split(".")[1:]
    for candidate in (root.joinpath(*parts).with_suffix(".py"), root.joinpath(*parts, "__init__.py")):
        if parts and candidate.is_file():
            return candidate
    return None


def _imports(text: bytes) -> list[str]:
    """Return the modules of ``opbuild`` that a source imports (``from a import b`` may mean the module ``a.b``).

    Statements are found by their form, which is many times faster than parsing; what only looks like one, in a string,
    costs at most a superfluous rebuild.
    """
    found: list[str] = []
    for module, names, modules in _IMPORT.findall(text.decode()):
        words = [part.split()[0] for part in re.sub(r"#[^\n]*|[()]", "", names or modules).split(",") if part.split()]
        found += [module, *(f"{module}.{word}" for word in words)] if module else words
    return [module for module in found if module.startswith("opbuild.")]
