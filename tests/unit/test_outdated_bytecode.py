"""Bytecode of a source that was edited under its old size and time is not what the compile server loads."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from opbuild.builder.bytecode import forget_outdated


def answer(package: Path) -> str:
    """Return what a fresh process finds in the module."""
    command = [sys.executable, "-c", "import inside.operators.tile as t; print(t.TILE)"]
    ran = subprocess.run(command, cwd=package.parent, capture_output=True, text=True, check=True, env={})
    return ran.stdout.strip()


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package with one module, compiled by Python."""
    module = tmp_path / "inside" / "operators" / "tile.py"
    module.parent.mkdir(parents=True)
    module.write_text("TILE = 4\n")
    os.utime(module, (1e9, 1e9))
    assert answer(tmp_path / "inside") == "4"
    return tmp_path / "inside"


def edit(package: Path) -> None:
    """Change the module's value under the size and time that it had."""
    module = package / "operators" / "tile.py"
    module.write_text("TILE = 8\n")
    os.utime(module, (1e9, 1e9))


def test_an_edit_that_python_does_not_see_is_seen(package: Path) -> None:
    """F34: the key has the edited source, so the code must come from it too."""
    edit(package)
    assert answer(package) == "4", "Python has learnt it: the module under test is not needed any more"
    forget_outdated(package, ("operators",))
    assert answer(package) == "8"


def test_bytecode_of_untouched_sources_stays(package: Path) -> None:
    """A server starts as quickly as it did."""
    compiled = Path(cache_from_source(str(package / "operators" / "tile.py")))
    forget_outdated(package, ("operators",))
    assert compiled.exists()


def test_a_folder_without_bytecode_is_no_fault(package: Path) -> None:
    """Nothing to forget, or no such folder."""
    edit(package)
    forget_outdated(package, ("operators", "gone"))
    forget_outdated(package, ("operators", "gone"))
    assert answer(package) == "8"
