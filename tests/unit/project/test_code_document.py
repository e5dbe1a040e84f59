"""docs/concepts/code.md says how the code is laid out, and says it truly."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "src" / "opbuild"
PAGE = (ROOT / "docs" / "concepts" / "code.md").read_text()
NAMED = set(re.findall(r"`((?:tests/)?[a-z_]+(?:/[a-z_]+)*(?:/|\.py))`", PAGE))
"""Folders, which end with a slash, and files of Python."""

AT_THE_ROOT = {
    "CHANGELOG.md", "LICENSE", "Makefile", "README.md", "pyproject.toml", "setup.py",
    "benchmarks", "docs", "examples", "kernels", "src", "tests", "tools", "build", "dist", "__pycache__",
}  # fmt: skip
"""What lies at the root, and what building and testing put there, which git ignores."""


def test_every_package_and_module_at_the_top_is_named() -> None:
    """Who adds one says on the page what it is for."""
    folders = {f"{path.parent.name}/" for path in PACKAGE.glob("*/__init__.py")}
    modules = {path.name for path in PACKAGE.glob("*.py") if path.name not in ("__init__.py", "__main__.py")}
    assert (folders | modules) - NAMED == set()


def test_what_is_named_exists() -> None:
    """A folder or file that was moved is moved on the page too; a family has three files, and two more for GPUs."""
    in_a_family = {"family.py", "halide.py", "lowering.py", "cuda.py", "triton.py"}
    places = [ROOT, PACKAGE, PACKAGE / "backend"]
    lost = {name for name in NAMED - in_a_family if not any((place / name).exists() for place in places)}
    assert lost == set()
    assert all((PACKAGE / "families" / "copy" / name).exists() for name in in_a_family)


def test_packages_stand_in_the_order_of_their_layers() -> None:
    """The page's list and the contract that is checked, in pyproject.toml, have one order."""
    contract = re.search(r"^layers = \[(.*?)^\]", (ROOT / "pyproject.toml").read_text(), re.MULTILINE | re.DOTALL)
    assert contract is not None
    layers = [re.findall(r"opbuild\.(\w+)", line) for line in contract[1].splitlines()]
    section = PAGE.partition("\n## The packages\n")[2].partition("\n## ")[0]
    cells = [line.split(" | ")[0] for line in section.splitlines() if line.startswith("| `")]
    rows = [name for cell in cells for name in re.findall(r"`(\w+)(?:/|\.py)`", cell)]
    places = [[rows.index(name) for name in layer] for layer in layers if layer]
    assert all(max(above) < min(below) for above, below in pairwise(places))


def test_nothing_else_lies_at_the_root() -> None:
    """An output of a command, or of a test, that ran there is removed before it is added to the repository."""
    names = {path.name for path in ROOT.iterdir() if not path.name.startswith((".", "rank_"))}
    assert names <= AT_THE_ROOT
