"""Kernel families: a folder is a family, and has all three parts; a record says what its descriptors may hold."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

import pytest

import opbuild.families
from opbuild.families import catalogue
from opbuild.families.family import ANY_RANK, Family, VariantPart
from opbuild.graph.passes import fuse
from opbuild.kernel.opdesc import Dim, Operand
from opbuild.platform.records import replace

FOLDER = Path(opbuild.families.__file__).parent

PARTS = {"family.py": ("FAMILY",), "halide.py": ("define", "schedule"), "lowering.py": ("serves",)}
"""The files of a family, and the names that each must have."""


def missing(folder: Path) -> list[str]:
    """Return the parts that a family's folder lacks, in words."""
    found = []
    for file, names in PARTS.items():
        path = folder / file
        if not path.is_file():
            found.append(f"families/{folder.name} has no {file}")
        else:
            known = names_of(path)
            found += [f"families/{folder.name}/{file} has no {name}" for name in names if name not in known]
    return found


def names_of(path: Path) -> set[str]:
    """Return the names that a module assigns, defines or takes from another one at its top."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    targets = [target for node in body if isinstance(node, ast.Assign) for target in node.targets]
    assigned = {target.id for target in targets if isinstance(target, ast.Name)}
    imported = {alias.asname or alias.name for node in body if isinstance(node, ast.ImportFrom) for alias in node.names}
    return assigned | imported | {node.name for node in body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("name", catalogue.names())
def test_a_familys_folder_has_a_record_a_definition_a_schedule_and_its_lowering(name: str) -> None:
    """What one folder lacks is said at once, not when the first network needs it; its record has its name."""
    assert not missing(FOLDER / name)
    assert catalogue.find(name).name == name


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_is_left_out_is_named(tmp_path: Path, part: str) -> None:
    """A family without one of its three files, or with an empty one, is told by the name of both."""
    folder = tmp_path / "softmin"
    shutil.copytree(FOLDER / "softmax", folder, ignore=shutil.ignore_patterns("__pycache__"))
    assert not missing(folder)
    (folder / part).write_text("", encoding="utf-8")
    assert missing(folder) == [f"families/softmin/{part} has no {name}" for name in PARTS[part]]
    (folder / part).unlink()
    assert missing(folder) == [f"families/softmin has no {part}"]


def test_a_descriptor_holds_only_what_its_family_declares() -> None:
    """A misspelt attribute or part of a variant would be a key of its own that no definition reads."""
    family = Family("one", choose=dict, attributes=("kernel",), variant={"width": VariantPart()})
    assert family.desc(("One",), (), (), {"kernel": 3}, {"width": 4}).family == "one"
    with pytest.raises(AssertionError, match="one has no kernl"):
        family.desc(("One",), (), (), {"kernl": 3}, {"width": 4})
    with pytest.raises(AssertionError, match="one has no wdth"):
        family.desc(("One",), (), (), {"kernel": 3}, {"wdth": 4})


def test_a_part_that_only_some_variants_have_is_not_in_the_one_without_limits() -> None:
    """Else it would be another kernel than that of a variant which never had it, and compile to the same."""
    parts = {"width": VariantPart(least=1), "joined": VariantPart(is_extra=True)}
    family = Family("one", choose=dict, variant=parts)
    with_it = family.desc(("One",), (), (), {}, {"width": 4, "joined": True})
    assert family.without_limits(with_it) == family.desc(("One",), (), (), {}, {"width": 1})


def test_more_general_kernels_compute_wherever_one_does() -> None:
    """First one for more dimensions, if its operands all have the same, then the one without limits."""
    operands = tuple(Operand(name, "float32", (Dim(stride=1, min=16), Dim())) for name in "xy")
    family = Family("one", dict, variant={"width": VariantPart(least=1)}, any_rank=True, any_stride=True)
    desc = family.desc(("One",), operands[:1], operands[1:], {}, {"width": 16})
    wide, plain = family.more_general(desc)
    assert [len(each.dims) for each in wide.operands] == [ANY_RANK, ANY_RANK]
    assert wide.variant == desc.variant
    assert wide.operands[0].dims[:2] == desc.operands[0].dims
    assert plain == family.without_limits(desc) != wide
    assert replace(family, any_rank=False).more_general(desc) == (replace(family, any_rank=False).without_limits(desc),)
    dims = ((32, 1), (3, 32))
    for general in (wide, plain):
        assert general.problem([(*dims, *((1, 0),) * (ANY_RANK - 2))] * 2) is None


def test_a_name_that_is_no_family_loads_nothing() -> None:
    """Names come from files too: one with dots or of another module is no family, and knows nothing."""
    for name in ("catalogue", "..errors", "conv.halide", "", "runtime"):
        assert not catalogue.find(name).variant
    assert catalogue.with_implied({"family": ["winograd"]}) == {"family": ["winograd"]}
    assert catalogue.with_implied({"family": "winograd", "attrs": 3}) == {"family": "winograd", "attrs": 3}


def test_what_fusion_gives_an_epilogue_has_a_family_that_takes_one() -> None:
    """Fusion attaches epilogues in the type in which the families that take one compute, and to products of bytes."""
    families = [catalogue.find(name) for name in catalogue.names()]
    taking = [family for family in families if "epilogue" in family.attributes]
    assert all(fuse.EXACT_TYPE in family.types or family.types == ("uint8",) for family in taking)


def test_what_writes_where_it_reads_says_its_vectors_and_cannot_fail() -> None:
    """Updates in place look at the width of its variant, and come last, where nothing may fail."""
    found = [catalogue.find(name) for name in catalogue.names() if catalogue.find(name).overwrites]
    assert found
    assert all("width" in family.variant and family.is_certain for family in found)
