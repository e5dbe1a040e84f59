"""The text that keys a user's operator holds all that the operator depends on, or the operator is refused."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from opbuild.errors import OptionError
from opbuild.frontend.user_operators import source_of
from support.made_modules import write_and_import


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for modules; what was imported from it is forgotten."""
    monkeypatch.syspath_prepend(str(tmp_path))
    # Python itself takes the bytecode of a source that was edited within the same second to the same size.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


OPERATOR = "from helper import twice\n\ndef operator(x):\n    return twice(x)\n\ndef other(x):\n    return x\n"


def test_an_edited_function_of_an_imported_module_changes_exactly_its_users(modules: Path) -> None:
    """The text follows imports: a helper in another file is in the key of who calls it, and of no other (F30)."""
    texts = []
    for factor in (2, 3):
        write_and_import(modules, f"FACTOR = {factor}\n\ndef twice(x):\n    return x * FACTOR\n", "helper")
        module = write_and_import(modules, OPERATOR, "mine")
        texts.append({name: source_of(getattr(module, name)) for name in ("operator", "other")})
    assert "FACTOR = 2" in texts[0]["operator"]
    assert {name for name in texts[0] if texts[0][name] != texts[1][name]} == {"operator"}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("import helper\n    return helper.f(x)", "imports helper"),
        ("from helper import f\n    return f(x)", "imports helper"),
        ("from .helper import f\n    return f(x)", "imports"),
        ("import os.path\n    return x", "imports os.path"),
        ("return x * float(open('table.txt').read())", "calls open"),
        ("return __import__('helper').f(x)", "calls __import__"),
        ("return eval('x + 1')", "calls eval"),
        ("return globals()['f'](x)", "calls globals"),
    ],
)
def test_what_an_operator_could_depend_on_unseen_is_refused(modules: Path, body: str, words: str) -> None:
    """A module or file that is read when the operator is compiled is in no key, so it could go stale (F30)."""
    module = write_and_import(modules, f"def operator(x):\n    {body}\n", "mine")
    with pytest.raises(OptionError, match=words):
        source_of(module.operator)


def test_what_the_compiler_provides_may_be_imported_inside(modules: Path) -> None:
    """Halide, math and numpy are there when the text is executed."""
    body = (
        "def operator(x):\n    import math\n    from numpy import pi\n    open = math.floor(pi)\n    return x * open\n"
    )
    assert "floor" in source_of(write_and_import(modules, body, "mine").operator)


def test_two_things_of_one_name_are_refused(modules: Path) -> None:
    """In one text the second would take the first one's place, without a word."""
    write_and_import(modules, "SCALE = 3\n\ndef scaled(x):\n    return x * SCALE\n", "helper")
    text = "from helper import scaled\nSCALE = 2\n\ndef operator(x):\n    return scaled(x) + SCALE\n"
    with pytest.raises(OptionError, match="two different things called SCALE"):
        source_of(write_and_import(modules, text, "mine").operator)
    same = text.replace("SCALE = 2", "SCALE = 3")
    assert "SCALE = 3" in source_of(write_and_import(modules, same, "mine").operator)
