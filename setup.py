"""Puts into the package what says of each source what it is: see ``opbuild.platform.sources``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

sys.path.insert(0, str(Path(__file__).parent / "src"))

from opbuild.platform.digest import blake3_of
from opbuild.platform.imports import Modules
from opbuild.platform.release import code
from opbuild.platform.sources import MANIFEST, SourceFiles


class BuildPy(build_py):
    """Writes the manifest of what is packed; an editable install has none, since its sources are edited."""

    def run(self) -> None:
        """Copy the modules and describe them."""
        super().run()
        if not self.editable_mode:
            write_manifest(self._package)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """Return all files that were written."""
        return [*super().get_outputs(include_bytecode), str(self._package / MANIFEST)]

    @property
    def _package(self) -> Path:
        return Path(self.build_lib, "opbuild")


def write_manifest(package: Path) -> None:
    """Describe the sources in a package's folder."""
    sys.dont_write_bytecode = True  # what is packed are sources
    (package / MANIFEST).unlink(missing_ok=True)  # a former build's
    sources = SourceFiles(package)
    modules = Modules(sources)
    described = dict(describe(path, sources.read(path), modules) for path in sources.states)
    (package / MANIFEST).write_text(json.dumps(described, sort_keys=True), encoding="utf-8")


def describe(path: str, content: bytes, modules: Modules) -> tuple[str, tuple[str, tuple[str, ...]]]:
    """Return a source's name, and the digest of its code with what it imports."""
    if not path.endswith(".py"):
        return path, (blake3_of(content), ())
    name = ".".join(("opbuild", *Path(path).with_suffix("").parts)).removesuffix(".__init__")
    module = modules.module(name)
    return name, (
        blake3_of(code(content)),
        tuple(each for each in module.imports if modules.module(each)) if module else (),
    )


if __name__ == "__main__":
    setup(cmdclass={"build_py": BuildPy})
