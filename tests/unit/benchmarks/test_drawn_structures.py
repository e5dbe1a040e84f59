"""Structures drawn from libraries: which are held out, and what is chosen from the others for packs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from kernels import choose, make
from kernels.drawn import architecture, as_traced, extents, for_packs, held_out, name_hash
from opbuild.families.catalogue import find
from opbuild.kernel.opdesc import OpDesc
from support.exported_structures import NAMES, write, write_all

LEVEL = "x86-64-v4"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of exports, half of them with an open extent."""
    write_all(tmp_path)
    return tmp_path


def test_an_architecture_is_held_out_with_all_its_parts_and_forms() -> None:
    """A pack that knew its float32 form would know most of its others; the hash is the same on every machine."""
    for name in NAMES:
        assert held_out(name) == held_out(architecture(name)) == held_out(f"{architecture(name)}/next/dynamo/float32")
    assert {held_out(name) for name in NAMES} == {True, False}
    assert held_out("transformers/flaubert/masked/dynamo/float32")


def test_an_architecture_that_the_pack_is_made_for_anyway_is_not_held_out() -> None:
    """It would be no stranger: by its hash alone it were held out."""
    assert name_hash("transformers/bert") % 2 == name_hash("transformers/flaubert") % 2 == 1
    assert not held_out("transformers/bert/masked/dynamo/float32")


def test_no_kernel_is_chosen_by_a_structure_that_is_held_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pack is judged by these; of all others each is looked at."""
    taken: list[Path] = []
    monkeypatch.setattr(choose, "ProcessPoolExecutor", lambda *_: InThisProcess(taken))
    assert choose.choose(for_packs(folder), (LEVEL,)) == {LEVEL: []}
    known = {name for name in NAMES if not held_out(name)}
    assert set(for_packs(folder)) == known
    assert set(taken) == {folder / f"{name}.onnx" for name in known}


def test_a_drawn_structure_is_planned_and_one_in_segments_is_left_out(folder: Path) -> None:
    """At the extents of its export and with open ones; kernels of segments are known when the network runs."""
    name = next(each for each in for_packs(folder) if each.endswith("int8-qdq"))
    kernels = [json.loads(each) for each in choose.needs(folder / f"{name}.onnx", (LEVEL,))[LEVEL]]
    assert ["Relu"] in [each["op_types"] for each in kernels]
    assert len({len(each["inputs"][0]["dims"]) for each in kernels}) == 1
    write(folder, name, "batch", op_type="NonZero")
    assert not choose.needs(folder / f"{name}.onnx", (LEVEL,))


def test_what_most_architectures_need_is_chosen_and_what_one_needs_is_not() -> None:
    """Parts and forms of one architecture count once, so that none of them fills the pack alone."""
    needed = {"a": {"p", "q", "r"}, "b": {"q", "r"}, "c": {"r", "s"}}
    assert choose.most_needed(needed) == ["r", "q"]
    assert choose.most_needed(needed, most=1) == ["r"]


@pytest.mark.parametrize("level", make.LEVELS)
def test_the_lists_hold_kernels_that_their_families_have(level: str) -> None:
    """A list that lowering does not agree with any more is made anew: make choose."""
    kernels = choose.chosen(level)
    assert len(kernels) > 100
    for desc in kernels:
        assert OpDesc.from_components(desc.components()) == desc
        assert find(desc.family).cost(desc) > 0


class InThisProcess:
    """A pool that notes what it is given and plans nothing."""

    def __init__(self, taken: list[Path]) -> None:
        self.taken = taken

    def __enter__(self) -> InThisProcess:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def map(self, _: object, paths: Iterable[Path]) -> list[choose.Needs]:
        """Note the paths, and return that each needs nothing."""
        self.taken += paths
        return [{} for _ in self.taken]


def test_an_open_extent_is_that_of_the_inputs_of_the_export(folder: Path) -> None:
    """As a fixed structure it has that extent."""
    name = next(each for each in NAMES if not held_out(each) and each.endswith("int8-qdq"))
    assert extents(folder / f"{name}.onnx") == {"batch": 3}
    (fixed,) = as_traced(folder / f"{name}.onnx")
    assert [each.dim_value for each in fixed.graph.input[0].type.tensor_type.shape.dim] == [3, 4]
