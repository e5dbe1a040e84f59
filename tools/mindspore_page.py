"""Writes ``docs/reference/mindspore_names.md``: which of MindSpore's public names work here.

    python tools/mindspore_page.py docs/reference/mindspore_names.md

A name works if opbuild has it and something that is compared with the real package uses it: a call of
``tests/support/mindspore_calls.py``, a layer of ``tests/support/mindspore_worker.py``, or a script of
``tests/system/mindspore_scripts``. What opbuild has and nothing compares is a group of its own.
"""

from __future__ import annotations

import ast
import sys
import textwrap
from collections.abc import Iterable
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from opbuild.mindspore.names import content, kinds

TESTS = Path(__file__).resolve().parents[1] / "tests"
SCRIPTS = TESTS / "system" / "mindspore_scripts"

MODULES = (
    "mindspore", "mindspore.nn", "mindspore.ops", "mindspore.mint", "mindspore.mint.nn",
    "mindspore.mint.nn.functional", "mindspore.mint.linalg", "mindspore.mint.special", "mindspore.numpy",
    "mindspore.Tensor", "mindspore.common.initializer",
)  # fmt: skip
"""What the page lists; modules for training and for many devices are not among them."""

IN_EXPRESSIONS = {
    "ms": "mindspore", "nn": "mindspore.nn", "ops": "mindspore.ops", "mint": "mindspore.mint",
    "mnp": "mindspore.numpy", "initializer": "mindspore.common.initializer", "Tensor": "mindspore.Tensor",
    "Parameter": "mindspore.Parameter", "np": "",
}  # fmt: skip
"""What the names stand for that compared expressions use; an empty text for what is not MindSpore's."""

INTRODUCTION = """# MindSpore's names

MindSpore {version} lists these names as public (`__all__` of its modules, and the attributes of `Tensor` without an
underscore). Below, for each module: those that work here, each used in an expression or a script whose results are
compared with the real package's; those that are here and that no such comparison uses; and those that inference could
use and that are not here.

What is not for inference is left out: {others}. The
rules that tell them apart are patterns of names in `tools/mindspore_names.py`.

A name that is not here gets a sentence when it is used: whose it is, what to do, and the nearest name that there is.
Functions whose result's shape depends on data (`unique`, `nonzero`, `masked_select`), decompositions, special functions
and random numbers are computed at once; in `construct` under `GRAPH_MODE` they say so.

Where MindSpore has no kernel for a CPU, as for most of `mint`, the comparison is with the same computed by other
functions of MindSpore. Of random numbers, shapes and element types are compared.

This page is made by `tools/mindspore_page.py` and checked by a test.
"""

KINDS = {
    "training": "training", "data": "data sets", "parallel": "many devices", "device": "Ascend and GPU devices",
    "sparse": "sparse tensors", "internal": "MindSpore's own inside",
}  # fmt: skip


class Counted(NamedTuple):
    """The names of a module that inference can use."""

    works: list[str]
    not_compared: list[str]
    missing: list[str]

    @property
    def total(self) -> int:
        """How many there are."""
        return len(self.works) + len(self.not_compared) + len(self.missing)


