"""What the pack's structures cover: networks that somebody else wrote need no kernel besides."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import onnx
import pytest

from kernels.make import LEVELS, _plan_one
from kernels.models import open_structures, structures
from kernels.operations import OF_FRACTIONS, single_operations
from kernels.plan import descriptors, graphs_of, open_descriptors
from kernels.training import encoder_training, lenet_training
from kernels.transformer import Sizes
from opbuild.graph.types import Graph
from opbuild.kernel.key import make_key
from opbuild.kernel.opdesc import OpDesc
from opbuild.lowering.lower import lower
from opbuild.operations.table import OPERATIONS
from opbuild.store.pack import Pack, PackFile
from opbuild.target.host import parse_level
from opbuild.target.level import BY_NAME, Level
from opbuild.target.machine import Machine
from support.networks import bert

LEVEL = parse_level("x86-64-v4")


def kernels(models: Iterator[onnx.ModelProto | Graph]) -> set[OpDesc]:
    """Return the kernels that models need."""
    return {desc for graph in graphs_of(models) for desc in lower(graph, LEVEL).descriptors()}


@pytest.mark.parametrize(
    ("name", "size"),
    [("BERT 0", {"batch": 3, "seq": 50}), ("GPT-2 1, next", {"batch": 2, "past": 90}),
     ("MobileNet-v3", {"batch": 1, "height": 192, "width": 320})],
)  # fmt: skip
def test_what_the_first_call_of_a_structure_with_open_extents_asks_for_is_planned(
    name: str, size: dict[str, int]
) -> None:
    """At a size that is not listed: kernels that suit it, and those that any size needs."""
    there = {OpDesc.from_components(each) for own in (name, f"{name}, open") for each in plan_one(own, LEVEL)}
    opened = open_structures()[f"{name}, open"]
    asked = open_descriptors(opened._replace(sizes=(size,)), LEVEL)
    assert len(asked) > 10
    assert not set(asked) - there


def plan_one(name: str, level: Level) -> list[dict[str, Any]]:
    """Return the plan for a structure and a level."""
    return _plan_one(name, (level.name,))[level.name]


def test_a_structure_with_open_extents_is_the_same_network_as_that_of_fixed_ones() -> None:
    """Its operators are the same once shapes are worked out, and its inputs are declared open."""
    for name, structure in open_structures().items():
        if name.startswith(("BERT 2, masked", "Llama 0", "U-Net")):
            opened, fixed = structure.write(), next(structures()[name.removesuffix(", open")]())
            (graph,) = graphs_of(iter([_at(opened, structure.sizes[0])]))
            (other,) = graphs_of(iter([fixed]))
            assert set(lower(graph, LEVEL).descriptors()) == set(lower(other, LEVEL).descriptors())
            assert any(each.dim_param for value in opened.graph.input for each in value.type.tensor_type.shape.dim)


def _at(model: onnx.ModelProto, size: dict[str, int]) -> onnx.ModelProto:
    """Return a model of open extents with those of a size."""
    found = onnx.ModelProto.FromString(model.SerializeToString())
    for value in found.graph.input:
        for each in value.type.tensor_type.shape.dim:
            if each.dim_param:
                each.dim_value = size[each.dim_param]
    return found


@pytest.mark.parametrize("decomposed", [False, True])
def test_an_encoder_whose_scores_are_divided_is_covered(decomposed: bool) -> None:
    """As models were written before attention had a function of its own."""
    known = structures()
    needed = kernels(iter([bert(1, 768, 12, 128, decomposed=decomposed)]))
    there: set[OpDesc] = set()
    for name in ("BERT 0, scores divided", "BERT 1, scores divided", "Add, broadcast False"):
        there |= kernels(iter([next(known[name]())]))
    assert not needed - there


def test_attention_as_torch_has_it_is_there_beside_that_of_files() -> None:
    """Its kernels say what becomes of queries that see nothing; those of files do not, or say it otherwise."""
    found = descriptors(graphs_of(iter([next(structures()["BERT 0"]())])), LEVEL)
    kinds = {(desc.family, desc.attrs.get("zeros", "")) for desc in found if desc.family in ("attention", "softmax")}
    assert ("attention", "hidden") in kinds
    assert len({zeros for family, zeros in kinds if family == "attention"}) > 1


@pytest.mark.parametrize("name", ["GPT-2 1", "Llama 0"])
def test_tokens_that_look_at_those_before_them_have_attention_that_leaves_out_the_others(name: str) -> None:
    """Decoders that somebody else wrote hide later tokens; their kernels differ from those that read a mask."""
    found = descriptors(graphs_of(iter([next(structures()[name]())])), LEVEL)
    attentions = [desc for desc in found if desc.family == "attention"]
    assert attentions
    assert all("seen" in desc.attrs for desc in attentions)


def test_steps_of_training_have_the_kernels_of_backward_passes() -> None:
    """A structure of a backward pass has what forward passes have no use for, and an optimizer's step its formulas."""
    known = structures()
    families = {
        name: {desc.family for desc in kernels(iter([next(known[name]())]))}
        for name in ("training LeNet, forward", "training LeNet, backward", "training BERT, backward")
    }
    assert "conv_weight_gradient" in families["training LeNet, backward"] - families["training LeNet, forward"]
    assert {"scatter", "matmul", "reduce"} <= families["training BERT, backward"]
    formulas = {
        str(desc.attrs["expression"]) for desc in kernels(known["training Adam, decay of weight, first step"]())
    }
    assert any("sqrt" in each for each in formulas)


