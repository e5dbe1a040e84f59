"""Writes ``docs/reference/mindspore_names.md``: which of MindSpore's public names work here.

    python tools/mindspore_page.py docs/reference/mindspore_names.md

A name works if opbuild has it and a test calls it: one of ``tests/mindspore_calls.py``, which are compared with what
the real package gave. Of layers, checkpoints and the context, also other tests of the interface.
"""

from __future__ import annotations

import re
import sys
import textwrap
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from opbuild.mindspore.public_names import content, kinds

ROOT = Path(__file__).resolve().parents[1]
CALLED_IN = [
    *sorted((ROOT / "tests" / "system").glob("*mindspore*.py")),
    ROOT / "tests" / "system" / "test_run_script.py",
    *sorted((ROOT / "tests" / "unit").glob("test_mindspore*.py")),
    *sorted((ROOT / "examples").glob("*.py")),
]
CALLS_NO_NAMES = {"test_mindspore_names.py", "test_mindspore_page.py"}

OF_ANY_TEST = ("mindspore", "mindspore.nn", "mindspore.mint.nn")
"""Modules of which any test of the interface counts."""

PREFIXES = {
    "mindspore": (
        r"\bms\.",
        r"\bmindspore\.",
        r"from mindspore import [^\n]*\b",
        r"from opbuild\.mindspore import [^\n]*\b",
    ),
    "mindspore.nn": (r"\bnn\.",),
    "mindspore.ops": (r"\bops\.",),
    "mindspore.mint": (r"\bmint\.",),
    "mindspore.mint.nn": (r"\bmint\.nn\.",),
    "mindspore.mint.nn.functional": (r"\bmint\.nn\.functional\.",),
    "mindspore.mint.linalg": (r"\bmint\.linalg\.",),
    "mindspore.mint.special": (r"\bmint\.special\.",),
    "mindspore.numpy": (r"\bmnp\.",),
    "mindspore.Tensor": (r"(?:\b[xyzw]|Tensor|\)|\])\.",),
    "mindspore.common.initializer": (r"\binitializer\.",),
}
"""What stands before a name of a module where a test calls it."""

INTRODUCTION = """# MindSpore's names

MindSpore {version} lists these names as public (`__all__` of its modules, and the attributes of `Tensor` without an
underscore). Below, for each module: those that work here, which a test calls and compares with the real package, and
those that inference could use and that opbuild does not have. What is not for inference is left out: {others}. The
rules that tell them apart are patterns of names in `tools/mindspore_names.py`.

A name that is not here gets a sentence when it is used: whose it is, what to do, and the nearest name that there is.
Functions whose result's shape depends on data (`unique`, `nonzero`, `masked_select`), decompositions, special functions
and random numbers are computed at once; in `construct` under `GRAPH_MODE` they say so.

This page is made by `tools/mindspore_page.py` and checked by a test.
"""

KINDS = {
    "training": "training", "data": "data sets", "parallel": "many devices", "device": "Ascend and GPU devices",
    "sparse": "sparse tensors", "internal": "MindSpore's own inside",
}  # fmt: skip


class Counted(NamedTuple):
    """The names of a module that inference can use."""

    works: list[str]
    missing: list[str]


def called(module: str) -> str:
    """Return the text of everything that calls names of a module."""
    sys.path.insert(0, str(ROOT / "tests"))
    from mindspore_calls import calls

    texts = [call.text for call in calls()]
    if module in OF_ANY_TEST:
        texts += [path.read_text() for path in CALLED_IN if path.exists() and path.name not in CALLS_NO_NAMES]
    return "\n".join(texts)


def owner_of(module: str) -> object:
    """Return opbuild's module or class."""
    if module == "mindspore.Tensor":
        return import_module("opbuild.mindspore").Tensor([1.0])
    return import_module(f"opbuild.{module}".replace(".common", ""))


def counted(module: str, text: str) -> Counted:
    """Return which names of a module work."""
    owner = owner_of(module)
    found = {name for prefix in PREFIXES[module] for name in re.findall(rf"{prefix}(\w+)\b", text)}
    if module == "mindspore":
        found |= set(re.findall(r"\w+", " ".join(re.findall(r"from (?:opbuild\.)?mindspore import ([^\n]*)", text))))
    listed = kinds(module).get("inference", [])
    works = [name for name in listed if hasattr(owner, name) and name in found and not _shadowed(module, name)]
    return Counted(works, [name for name in listed if name not in works])


def _shadowed(module: str, name: str) -> bool:
    """Return whether an attribute has another meaning here than in MindSpore."""
    return (module, name) == ("mindspore.Tensor", "type")


def page() -> str:
    """Return the page."""
    counts = {module: counted(module, called(module)) for module in PREFIXES}
    lines = [INTRODUCTION.format(version=content()["version"], others=", ".join(KINDS.values()))]
    lines += ["| Module | for inference | work here | share | not for inference |", "|---|---:|---:|---:|---:|"]
    for module, (works, missing) in counts.items():
        total = len(works) + len(missing)
        rest = sum(len(names) for kind, names in kinds(module).items() if kind != "inference")
        lines.append(f"| `{module}` | {total} | {len(works)} | {100 * len(works) // total}% | {rest} |")
    for module, (works, missing) in counts.items():
        lines += ["", f"## {module}", "", *_paragraph("Work", works)]
        if missing:
            lines += ["", *_paragraph("Not here", missing)]
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
