"""The sources that run: those of an installed release are what its manifest says, those of a checkout are looked at."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from opbuild.platform import sources as module
from opbuild.platform.imports import Modules
from opbuild.platform.sources import MANIFEST, SourceFiles, only_compiles, recompile_outdated


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package of two modules, one of which imports the other, both compiled by Python."""
    files = {
        "__init__.py": "",
        "kernels/__init__.py": "",
        "kernels/tile.py": "TILE = 4\n",
        "kernels/conv.py": "from opbuild.kernels.tile import TILE\n",
        "cli/main.py": "",
        "native/threads.o": "object",
    }
    for name, text in files.items():
        path = tmp_path / "opbuild" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (1e9, 1e9))
    assert answer(tmp_path / "opbuild") == "4"
    return tmp_path / "opbuild"


def answer(package: Path) -> str:
    """Return the number that a fresh process finds in the module."""
    command = [sys.executable, "-c", "import opbuild.kernels.conv as c; print(c.TILE)"]
    ran = subprocess.run(command, cwd=package.parent, capture_output=True, text=True, check=True, env={})
    return ran.stdout.strip()


def rewrite(path: Path, text: str) -> None:
    """Change what a file holds under the size and time that it had."""
    size = path.stat().st_size
    path.write_text(text)
    os.utime(path, (1e9, 1e9))
    assert path.stat().st_size == size


@pytest.mark.parametrize(
    ("name", "text"), [("kernels/tile.py", "TILE = 8\n"), ("native/threads.o", "OBJECT"), ("__init__.py", "")]
)
def test_a_source_that_changed_is_noticed_and_one_that_was_touched_is_not(package: Path, name: str, text: str) -> None:
    """F34, F41: bytes count, whatever the size and the time say; the state only tells when to look at them again."""
    before = SourceFiles(package)
    digest = before.digest
    assert before.unchanged
    rewrite(package / name, text)
    assert not before.unchanged
    assert (SourceFiles(package).digest == digest) is (not text)


def test_what_decides_nothing_about_networks_does_not_count(package: Path) -> None:
    """The commands may be edited while networks are built."""
    before = SourceFiles(package)
    digest = before.digest
    (package / "cli" / "main.py").write_text("edited = True\n")
    assert before.unchanged
    assert SourceFiles(package).digest == digest


def test_a_source_that_appears_or_goes_is_noticed(package: Path) -> None:
    """F33: a module may come to stand where an import finds it first."""
    before = SourceFiles(package)
    digests = {before.digest}
    (package / "kernels" / "another.py").write_text("")
    assert not before.unchanged
    digests.add(SourceFiles(package).digest)
    (package / "kernels" / "another.py").unlink()
    (package / "kernels" / "tile.py").unlink()
    assert not before.unchanged
    assert len(digests | {SourceFiles(package).digest}) == 3


