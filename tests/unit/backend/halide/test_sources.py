"""The sources in a key: a family's definition, its schedule and what they import, and nothing else."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from opbuild.backend.halide import driver
from opbuild.backend.halide.driver import HalideCompiler
from opbuild.builder.client import server_environment
from opbuild.families import catalogue
from opbuild.kernel.opdesc import OpDesc, runtime_desc
from opbuild.platform.imports import Modules
from opbuild.platform.sources import SourceFiles

HALIDE = Path(driver.__file__).parent
FAMILIES = catalogue.names()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the Halide backend that digests are taken from, to be edited."""
    root = HALIDE.parents[1]
    copy = tmp_path / "opbuild"
    shutil.copytree(root, copy, ignore=shutil.ignore_patterns("__pycache__", "packs"))
    monkeypatch.setattr(driver.HalideCompiler, "new_modules", lambda self: Modules(SourceFiles(copy), self.undeciding))
    return copy / "backend" / "halide"


def digests() -> dict[str, str]:
    """Return the digest of every family, and of the runtime library; each source is read once."""
    compiler = HalideCompiler()
    descs = {family: OpDesc(op_types=("X",), family=family, inputs=(), outputs=()) for family in FAMILIES}
    return {family: compiler.sources_digest(desc) for family, desc in [*descs.items(), ("", runtime_desc())]}


def families(package: Path) -> Path:
    """Return the folder of the kernel families of the copied package."""
    return package.parents[1] / "families"


def edit(path: Path) -> None:
    """Add a comment to a source file."""
    path.write_text(path.read_text(encoding="utf-8") + "\n# edited\n", encoding="utf-8")


def test_editing_one_family_changes_its_digest_alone(package: Path) -> None:
    """An edit of the softmax rebuilds softmaxes, not convolutions (F30, F46)."""
    assert changed_by(lambda: edit(families(package) / "softmax" / "halide.py")) == {"softmax"}


def test_editing_what_chooses_variants_changes_no_digest(package: Path) -> None:
    """A record decides which kernel is asked for, not what it compiles to: all that is stored stays good (F46)."""
    for path in (families(package) / "softmax" / "family.py", families(package) / "family.py"):
        assert changed_by(lambda path=path: edit(path)) == set()


def test_a_family_that_is_added_changes_no_digest(package: Path) -> None:
    """A folder beside the others is none of their sources (F46)."""
    assert changed_by(lambda: shutil.copytree(families(package) / "softmax", families(package) / "softmin")) == set()


def test_editing_a_shared_module_changes_all_that_import_it(package: Path) -> None:
    """An edit of what every definition imports reaches every family, through any number of imports (F30)."""
    before = digests()
    edit(package.parents[1] / "kernel" / "opdesc.py")
    after = digests()
    assert all(before[family] != after[family] for family in before)


def test_a_module_that_appears_where_an_import_looks_for_one_is_noticed(package: Path) -> None:
    """A package that comes to stand where a plain name was imported from belongs to the sources (F33)."""
    before = digests()["softmax"]
    softmax = families(package) / "softmax" / "halide.py"
    imported = softmax.read_text(encoding="utf-8")
    softmax.write_text(imported + "\nfrom opbuild.kernel import shadow\n", encoding="utf-8")
    with_import = digests()["softmax"]
    (package.parents[1] / "kernel" / "shadow.py").write_text("", encoding="utf-8")
    assert len({before, with_import, digests()["softmax"]}) == 3


def test_digests_do_not_depend_on_where_the_package_lies(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two checkouts of the same sources have the same digests (F44)."""
    copied = digests()
    monkeypatch.undo()
    assert digests() == copied


def changed_by(edited: Callable[[], None]) -> set[str]:
    """Return the families whose digest an edit changes; ``""`` is the runtime library."""
    before = digests()
    edited()
    after = digests()
    return {family for family in before if before[family] != after[family]}


def test_how_loops_are_divided_belongs_to_every_kernel(package: Path) -> None:
    """Each family divides its loops among tasks; the runtime's object has none."""
    assert changed_by(lambda: edit(package / "division.py")) == set(FAMILIES)


def test_how_objects_are_written_belongs_to_every_operator(package: Path) -> None:
    """The driver's part that decides an object's bytes is in all keys; the rest of it is in none (F30)."""
    assert changed_by(lambda: edit(package / "emission.py")) == {*FAMILIES, ""}
    assert changed_by(lambda: edit(package / "driver.py")) == set()


@pytest.mark.slow
@pytest.mark.parametrize("helper", ["rows", "epilogue"])
def test_a_helper_module_reaches_exactly_those_that_import_it(package: Path, helper: str) -> None:
    """The families are found apart from the code under test: by parsing, not by the form of lines (F30, F46)."""
    path = package / f"{helper}.py"
    dependants = {family for family in FAMILIES if path in parsed_closure(package, family)}
    assert dependants
    assert dependants < set(FAMILIES)
    assert changed_by(lambda: edit(path)) == dependants


def parsed_closure(package: Path, family: str) -> set[Path]:
    """Return the files of the copied package that a family's modules import, by their syntax trees."""
    root = package.parents[1]
    seen: set[Path] = set()
    waiting = [HalideCompiler.module_of(family)]
    while waiting:
        path = root.joinpath(*waiting.pop().split(".")[1:]).with_suffix(".py")
        if path in seen or not path.is_file():
            continue
        seen.add(path)
        waiting += imported(path.read_text(encoding="utf-8"))
    return seen


@cache
def imported(source: str) -> list[str]:
    """Return the names that a source imports, by its syntax tree."""
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return names


@pytest.mark.parametrize("shadow", ["halide/__init__.py", f"halide{EXTENSION_SUFFIXES[0]}"])
def test_what_python_would_load_instead_of_a_module_is_noticed(package: Path, shadow: str) -> None:
    """A package or an extension module that appears beside a file of the same name takes its place (F33)."""

    def appear() -> None:
        path = families(package) / "softmax" / shadow
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"# another softmax\n")

    assert changed_by(appear) == {"softmax"}


