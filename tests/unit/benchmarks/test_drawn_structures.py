"""Structures drawn from libraries: which are held out, and which the maker of packs takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernels import make
from kernels.drawn import architecture, extents, for_packs, held_out, name_hash
from kernels.models import open_structures, structures
from support.exported_structures import NAMES, write, write_all


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


def test_the_maker_of_packs_never_takes_a_structure_that_is_held_out(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither at the extents of its export nor with open ones; of all that may be known it takes each."""
    taken: set[str] = set()
    monkeypatch.setattr(make, "of_every_network", lambda _: {})
    monkeypatch.setattr(make, "ProcessPoolExecutor", lambda *_: InThisProcess(taken))
    make.planned(("x86-64-v4",), 1, make.Console(quiet=True), folder)
    known = {name for name in NAMES if not held_out(name)}
    assert {name for name in taken if name.startswith("transformers/") and not name.endswith("open")} == known
    assert {name for name in taken if name.startswith("transformers/") and name.endswith("open")} == {
        f"{name}, open" for name in known if name.endswith("int8-qdq")
    }
    assert set(for_packs(folder)) == known


def test_a_drawn_structure_is_planned_and_one_in_segments_is_left_out(folder: Path) -> None:
    """Kernels of segments are known when the network runs; a maker goes on with the others."""
    name = next(each for each in for_packs(folder) if each.endswith("int8-qdq"))
    for each in (name, f"{name}, open"):
        (planned,) = make._plan_one(each, ("x86-64-v4",), folder).values()
        assert ["Relu"] in [desc["op_types"] for desc in planned]
    write(folder, name, "batch", op_type="NonZero")
    for each in (name, f"{name}, open"):
        assert not make._plan_one(each, ("x86-64-v4",), folder)


class InThisProcess:
    """A pool that notes what it is given and plans nothing."""

    def __init__(self, taken: set[str]) -> None:
        self.taken = taken

    def __enter__(self) -> InThisProcess:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def map(self, _: object, names: list[str]) -> list[dict[str, list[object]]]:
        """Note the names, and return that each needs nothing."""
        self.taken.update(names)
        return [{} for _ in names]


def test_an_open_extent_is_that_of_the_inputs_of_the_export(folder: Path) -> None:
    """As a fixed structure it has that extent, as an open one the extent is named."""
    name = next(each for each in NAMES if not held_out(each) and each.endswith("int8-qdq"))
    assert extents(folder / f"{name}.onnx") == {"batch": 3}
    (fixed,) = structures(folder)[name]()
    assert [each.dim_value for each in fixed.graph.input[0].type.tensor_type.shape.dim] == [3, 4]
    opened = open_structures(folder)[f"{name}, open"]
    assert opened.sizes == ({"batch": 3},)
    assert opened.write().graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
