"""The digest of a release's sources: their code, whatever is written about it."""

from __future__ import annotations

import ast
import json
import random
import runpy
from pathlib import Path
from typing import Any

import pytest

import opbuild
from opbuild.platform.imports import Modules
from opbuild.platform.sources import MANIFEST, SourceFiles
from support.fuzzing import CAMPAIGN

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = Path(opbuild.__file__).parent
SETUP: dict[str, Any] = runpy.run_path(str(ROOT / "setup.py"), run_name="setup")
code = SETUP["code"]


class Bare(ast.NodeTransformer):
    """Takes away what ``code`` does, in the syntax tree."""

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        """A string that stands alone does nothing."""
        return ast.Pass() if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str) else node


def tree(source: bytes) -> str:
    """Return the code of a source, as a tree without places."""
    return ast.dump(Bare().visit(ast.parse(source)))


SOURCES = sorted(path for path in SourceFiles(PACKAGE).states if path.endswith(".py"))


def test_what_is_digested_is_the_same_program() -> None:
    """F30: were a statement left out of the digest, its edit would leave a stale operator; a campaign takes all."""
    for path in SOURCES[:: 1 if CAMPAIGN else 12]:
        source = (PACKAGE / path).read_bytes()
        assert tree(code(source)) == tree(source), path


@pytest.mark.parametrize("seed", range(min(CAMPAIGN, 3000) or 20))
def test_what_is_written_about_code_is_not_digested(seed: int) -> None:
    """F46: comments, blank lines and docstrings may be edited between releases, and nothing is built again."""
    rng = random.Random(seed)
    source = (PACKAGE / rng.choice(SOURCES)).read_text(encoding="utf-8")
    lines = source.splitlines(keepends=True)
    heads = {node.lineno for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt)}
    edited = ""
    for number, line in enumerate(lines, 1):
        if number in heads and rng.random() < 0.3:
            indent = line[: len(line) - len(line.lstrip())]
            edited += rng.choice(["\n", "   \n", "# a comment\n", f"{indent}# 'quoted\n"])
        edited += line
    edited = edited.replace('"""', '"""Otherwise: ', 1) + "# the end\n"
    assert edited != source
    assert code(edited.encode()) == code(source.encode())


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = 1\n", "x = 2\n"),
        ("x = '# a'\n", "x = '# b'\n"),
        ('x = """\n\n# a\n"""\n', 'x = """\n# a\n"""\n'),
        ('x = """\n# a\n"""\n', 'x = """\n# b\n"""\n'),
        ("x = f'{a}#b'\n", "x = f'{a}#c'\n"),
        ("if a:\n    b\nc\n", "if a:\n    b\n    c\n"),
        ("f('a'\n'b')\n", "f('a'\n'c')\n"),
        ("x = {'a':\n'b'}\n", "x = {'a':\n'c'}\n"),
        ('"a"; x = 1\n', '"a"; x = 2\n'),
        ("x = 'a\x0c# b'\n", "x = 'a\x0c# c'\n"),
    ],
)
def test_an_edit_of_code_is_digested(before: str, after: str) -> None:
    """What only looks like a comment, a blank line or a docstring is code."""
    assert code(before.encode()) != code(after.encode())


def test_a_manifest_gives_every_family_what_its_sources_give(tmp_path: Path) -> None:
    """F30: in a release an operator depends on the same modules as in a checkout, and each has a digest."""
    here, names = Modules(SourceFiles(PACKAGE)), ("opbuild.backend.halide.emission", "opbuild.builder.server")
    closure = here.closure(names)
    assert len(closure) > 10
    modules = dict(
        SETUP["describe"](found.path, (PACKAGE / found.path).read_bytes(), here) for found in closure.values()
    )
    (tmp_path / MANIFEST).write_text(json.dumps(modules | {"opbuild": ["0" * 32, []]}))
    release = Modules(SourceFiles(tmp_path))
    released = release.closure(names)
    assert set(released) == set(closure)
    assert all(module.digest for module in released.values())
    assert release.digest(names) == Modules(SourceFiles(PACKAGE), digested=code).digest(
        names
    )  # what packs are made for
