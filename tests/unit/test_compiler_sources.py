"""The sources in a key: a family's definition, its schedule and what they import, and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import opbuild.backend.halide.sources as sources_module
from opbuild.backend.halide.driver import HalideCompiler
from opbuild.backend.halide.registry import FAMILIES
from opbuild.kernel.opdesc import OpDesc
from opbuild.kernel.runtime_desc import runtime_desc

HALIDE = Path(sources_module.__file__).parent


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the Halide backend that digests are taken from, to be edited."""
    root = HALIDE.parents[1]
    copy = tmp_path / "opbuild"
    shutil.copytree(root, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(sources_module, "__file__", str(copy / "backend" / "halide" / "sources.py"))
    return copy / "backend" / "halide"


def digests() -> dict[str, str]:
    """Return the digest of every family whose definition is there."""
    there = {family for family, module in FAMILIES.items() if (HALIDE / "operators/compute" / f"{module}.py").exists()}
    descs = {family: OpDesc(op_types=("X",), family=family, inputs=(), outputs=()) for family in there}
    return {family: HalideCompiler().sources_digest(desc) for family, desc in [*descs.items(), ("", runtime_desc())]}


def edit(path: Path) -> None:
    """Add a comment to a source file."""
    path.write_text(path.read_text(encoding="utf-8") + "\n# edited\n", encoding="utf-8")


@pytest.mark.parametrize("part", ["compute", "schedule"])
def test_editing_one_family_changes_its_digest_alone(package: Path, part: str) -> None:
    """An edit of the softmax rebuilds softmaxes, not convolutions (F30, F46)."""
    before = digests()
    edit(package / "operators" / part / "softmax.py")
    after = digests()
    assert {family for family in before if before[family] != after[family]} == {"softmax"}


def test_editing_a_shared_module_changes_all_that_import_it(package: Path) -> None:
    """An edit of what every definition imports reaches every family, through any number of imports (F30)."""
    before = digests()
    edit(package.parents[1] / "kernel" / "opdesc.py")
    after = digests()
    assert all(before[family] != after[family] for family in before)


def test_a_module_that_appears_where_an_import_looks_for_one_is_noticed(package: Path) -> None:
    """A package that comes to stand where a plain name was imported from belongs to the sources (F33)."""
    before = digests()["softmax"]
    softmax = package / "operators" / "compute" / "softmax.py"
    imported = softmax.read_text(encoding="utf-8")
    softmax.write_text(imported + "\nfrom opbuild.kernel import shadow\n", encoding="utf-8")
    with_import = digests()["softmax"]
    (package.parents[1] / "kernel" / "shadow.py").write_text("", encoding="utf-8")
    assert len({before, with_import, digests()["softmax"]}) == 3


def test_digests_do_not_depend_on_where_the_package_lies(package: Path) -> None:
    """Two checkouts of the same sources have the same digests (F44)."""
    copied = digests()
    sources_module.__file__ = str(HALIDE / "sources.py")
    assert digests() == copied