def test_the_packages_around_a_module_belong_to_it(package: Path) -> None:
    """Importing a module runs the ``__init__`` of its packages, so these are in the key of all inside them (F30)."""
    assert changed_by(lambda: edit(families(package) / "softmax" / "__init__.py")) == {"softmax"}
    assert changed_by(lambda: edit(families(package) / "__init__.py")) == set(FAMILIES)
    assert changed_by(lambda: edit(package / "__init__.py")) == {*FAMILIES, ""}


def test_sources_edited_after_they_were_loaded_have_no_digest(package: Path) -> None:
    """A compile server answers for what it loaded; once a file was touched it has no digest (F34)."""
    compiler = HalideCompiler()
    compiler.prepare()
    softmax = OpDesc(op_types=("X",), family="softmax", inputs=(), outputs=())
    assert compiler.sources_digest(softmax) == HalideCompiler().sources_digest(softmax)
    path = families(package) / "softmax" / "halide.py"
    stat = path.stat()
    path.write_bytes(path.read_bytes().swapcase())
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert compiler.sources_digest(softmax) == "edited"
    pool = OpDesc(op_types=("X",), family="pool", inputs=(), outputs=())
    assert compiler.sources_digest(pool) == HalideCompiler().sources_digest(pool)


def test_sources_that_go_while_a_server_works_end_nothing(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package manager takes files away before it brings others; the server, which has loaded them, goes on (F34)."""
    softmax = OpDesc(op_types=("X",), family="softmax", inputs=(), outputs=())
    before = HalideCompiler().sources_digest(softmax)
    loaded, reading = HalideCompiler(), HalideCompiler()
    for compiler in (loaded, reading):
        compiler.prepare()
    shutil.rmtree(package.parents[1] / "kernel")
    assert loaded.sources_digest(softmax) != before

    def gone(sources: SourceFiles, path: str) -> bytes:
        raise FileNotFoundError(path)

    monkeypatch.setattr(SourceFiles, "read", gone)
    assert reading.sources_digest(softmax) == "edited"


LOADED = """
import json, os, sys
from importlib import import_module
import halide
before = set(sys.modules)
found = {}
for module in json.loads(sys.argv[1]):
    read, write = os.pipe()
    if os.fork() == 0:
        import_module("opbuild.backend.halide.emission")
        import_module(f"opbuild.families.{module}.halide")
        os.write(write, json.dumps([n for n in sys.modules if n.startswith("opbuild")]).encode())
        os._exit(0)
    os.close(write)
    found[module] = json.loads(os.fdopen(read).read())
    os.wait()
print(json.dumps(found))
"""


def test_everything_that_is_loaded_to_compile_is_in_the_digest() -> None:
    """F30: whatever a family's modules load in a fresh process, however they import it, is among its sources."""
    environment = {**os.environ, "PYTHONPATH": str(HALIDE.parents[2])}
    ran = subprocess.run(
        [sys.executable, "-c", LOADED, json.dumps(FAMILIES)],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    sources = Modules()
    for family, loaded in json.loads(ran.stdout).items():
        inside = sources.closure((HalideCompiler.emission, HalideCompiler.module_of(family)))
        outside = set(loaded) - set(inside) - HalideCompiler.undeciding
        assert outside == {"opbuild", "opbuild.version"}, family


def test_nothing_is_imported_where_the_digest_does_not_look() -> None:
    """F30: what defines operators has no relative imports, reads no files, and imports by name only its own modules."""
    sources = Modules()
    paths: dict[str, str] = {}
    for family in FAMILIES:
        closure = sources.closure((HalideCompiler.emission, HalideCompiler.module_of(family)))
        paths |= {name: found.path for name, found in closure.items()}
    found = set()
    for name, path in paths.items():
        for node in ast.walk(ast.parse((HALIDE.parents[1] / path).read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level:
                found.add((name, "relative import"))
            if isinstance(node, ast.Call):
                called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                if called in {"import_module", "__import__", "exec", "open", "read_text", "read_bytes", "find_spec"}:
                    found.add((name, called))
    assert found == REVIEWED


REVIEWED = {
    ("opbuild.backend.halide.emission", "read_bytes"),  # the object that was just written
    ("opbuild.backend.halide.emission", "import_module"),  # the family's two modules, from which the digest starts
    ("opbuild.backend.halide.user_source", "exec"),  # the operator's own text, which is in the key
    ("opbuild.platform.digest", "import_module"),  # Python's own SHA-256, by the one of its two names that there is
    ("opbuild.platform.records", "exec"),  # a constructor made of its class's fields
}
"""What reaches for code or files by other means than an import statement, with why the key has it all the same."""


def test_what_compiles_starts_without_numpy() -> None:
    """It would take as long again to start; an operator of a user imports it where its text is executed."""
    code = "import sys, opbuild.builder.server, opbuild.backend.halide.driver as driver\n"
    code += "driver.HalideCompiler().prepare(); print('halide' in sys.modules, 'numpy' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=server_environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True", "False"]