def test_kernels_of_training_do_not_depend_on_sizes_that_are_not_listed() -> None:
    """Other batches of images, and longer texts of more tokens, need nothing that the listed sizes do not need."""
    there: set[OpDesc] = set()
    for name, structure in structures().items():
        if name.startswith(("training LeNet", "training MiniLM", "training BERT, three products, masked")):
            there |= set(descriptors(graphs_of(structure()), LEVEL, between=False))
    steps = [*lenet_training((100, 28, 28)), *encoder_training(Sizes(3, 384), 384, joined=False, masked=True)]
    needed = {desc for graph in graphs_of(iter(steps)) for desc in lower(graph, LEVEL).descriptors()}
    assert not needed - there


@pytest.mark.parametrize("level", LEVELS)
def test_the_pack_has_a_kernel_of_each_single_operation(level: str) -> None:
    """By which any fused expression is computed until it is compiled: of float32, integers, and between all types."""
    pack = Pack(level)
    file = pack.file("elementwise")
    assert isinstance(file, PackFile)
    there = {OpDesc.from_components(parts) for parts in file.descriptors()}
    wanted = single_operations(Machine.of(BY_NAME[level]))
    assert not wanted.keys() - there
    computed = {(desc.attrs["expression"][0], desc.inputs[-1].dtype) for desc in wanted}
    for dtype, kinds in (("float32", ("floats", "numbers", "any")), ("int64", ("integers", "numbers", "any"))):
        names = {name for name, each in OPERATIONS.items() if each.kinds in kinds}
        assert {(name, dtype) for name in names - {*(OF_FRACTIONS if dtype == "int64" else ())}} <= computed


@pytest.mark.parametrize("level", LEVELS)
def test_no_two_kernels_of_the_pack_are_compiled_from_one_pipeline(level: str) -> None:
    """Parts of a descriptor beyond what decides the code would be a kernel more to build, to ship and to store.

    But for few: a square is written as a power, too, a truth value is read as a byte is, and limits of gathers.
    """
    pack = Pack(level)
    found: defaultdict[str, set[tuple[str, ...]]] = defaultdict(set)
    count = 0
    for file in map(pack.file, pack.families()):
        assert isinstance(file, PackFile)
        for parts in file.descriptors():
            desc = OpDesc.from_components(parts)
            pipeline = file.pipeline(make_key(desc, BY_NAME[level], file.compiler, file.sources.code))
            found[pipeline or ""].add((desc.canonical(), *desc.op_types))
            count += 1
    assert count > 1000
    assert sum(len(each) - 1 for each in found.values()) <= count / 50