def test_sources_that_change_in_a_running_process_are_noticed(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network made while they changed may be of either; touching them, or checking them out again, is no change."""
    first = SourceFiles(package)
    monkeypatch.setattr(module, "_first", lambda: first)
    monkeypatch.setattr(module, "SourceFiles", lambda: SourceFiles(package))
    module.own_sources()
    tile = package / "kernels" / "tile.py"
    assert not module.own_sources_edited()
    rewrite(tile, "TILE = 4\n")
    assert not module.own_sources_edited()
    rewrite(tile, "TILE = 8\n")
    assert module.own_sources_edited()
    rewrite(tile, "TILE = 4\n")
    assert not module.own_sources_edited()
    monkeypatch.setattr(SourceFiles, "read", unreadable)
    tile.unlink()
    assert module.own_sources_edited(), "a file that goes between looking and reading is no error"


def unreadable(sources: SourceFiles, path: str) -> bytes:
    """Read what is gone."""
    raise FileNotFoundError(path)


def release(package: Path, *modules: tuple[str, str, list[str]]) -> None:
    """Write what an installed release says of its modules."""
    text = json.dumps({name: [digest, imported] for name, digest, imported in modules})
    (package / MANIFEST).write_text(text)


def test_of_a_release_only_the_manifest_is_looked_at(package: Path) -> None:
    """What is edited by hand does not count; another release in its place does, were it only another manifest."""
    release(package, ("opbuild.kernels.conv", "c1", ["opbuild.kernels.tile"]), ("opbuild.kernels.tile", "t1", []))
    sources = SourceFiles(package)
    first = sources.digest, Modules(sources).digest(("opbuild.kernels.conv",))
    assert sources.are_released
    rewrite(package / "kernels" / "tile.py", "TILE = 8\n")
    assert sources.unchanged
    assert (SourceFiles(package).digest, Modules(SourceFiles(package)).digest(("opbuild.kernels.conv",))) == first
    release(package, ("opbuild.kernels.conv", "c1", ["opbuild.kernels.tile"]), ("opbuild.kernels.tile", "t2", []))
    assert not sources.unchanged
    second = SourceFiles(package).digest, Modules(SourceFiles(package)).digest(("opbuild.kernels.conv",))
    assert first[0] != second[0]
    assert first[1] != second[1]


def test_taking_the_manifest_away_makes_a_checkout_of_a_release(package: Path) -> None:
    """Who must edit an installed release removes its manifest first: then every edit counts."""
    release(package, ("opbuild.kernels.conv", "c1", []))
    sources = SourceFiles(package)
    (package / MANIFEST).unlink()
    assert not sources.unchanged
    assert not SourceFiles(package).are_released
    assert sorted(Modules(SourceFiles(package)).closure(("opbuild.kernels.conv",))) == [
        *("opbuild.kernels", "opbuild.kernels.conv", "opbuild.kernels.tile")
    ]


@pytest.mark.parametrize("released", [False, True])
def test_weights_are_packed_again_for_edits_of_all_but_what_only_compiles(package: Path, released: bool) -> None:
    """A definition and a schedule decide kernels, which are asked for by their pipelines; a family may decide more."""

    def packing(**edits: str) -> str:
        names = {"families.conv.halide": "one", "families.conv.family": "one", "backend.halide.rows": "one"}
        for name, text in (names | {key.replace("__", "."): text for key, text in edits.items()}).items():
            path = (package / name.replace(".", "/")).with_suffix(".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            names[name] = text
        if released:
            release(package, *((f"opbuild.{name}", text, []) for name, text in names.items()))
        return SourceFiles(package).packing

    first = packing()
    assert packing(families__conv__halide="two", backend__halide__rows="two") == first
    assert packing(families__conv__family="two") != first


def test_what_only_compiles_is_imported_by_nothing_else() -> None:
    """So it can decide no packed byte; the driver, which is, says what to load in a process of its own."""
    modules = Modules()
    names = [
        f"opbuild.{path.removesuffix('.py').replace('/', '.')}" for path in SourceFiles().states if path.endswith(".py")
    ]
    others = [module for name in names if not only_compiles(name) and (module := modules.module(name)) is not None]
    imported = {each for module in others for each in module.imports if modules.module(each) is not None}
    assert len(others) > 400
    assert {each for each in imported if only_compiles(each)} == {"opbuild.backend.halide.driver"}


def test_imports_are_found_in_any_statement(package: Path) -> None:
    """A line's form does not matter; what looks like an import in a string is none."""
    text = """
    'import opbuild.docstring'
    import os, opbuild.one as x; import opbuild.two
    from opbuild.three import (  # a comment
        a,
        b as c,
    )
    from opbuild import \\
        four
    if TYPE_CHECKING: import opbuild.five
    def function():
        try:
            from opbuild.kernels import six, tile as t
        except ImportError:
            import opbuild.seven
        return lambda: __import__, x.opbuild.eight
    """
    (package / "kernels" / "tile.py").write_text(textwrap.dedent(text))
    tile = Modules(SourceFiles(package)).module("opbuild.kernels.tile")
    assert tile is not None
    found = {name.removeprefix("opbuild.") for name in tile.imports if not name.startswith("opbuild.opbuild")}
    assert found >= {"one", "two", "three", "four", "five", "kernels", "kernels.six", "kernels.tile", "seven"}
    assert not found & {"docstring", "eight", "three.a"}, "opbuild.three is no package"


def test_a_source_with_an_error_imports_nothing(package: Path) -> None:
    """Whoever loads it is told what is wrong; its digest is one of its own."""
    before = Modules(SourceFiles(package)).digest(("opbuild.kernels.conv",))
    (package / "kernels" / "conv.py").write_text("import opbuild.one\nthis is no Python\n")
    modules = Modules(SourceFiles(package))
    assert set(modules.closure(("opbuild.kernels.conv",))) == {"opbuild.kernels", "opbuild.kernels.conv"}
    assert modules.digest(("opbuild.kernels.conv",)) != before


def test_an_import_that_was_edited_unseen_is_found(package: Path) -> None:
    """F34: under its old size and time a module may come to import another; what Python compiled does not say so."""
    (package / "kernels" / "slab.py").write_text("TILE = 2\n")
    rewrite(package / "kernels" / "conv.py", "from opbuild.kernels.slab import TILE\n")
    assert answer(package) == "4", "Python has learnt it"
    assert "opbuild.kernels.slab" in Modules(SourceFiles(package)).closure(("opbuild.kernels.conv",))


def test_an_edit_that_python_does_not_see_is_seen(package: Path) -> None:
    """F34: the key has the edited source, so the code must come from it too."""
    rewrite(package / "kernels" / "tile.py", "TILE = 8\n")
    assert answer(package) == "4", "Python has learnt it: the function under test is not needed any more"
    recompile_outdated(SourceFiles(package))
    assert answer(package) == "8"


def test_compiled_code_of_untouched_sources_stays(package: Path) -> None:
    """A server starts as quickly as it did; nothing is written again, and nothing where nothing was."""
    compiled = Path(cache_from_source(str(package / "kernels" / "tile.py")))
    before = compiled.stat()
    Path(cache_from_source(str(package / "kernels" / "conv.py"))).unlink()
    recompile_outdated(SourceFiles(package))
    assert compiled.stat() == before
    assert not Path(cache_from_source(str(package / "kernels" / "conv.py"))).exists()


def test_no_file_of_an_installed_release_is_written(package: Path) -> None:
    """A file that an installer wrote is the installer's, compiled code included."""
    compiled = Path(cache_from_source(str(package / "kernels" / "tile.py")))
    before = compiled.stat()
    rewrite(package / "kernels" / "tile.py", "TILE = 8\n")
    release(package)
    recompile_outdated(SourceFiles(package))
    assert compiled.stat() == before


def test_a_source_with_an_error_is_no_fault_of_who_looks(package: Path) -> None:
    """Its old compiled code stays; Python, which sees the other size, says what is wrong."""
    (package / "kernels" / "tile.py").write_text("TILE = = 8\n")
    recompile_outdated(SourceFiles(package))
    with pytest.raises(subprocess.CalledProcessError):
        answer(package)
