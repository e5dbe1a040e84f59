"""Paths that load no pathlib behave as those of pathlib."""

from __future__ import annotations

import copy
import itertools
import pathlib
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path as Standard
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from opbuild.platform.paths import Path

PIECES = ["/", "//", "///", ".", "..", "a", "b.c", ".d", "e.", "a b", "ä", "f.tar.gz", "..."]


def _texts(count: int) -> list[str]:
    draw = np.random.default_rng(0)
    return ["".join(draw.choice(PIECES, draw.integers(0, 7))) for _ in range(count)]


ASKED: list[Callable[[Any], object]] = [
    str, lambda path: path.name, lambda path: path.stem, lambda path: path.suffix, lambda path: str(path.parent),
    lambda path: str(path.parent.parent), lambda path: path.is_absolute(), lambda path: str(path.absolute()),
    lambda path: str(path / "x"), lambda path: str(path / "/x"), lambda path: str(path / ""),
    lambda path: str("x" / path),
    lambda path: path.parts, lambda path: [str(each) for each in path.parents], lambda path: str(path.with_name("x")),
    lambda path: path.exists(), lambda path: path.is_file(), lambda path: path.is_dir(), lambda path: f"{path}",
]  # fmt: skip


def _said(ask: Callable[[Any], object], path: Any) -> object:
    try:
        return ask(path)
    except (OSError, ValueError) as error:
        return type(error)


def test_a_path_is_what_pathlib_makes_of_its_text() -> None:
    """Text, parts, what is above it and what is there are the same for any text."""
    for text in ["", "/", "//", "a\0b", *_texts(2000)]:
        for ask in ASKED:
            assert _said(ask, Path(text)) == _said(ask, Standard(text)), (text, ASKED.index(ask))


def test_paths_of_both_kinds_are_equal_and_in_one_order() -> None:
    """Who sorts what a folder has, or looks for one path among others, need not know which kind it is."""
    texts = _texts(200)
    mixed = [(Path if number % 2 else Standard)(text) for number, text in enumerate(texts)]
    assert [str(each) for each in sorted(mixed)] == [str(each) for each in sorted(map(Standard, texts))]  # type: ignore[type-var]
    for one, other in itertools.pairwise(texts):
        assert (Path(one) == Standard(other)) == (Standard(one) == Path(other)) == (Standard(one) == Standard(other))
        assert (Path(one) <= Standard(other)) == (Standard(one) <= Path(other)) == (Standard(one) <= Standard(other))
        assert (Path(one) != other) is True


def test_a_path_is_joined_copied_and_sent_as_any(tmp_path: Standard) -> None:
    """Copies are equal, files are read and removed, and pathlib takes such a path."""
    path = Path(tmp_path) / "a"
    assert pickle.loads(pickle.dumps(path)) == path == copy.deepcopy(path)
    assert {path: 1}[Path(str(path))] == 1
    assert Standard("x") / Path("y") == Path("x", "y") == Path("x") / Standard("y")
    path.write_text("é", encoding="utf-8")
    assert (path.read_text(encoding="utf-8"), path.read_bytes(), path.stat().st_size) == ("é", "é".encode(), 2)
    assert [Path(each) for each in Path(tmp_path).iterdir()] == [path]
    path.unlink()
    path.unlink(missing_ok=True)
    with pytest.raises(FileNotFoundError):
        path.unlink()
    with pytest.raises(TypeError, match="bytes"):
        Path(b"a")  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        path.nothing  # type: ignore[attr-defined]  # noqa: B018
    assert isinstance(path.resolve(), pathlib.Path)


def test_a_path_is_one_of_pathlib_to_who_asks() -> None:
    """Reports and settings hand paths to users, whose code may tell paths from text by their type."""
    assert isinstance(Path("a"), pathlib.Path)
    assert isinstance(Path("a"), pathlib.PurePath)
    assert not isinstance(Path("a"), str)
    assert isinstance(Standard("a"), Path)
    assert not isinstance("a", Path)


def test_a_path_has_a_class_while_another_thread_loads_pathlib(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of pathlib is there: ``isinstance`` answers, and does not fail."""
    monkeypatch.setitem(sys.modules, "pathlib", ModuleType("pathlib"))
    assert Path("a").__class__ is Path
    assert not isinstance(Path("a"), int)


def test_what_pathlibs_class_has_the_light_one_has() -> None:
    """What makes paths without one is asked of the class, and what it lacks is an error as there."""
    assert Path.cwd() == Standard.cwd()
    assert Path.home() == Standard.home()
    with pytest.raises(AttributeError, match="nothing"):
        _ = Path.nothing  # type: ignore[attr-defined]


def test_a_path_of_a_start_loads_no_pathlib() -> None:
    """Joining, reading and asking what is there do without it."""
    code = """
import sys
from opbuild.platform.paths import Path
path = Path("/") / "proc" / "self" / "stat"
assert path.is_file() and path.parent.is_dir() and path.name and path.stem and path.read_text() and path == path
print("pathlib" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
