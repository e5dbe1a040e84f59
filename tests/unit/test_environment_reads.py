"""Only ``config.py`` reads the environment, so that what a variable does can be found in one place."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "opbuild"
DOCUMENT = PACKAGE.parents[1] / "docs" / "reference" / "environment.md"
READERS = {"environ", "environb", "getenv", "getenvb"}

COPIED_FOR_CHILDREN: dict[str, str] = {}
"""Files that hand the whole environment to a child process and read no variable from it, each with its reason."""


def reads(source: str) -> Iterator[int]:
    """Yield the lines of a program that mention the process's environment, however ``os`` was imported."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr in READERS and isinstance(node.value, ast.Name):
            yield node.lineno
        if isinstance(node, ast.ImportFrom) and node.module == "os" and READERS & {name.name for name in node.names}:
            yield node.lineno


def test_only_config_reads_the_environment() -> None:
    """No other file mentions it, but for those on the list."""
    found = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if list(reads(path.read_text())) and path.name != "config.py"
    }
    assert found == set(COPIED_FOR_CHILDREN)
    assert list(reads((PACKAGE / "config.py").read_text()))


@pytest.mark.parametrize(
    "source", ["import os\nos.environ['X']", "from os import getenv", "import os as o\nx = o.getenv('X')"]
)
def test_a_read_is_found(source: str) -> None:
    """Each way to reach the environment is noticed."""
    assert list(reads(source))


def test_every_variable_is_documented() -> None:
    """Each name that config.py reads stands in docs/reference/environment.md (F26: no switch that nobody knows of)."""
    calls = [node for node in ast.walk(ast.parse((PACKAGE / "config.py").read_text())) if isinstance(node, ast.Call)]
    reading = [call for call in calls if any(isinstance(n, ast.Name) and n.id == "env" for n in ast.walk(call))]
    names = {a.value for call in reading for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)}
    assert {"RANK_ID", "OPBUILD_FORBID_COMPILE"} <= names
    text = DOCUMENT.read_text()
    assert [name for name in sorted(names) if name.isupper() and f"`{name}`" not in text] == []
