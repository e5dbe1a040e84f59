"""Edits of the sources that define kernels: as people make them, most change nothing of what is defined.

An edit is made in a process that was forked for it, by giving Python another text for one module; what imports that is
imported again. ``looked_at`` then says of an operator what it is compiled from, and what that compiles to.
"""

from __future__ import annotations

import ast
import importlib.util
import io
import keyword
import random
import re
import sys
import tokenize
from collections.abc import Callable
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import opbuild
from opbuild.backend.halide.driver import HalideCompiler
from opbuild.kernel.opdesc import OpDesc
from opbuild.platform.digest import sha256
from opbuild.target.level import BY_NAME

SOURCE = Path(opbuild.__file__).parent
DEFINING = ("opbuild.backend.halide.", "opbuild.families.")
KEPT = ("driver", "emission", "object_file", "user_source")
"""Modules of the backend that define nothing about a family."""

Edit = Callable[[str, random.Random], str]


def renamed(text: str, rng: random.Random) -> str:
    """Return a text with a local variable under another name, everywhere in its function."""
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    if not functions:
        return text
    function = rng.choice(functions)
    inside = list(ast.walk(function))
    names = sorted(
        {node.id for node in inside if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        - {each for node in inside if isinstance(node, (ast.Nonlocal, ast.Global)) for each in node.names}
        - {node.arg for node in inside if isinstance(node, (ast.arg, ast.keyword)) and node.arg}
    )
    if not names or any(isinstance(node, (ast.FunctionDef, ast.Lambda)) for node in inside[1:]):
        return text
    old = rng.choice(names)
    lines = text.splitlines(keepends=True)
    body = "".join(lines[function.lineno - 1 : function.end_lineno])
    return "".join(
        [*lines[: function.lineno - 1], _named(body, old, f"{old}_{rng.randrange(100)}"), *lines[function.end_lineno :]]
    )


def _named(body: str, old: str, new: str) -> str:
    """Return a function's text with a name replaced where it is one, and neither an attribute nor in a string."""
    lines = body.splitlines(keepends=True)
    before = ""
    for token in reversed(
        list(tokenize.generate_tokens(io.StringIO("if 1:\n" + body if body[:1] == " " else body).readline))
    ):
        row = token.start[0] - (2 if body[:1] == " " else 1)
        if token.type == tokenize.NAME and token.string == old and not lines[row][: token.start[1]].endswith("."):
            lines[row] = lines[row][: token.start[1]] + new + lines[row][token.end[1] :]
        before = token.string
    assert before is not None
    return "".join(lines)


def commented(text: str, rng: random.Random) -> str:
    """Return a text with a comment behind a line of code."""
    lines = text.splitlines(keepends=True)
    ends = [
        token.start[0] - 1
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.NEWLINE
    ]
    row = rng.choice(ends)
    lines[row] = lines[row].rstrip("\n") + f"  # as on page {rng.randrange(1000)}\n"
    return "".join(lines)


def helped(text: str, rng: random.Random) -> str:
    """Return a text in which a helper function returns a function's result."""
    returns = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Return) and node.value is not None]
    if not returns:
        return text
    chosen = rng.choice(returns)
    lines = text.splitlines(keepends=True)
    assert chosen.value is not None
    assert chosen.value.end_lineno is not None
    assert chosen.value.end_col_offset is not None
    last, first = chosen.value.end_lineno - 1, chosen.value.lineno - 1
    lines[last] = lines[last][: chosen.value.end_col_offset] + ")" + lines[last][chosen.value.end_col_offset :]
    lines[first] = lines[first][: chosen.value.col_offset] + "_itself(" + lines[first][chosen.value.col_offset :]
    return "".join(lines) + "\n\ndef _itself(value):\n    return value\n"


def swapped(text: str, rng: random.Random) -> str:
    """Return a text with two lines that follow each other in the other order: directives, definitions."""
    blocks = [node.body for node in ast.walk(ast.parse(text)) if isinstance(node, (ast.FunctionDef, ast.For, ast.If))]
    pairs = [(one, two) for body in blocks for one, two in pairwise(body) if not _is_text(one)]
    if not pairs:
        return text
    one, two = rng.choice(pairs)
    assert one.end_lineno is not None
    lines = text.splitlines(keepends=True)
    first, second = lines[one.lineno - 1 : one.end_lineno], lines[two.lineno - 1 : two.end_lineno]
    between = lines[one.end_lineno : two.lineno - 1]
    return "".join([*lines[: one.lineno - 1], *second, *between, *first, *lines[two.end_lineno :]])