def used(source: str, names: dict[str, str] | None = None) -> set[str]:
    """Return the full names of MindSpore's that a program uses.

    Args:
        source: Its text.
        names: What the free names of an expression stand for: attributes of its other values are a tensor's. By
            default names are what the program's imports say, and nothing is known of other values.
    """
    tree = ast.parse(source)
    known = _imported(tree) if names is None else names
    found = {known[node.id] for node in ast.walk(tree) if isinstance(node, ast.Name) and known.get(node.id)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            full = _full_name(node, known)
            if full is None and names is not None and not _of_arrays(node.value):
                full = f"mindspore.Tensor.{node.attr}"
            found |= {full} if full else set()
    return found


def _imported(tree: ast.AST) -> dict[str, str]:
    """Return the meanings of the names that a program imports."""
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            known |= {each.asname or each.name.partition(".")[0]: each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            known |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
    return {
        name: full.replace("mindspore.train.serialization.", "mindspore.") if full.startswith("mindspore") else ""
        for name, full in known.items()
    }


def _full_name(node: ast.expr, known: dict[str, str]) -> str | None:
    """Return the dotted name that an expression is; an empty text for another package's, None if it is no name."""
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if not isinstance(node, ast.Attribute):
        return None
    owner = _full_name(node.value, known)
    return f"{owner}.{node.attr}" if owner else owner


def _of_arrays(node: ast.expr) -> bool:
    """Return whether an expression is numpy's: it begins with ``np``, or comes from ``asnumpy()``."""
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Attribute) and node.attr == "asnumpy":
            return True
        below = [each for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr)]
        if not below:
            return False
        node = below[0]
    return node.id == "np"


@lru_cache(maxsize=1)
def compared() -> frozenset[str]:
    """Return the full names that are used where results are compared with the real package's."""
    sys.path.insert(0, str(TESTS))
    from support.mindspore_calls import calls
    from support.mindspore_worker import all_layers

    expressions = [call.text.partition("  #")[0] for call in calls()]
    expressions += [text.partition(" #")[0] for case in all_layers() for text in case.split("  # ")]
    found = {name for text in expressions for name in used(f"({text})", IN_EXPRESSIONS)}
    for path in SCRIPTS.glob("*.out"):
        found |= used(path.with_suffix(".py").read_text())
    return frozenset(found)


def owner_of(module: str) -> object:
    """Return opbuild's module or class."""
    if module == "mindspore.Tensor":
        return import_module("opbuild.mindspore").Tensor([1.0])
    return import_module(f"opbuild.{module}".replace(".common", ""))


def counted(module: str, names: Iterable[str]) -> Counted:
    """Return which names of a module work, if ``names`` are those that are compared."""
    owner, compared_names = owner_of(module), frozenset(names)
    listed = kinds(module).get("inference", [])
    here = [name for name in listed if hasattr(owner, name) and not _shadowed(module, name)]
    works = [name for name in here if f"{module}.{name}" in compared_names]
    return Counted(works, [name for name in here if name not in works], [name for name in listed if name not in here])


def _shadowed(module: str, name: str) -> bool:
    """Return whether an attribute has another meaning here than in MindSpore."""
    return (module, name) == ("mindspore.Tensor", "type")


def page() -> str:
    """Return the page."""
    counts = {module: counted(module, compared()) for module in MODULES}
    others = ", ".join(KINDS.values())
    lines = [INTRODUCTION.format(version=content()["version"], others=others)]
    lines += ["| Module | for inference | work | here, not compared | not here | work, share | not for inference |"]
    lines += ["|---|---:|---:|---:|---:|---:|---:|"]
    for module, (works, here, missing) in counts.items():
        total = counts[module].total
        rest = sum(len(names) for kind, names in kinds(module).items() if kind != "inference")
        share = 100 * len(works) // total
        lines.append(f"| `{module}` | {total} | {len(works)} | {len(here)} | {len(missing)} | {share}% | {rest} |")
    for module, groups in counts.items():
        lines += ["", f"## {module}"]
        for title, names in zip(("Work", "Here, not compared", "Not here"), groups, strict=True):
            if names:
                lines += ["", *_paragraph(title, names)]
    return "\n".join(lines) + "\n"


def _paragraph(title: str, names: list[str]) -> list[str]:
    functions = [name for name in names if not name[0].isupper()]
    classes = [name for name in names if name[0].isupper()]
    lines: list[str] = []
    for kind, each in (("", functions), (", classes", classes)) if functions and classes else (("", names),):
        lines += [""] * bool(lines)
        lines += textwrap.wrap(f"**{title}{kind}** ({len(each)}): " + " ".join(f"`{name}`" for name in each) + ".",
                               118, break_on_hyphens=False)  # fmt: skip
    return lines


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page())
