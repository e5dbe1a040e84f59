"""The package's files beyond its modules, and wheels for one machine each.

A manifest says of each source what it is (``opbuild.platform.sources``). A wheel is for one machine under Linux, by its
tag, and has the packs of that machine; ``--plat-name`` names another than this one.
"""

from __future__ import annotations

import json
import platform
import re
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

if sys.platform != "linux":
    sys.exit(f"opbuild is for Linux, and this is {platform.system() or sys.platform}; under Windows install it in WSL.")

ROOT = Path(__file__).parent
sys.path.insert(0, str(ROOT / "src"))

from opbuild.platform.digest import blake3_of
from opbuild.platform.imports import Modules
from opbuild.platform.release import code
from opbuild.platform.sources import MANIFEST, SourceFiles
from opbuild.target.host import needed_of_machine
from opbuild.target.level import BY_NAME

_PACK = re.compile(r"store/packs/([^/]+)/")
_REPOSITORY = re.compile(r'^Repository = "(.+)"$', re.MULTILINE)
_RELATIVE = re.compile(r"(!?)(\[[^\]]*\])\((?!\w+:|#)([^)]+)\)")


class MachineDistribution(Distribution):
    """A distribution with code for one machine."""

    def has_ext_modules(self) -> bool:
        """Return that it is no pure Python."""
        return True


class BdistWheel(bdist_wheel):
    """A wheel for one machine, and for any Python: what is compiled is no extension of it."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return the tag for Python, its interface, and the platform."""
        return "py3", "none", super().get_tag()[2]


class BuildPy(build_py):
    """Writes the manifest of what is packed; an editable install has none, since its sources are edited."""

    def run(self) -> None:
        """Copy the modules and describe them."""
        super().run()
        if not self.editable_mode:
            write_manifest(self._package)

    def find_data_files(self, package: str, src_dir: str) -> list[str]:
        """Return a package's files but modules; of packs those of the wheel's machine, in a source package all."""
        wheel = self.distribution.command_obj.get("bdist_wheel")
        found = super().find_data_files(package, src_dir)
        return [path for path in found if wheel is None or is_for(wheel.get_tag()[2], path)]

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """Return all files that were written."""
        return [*super().get_outputs(include_bytecode), str(self._package / MANIFEST)]

    @property
    def _package(self) -> Path:
        return Path(self.build_lib, "opbuild")


def is_for(platform_tag: str, path: str) -> bool:
    """Return whether the wheel of a platform, such as ``manylinux_2_17_x86_64``, has a file."""
    pack = _PACK.search(path)
    return pack is None or platform_tag.endswith(needed_of_machine(BY_NAME[pack[1]])[0])


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


def description(readme: str, project: str) -> str:
    """Return the README for a page elsewhere: what it links to is in the repository that pyproject.toml names."""
    [repository] = _REPOSITORY.findall(project)

    def linked(found: re.Match[str]) -> str:
        kind = "raw" if found[1] else "blob"
        return f"{found[1]}{found[2]}({repository}/{kind}/main/{found[3]})"

    return _RELATIVE.sub(linked, readme)


if __name__ == "__main__":
    setup(
        distclass=MachineDistribution,
        cmdclass={"bdist_wheel": BdistWheel, "build_py": BuildPy},
        long_description=description(*((ROOT / name).read_text("utf-8") for name in ("README.md", "pyproject.toml"))),
        long_description_content_type="text/markdown",
    )