def unchained(text: str, rng: random.Random) -> str:
    """Return a text with two directives of a chain in the other order."""
    chains = list(re.finditer(r"\.(\w+\([\w, .\[\]\"]*\))\.(\w+\([\w, .\[\]\"]*\))", text))
    if not chains:
        return text
    chain = rng.choice(chains)
    return f"{text[: chain.start()]}.{chain[2]}.{chain[1]}{text[chain.end() :]}"


def counted(text: str, rng: random.Random) -> str:
    """Return a text with another number, which most likely changes what is defined."""
    numbers = [token for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type == tokenize.NUMBER]
    if not numbers:
        return text
    token = rng.choice(numbers)
    lines = text.splitlines(keepends=True)
    row, (_, start), (_, end) = token.start[0] - 1, token.start, token.end
    value = f"{int(token.string) + 1}" if token.string.isdigit() else f"({token.string} * 2)"
    lines[row] = lines[row][:start] + value + lines[row][end:]
    return "".join(lines)


def dropped(text: str, rng: random.Random) -> str:
    """Return a text without one statement that stands alone, such as a directive."""
    alone = [
        node for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and node.lineno == node.end_lineno
    ]  # fmt: skip
    if not alone:
        return text
    node = rng.choice(alone)
    lines = text.splitlines(keepends=True)
    lines[node.lineno - 1] = lines[node.lineno - 1][: node.col_offset] + "pass\n"
    return "".join(lines)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


EDITS: tuple[Edit, ...] = (renamed, commented, helped, swapped, unchained, counted, dropped)


def edited(text: str, seed: int) -> tuple[str, str]:
    """Return a text after one to three edits that Python still takes, and what they were."""
    rng = random.Random(seed)
    names = []
    for _ in range(rng.randrange(1, 4)):
        edit = rng.choice(EDITS)
        new = edit(text, rng)
        if new != text and _is_python(new):
            text, names = new, [*names, edit.__name__]
    return text, "+".join(names)


def _is_python(text: str) -> bool:
    try:
        compile(text, "edited", "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return not any(keyword.iskeyword(name) for name in re.findall(r"\b(\w+)_\d+ = ", text))


class _Edited(MetaPathFinder, Loader):
    """Gives Python another text of a module."""

    def __init__(self, name: str, path: Path, text: str) -> None:
        self._name, self._path, self._text = name, path, text

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return importlib.util.spec_from_loader(name, self, origin=str(self._path)) if name == self._name else None

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        module.__file__ = str(self._path)
        exec(compile(self._text, str(self._path), "exec", dont_inherit=True), module.__dict__)


def modules_of(family: str) -> list[str]:
    """Return the modules that define a family's kernels, and none that only emits them."""
    found = HalideCompiler().new_modules().closure((HalideCompiler.module_of(family),))
    return sorted(
        name for name, module in found.items()
        if name.startswith(DEFINING) and not module.path.endswith("__init__.py") and name.rpartition(".")[2] not in KEPT
    )  # fmt: skip


def path_of(module: str) -> Path:
    """Return a module's file."""
    return SOURCE.joinpath(*module.split(".")[1:]).with_suffix(".py")


def take(module: str, text: str) -> None:
    """Let this process, a fork, have another text of a module."""
    for name in [name for name in sys.modules if name.startswith(DEFINING) and not name.endswith(".driver")]:
        del sys.modules[name]
    sys.meta_path.insert(0, _Edited(module, path_of(module), text))


def looked_at(parts: dict[str, Any], level: str, known: str = "") -> list[str]:
    """Return of an operator the digests of what is compiled and of the object; nothing where that is refused.

    Args:
        parts: The operator's components.
        level: The level.
        known: The digest of which alone the object is compiled; empty: any.
    """
    try:
        pipeline = HalideCompiler.define(OpDesc.from_components(parts), BY_NAME[level])
    except Exception:  # an edit may be wrong in any way
        return ["", ""]
    compiles = known in ("", pipeline.digest)
    return [pipeline.digest, sha256(pipeline.compile("kernel").data) if compiles else ""]
