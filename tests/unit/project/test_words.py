"""Words: docstrings name things, and a name of a class outside the faces means one thing."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import opbuild

ROOT = Path(__file__).parents[3]
SOURCES = Path(opbuild.__file__).parent
FACES = ("mindspore", "onnxruntime", "torch")
"""Packages whose names are given by the packages that they stand for."""

SHORT = 3
"""Statements of a function that needs no list of its arguments, if it is private."""

_NO_NOUN = re.compile(r"(Return what|What an?)\b")
_SECTION = re.compile(r"^\s*(Args|Raises|Returns|Yields):$", re.MULTILINE)

Function = (ast.FunctionDef, ast.AsyncFunctionDef)


def files(*folders: Path) -> list[Path]:
    """Return the files of Python in folders."""
    return sorted(path for folder in folders for path in folder.rglob("*.py"))


def described(path: Path) -> Iterator[tuple[str, ast.AST, str]]:
    """Yield the place, the node and the docstring of all in a file that has one."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.Module, ast.ClassDef, *Function)) and (text := ast.get_docstring(node)):
            yield f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}", node, text


def is_private(name: str) -> bool:
    """Return whether a name is private to its module or class."""
    return name.startswith("_") and not name.endswith("__")


def test_docstrings_begin_with_a_noun() -> None:
    """The first line names the thing: "Return the memory plan", not what it is good for."""
    found = [
        f"{place}: {text.splitlines()[0]}"
        for path in files(SOURCES, ROOT / "tests", ROOT / "benchmarks", ROOT / "kernels")
        for place, _, text in described(path)
        if _NO_NOUN.match(text)
    ]
    assert found == []


def test_no_two_classes_share_a_name() -> None:
    """Outside the faces a class is found by its name."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path in files(SOURCES):
        if path.relative_to(SOURCES).parts[0] not in FACES:
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    places[node.name].append(str(path.relative_to(SOURCES)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_private_functions_of_a_few_lines_have_no_list_of_arguments() -> None:
    """Their body says it; a reason may stand behind the first line."""
    found = [
        f"{place}: {node.name}"
        for path in files(SOURCES)
        for place, node, text in described(path)
        if isinstance(node, Function)
        and is_private(node.name)
        and len(node.body) - 1 <= SHORT
        and _SECTION.search(text)
    ]
    assert found == []
