"""``make test-pythons``: every Python that opbuild is for is looked for, and the sample is one of all tests."""

from __future__ import annotations

import os
import re
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
TOOL: dict[str, Any] = runpy.run_path(str(ROOT / "tools" / "pythons.py"), run_name="pythons")


def interpreter(path: Path, said: str) -> Path:
    """Return a program that answers as an interpreter."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {said}\n")
    path.chmod(0o755)
    return path


def test_each_python_of_the_readme_is_looked_for() -> None:
    """The same that pyproject.toml and the Makefile allow."""
    least, most = re.findall(r"Python 3\.(\d+) to 3\.(\d+)", (ROOT / "README.md").read_text())[0]
    assert {name.removesuffix("t") for name in TOOL["WANTED"]} == {f"3.{n}" for n in range(int(least), int(most) + 1)}
    assert f'requires-python = ">=3.{least}"' in (ROOT / "pyproject.toml").read_text()
    assert f"(3, {least}) <= sys.version_info[:2] <= (3, {most})" in (ROOT / "Makefile").read_text()


def test_the_newest_of_each_is_found_with_and_without_the_lock(tmp_path: Path) -> None:
    """In pyenv's folders and in those of PATH; what does not start, or is something else, is none."""
    pyenv, path = tmp_path / "pyenv" / "versions", tmp_path / "path"
    interpreter(pyenv / "3.12.1" / "bin" / "python3.12", "3.12 3 12 1")
    newest = interpreter(pyenv / "3.12.10" / "bin" / "python3.12", "3.12 3 12 10")
    interpreter(path / "python3.12", "3.12 3 12 9")
    free = interpreter(pyenv / "3.14.0t" / "bin" / "python3.14t", "3.14t 3 14 0")
    interpreter(path / "python3.13", "").write_text("#!/bin/sh\nexit 1\n")
    interpreter(path / "python3.11-config", "3.11 3 11 0")
    environment = {"PYENV_ROOT": str(pyenv.parent), "PATH": f"{path}{os.pathsep}{tmp_path / 'absent'}"}
    places = [place for place in TOOL["folders"](environment) if place.is_relative_to(tmp_path)]
    assert TOOL["found"](places) == {"3.12": newest, "3.14t": free}


def test_this_python_is_one_that_is_found() -> None:
    """It answers what it is."""
    base = Path(sys.base_prefix, "bin")
    assert f"3.{sys.version_info.minor}" in {name.removesuffix("t") for name in TOOL["found"]([base])}


def test_one_that_is_missing_is_named_and_is_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    """Where none is found that was asked for, nothing was tried."""
    assert TOOL["main"](["3.99"]) == 1
    assert capsys.readouterr().out == "3.99: not found\n"


def test_the_sample_has_a_file_of_each_folder_of_tests() -> None:
    """And each is there."""
    sample = [Path(each) for each in (*TOOL["SAMPLE"], *TOOL["COMPILED"])]
    assert [each for each in sample if not (ROOT / each).is_file()] == []
    folders = {path.parent.relative_to(ROOT).parts[1] for path in (ROOT / "tests").rglob("test_*.py")}
    assert {each.parts[1] for each in sample} == folders
