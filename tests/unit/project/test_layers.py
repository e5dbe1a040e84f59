"""The layers of the design are held by import-linter; these tests break each rule once, to see that it bites."""

from __future__ import annotations

import graphlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "src" / "opbuild"

LAYERS = "Layers: the faces, the data path, the stages, the types that they share"

FRONT_END = "The front end asks no other stage, but for the memory of models"

PASSES = "After the front end no stage runs a pass"

ONNX = "Only the front end, the host backend, the interface of onnx and peers in benchmarks import onnx"


def lint(root: Path) -> str:
    """Return the output of lint-imports for the package in ``root/src``, with the project's own contracts."""
    environment = {**os.environ, "PYTHONPATH": str(root / "src"), "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()", "--no-cache"],
        cwd=root, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "Contracts" in done.stdout, done.stdout + done.stderr
    return done.stdout


def copy_to(root: Path) -> Path:
    """Copy the package and its settings to ``root``, where they may be broken."""
    shutil.copytree(PACKAGE, root / "src" / "opbuild", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", root)
    return root


def test_the_package_keeps_its_layers(tmp_path: Path) -> None:
    """No contract is broken as the package stands."""
    said = lint(copy_to(tmp_path))
    assert "0 broken" in said, said


VIOLATIONS = [
    ("opbuild.frontend", "opbuild.lowering", FRONT_END),
    ("opbuild.frontend", "opbuild.pipeline", LAYERS),
    ("opbuild.lowering", "opbuild.frontend", LAYERS),
    ("opbuild.builder", "opbuild.store", LAYERS),
    ("opbuild.store", "opbuild.builder", LAYERS),
    ("opbuild.backend", "opbuild.runtime", LAYERS),
    ("opbuild.runtime", "opbuild.backend", LAYERS),
    ("opbuild.lowering", "opbuild.api", LAYERS),
    ("opbuild.kernel", "opbuild.store", LAYERS),
    ("opbuild.graph.passes", "opbuild.store", LAYERS),
    ("opbuild.graph.types", "opbuild.kernel.opdesc", LAYERS),
    ("opbuild.target.level", "opbuild.graph.types", LAYERS),
    ("opbuild.platform.limits", "opbuild.config", LAYERS),
    ("opbuild.api", "opbuild.cli", LAYERS),
    ("opbuild.lowering", "opbuild.graph.passes.fold", PASSES),
    ("opbuild.lowering", "opbuild.families.conv.family", "Lowering names no family"),
    ("opbuild.families.family", "opbuild.lowering.rows", "A family's record knows no compiler"),
    ("opbuild.backend.host", "opbuild.backend.halide", "Backends do not import each other"),
    ("opbuild.builder", "halide", "Only the Halide backend imports halide"),
    ("opbuild.api", "halide", "Only the Halide backend imports halide"),
    ("opbuild.runtime", "onnx", ONNX),
    ("opbuild.api", "onnx", ONNX),
    ("opbuild.cli.env", "opbuild", "Nothing inside imports the root package"),
]
"""Imports against a rule: who, what, and the contract that forbids it."""


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the output of lint-imports, by contract, for a package with all the violations, each inside a function."""
    root = copy_to(tmp_path_factory.mktemp("layers"))
    for importer, imported, _ in VIOLATIONS:
        place = root / "src" / importer.replace(".", "/")
        file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
        with file.open("a") as stream:
            stream.write(f"\n\ndef late_{abs(hash(imported))}():\n    import {imported}\n")
    said = lint(root).partition("Broken contracts")[2]
    names = {contract for _, _, contract in VIOLATIONS}
    starts = sorted((said.index(f"\n{name}\n"), name) for name in names)
    ends = [start for start, _ in starts[1:]] + [len(said)]
    return {name: said[start:end] for (start, name), end in zip(starts, ends, strict=True)}


@pytest.mark.parametrize(("importer", "imported", "contract"), VIOLATIONS)
def test_a_broken_rule_is_found(broken: dict[str, str], importer: str, imported: str, contract: str) -> None:
    """An import against a rule, even inside a function, breaks the contract that forbids it."""
    assert f"{importer} -> {imported} (" in broken[contract]


def test_every_part_of_the_package_has_a_layer() -> None:
    """A new folder or file at the top is given its place among the layers, each part as a whole."""
    settings = (ROOT / "pyproject.toml").read_text()
    start = settings.index("layers = [")
    lines = re.findall(r'"(opbuild[^"]*)"', settings[start : settings.index("]\n", start)])
    named = [name for line in lines for name in line.split(" | ")]
    parts = {
        f"opbuild.{path.stem}" for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert sorted(named) == sorted(parts - {"opbuild.__init__", "opbuild.__main__"})


def test_no_modules_import_each_other() -> None:
    """There is no cycle of imports, those for type checkers and those inside functions counted."""
    graph = grimp.build_graph("opbuild")
    graphlib.TopologicalSorter(
        {each: graph.find_modules_directly_imported_by(each) for each in graph.modules}
    ).prepare()


FACES = ("opbuild.mindspore", "opbuild.onnxruntime", "opbuild.torch")
"""Packages that programs import by name, before anything in them: what these offer is loaded with the package."""


def test_no_package_inside_loads_its_own_modules() -> None:
    """Two threads, one loading a package and one a module of it, would each wait for the other: an error of Python."""
    graph = grimp.build_graph("opbuild")
    loading = {
        package for package in graph.modules
        if not package.startswith(FACES)
        for each in graph.find_modules_directly_imported_by(package)
        if each.startswith(f"{package}.")
    }  # fmt: skip
    assert loading == {"opbuild"}, "the root package loads what is asked for, and has a lock for it"
