"""The layers of the design are held by import-linter; these tests break each rule once, to see that it bites."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "opbuild"

LAYERS = "Layers: the faces, the data path, the stages, the types that they share"

PASSES = "After the front end no stage runs a pass"


def lint(root: Path) -> str:
    """Return what lint-imports says of the package in ``root/src``, with the project's own contracts."""
    environment = {**os.environ, "PYTHONPATH": str(root / "src"), "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()", "--no-cache"],
        cwd=root, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "Contracts" in done.stdout, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the project's package and settings that may be broken."""
    root = tmp_path_factory.mktemp("layers")
    shutil.copytree(PACKAGE, root / "src" / "opbuild", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", root)
    return root


def test_the_package_keeps_its_layers(copy: Path) -> None:
    """No contract is broken as the package stands."""
    assert "0 broken" in lint(copy)


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("frontend/__init__.py", "import opbuild.lowering", LAYERS),
        ("lowering/__init__.py", "import opbuild.graph.passes.fold", PASSES),
        ("graph/passes/__init__.py", "import opbuild.store", LAYERS),
        ("builder/__init__.py", "import opbuild.store", LAYERS),
        ("store/__init__.py", "import opbuild.builder", LAYERS),
        ("backend/__init__.py", "import opbuild.runtime", LAYERS),
        ("runtime/__init__.py", "import opbuild.backend", LAYERS),
        ("builder/__init__.py", "import opbuild.api", LAYERS),
        ("kernel/__init__.py", "import opbuild.store", LAYERS),
        ("graph/types.py", "import opbuild.kernel.opdesc", LAYERS),
        ("api.py", "import opbuild.cli", LAYERS),
        ("backend/host/__init__.py", "import opbuild.backend.halide", "Backends do not import each other"),
        ("builder/__init__.py", "def late():\n    import halide", "Only the Halide backend imports halide"),
        ("api.py", "import halide", "Only the Halide backend imports halide"),
        ("runtime/__init__.py", "import onnx.helper", "Only the front end and the host backend import onnx"),
        ("api.py", "def late():\n    import onnx", "Only the front end and the host backend import onnx"),
        ("cli/env.py", "import opbuild", "Nothing inside imports the root package"),
    ],
)
def test_a_broken_rule_is_found(copy: Path, module: str, line: str, contract: str) -> None:
    """An import against a rule, even inside a function, breaks the contract that forbids it."""
    file = copy / "src" / "opbuild" / module
    before = file.read_text()
    file.write_text(f"{before}\n{line}\n")
    try:
        assert f"{contract} BROKEN" in lint(copy)
    finally:
        file.write_text(before)


def test_every_part_of_the_package_has_a_layer() -> None:
    """A new folder or file at the top must be given its place among the layers."""
    settings = (ROOT / "pyproject.toml").read_text()
    layers = settings[settings.index("layers = [") : settings.index("]\n", settings.index("layers = ["))]
    for path in PACKAGE.iterdir():
        if path.name.startswith("__") or path.suffix not in ("", ".py"):
            continue
        assert f"opbuild.{path.stem}" in layers, f"{path.name} has no layer in pyproject.toml"
