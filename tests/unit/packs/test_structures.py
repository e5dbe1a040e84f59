"""What the pack's structures cover: networks that somebody else wrote need no kernel besides."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import onnx
import pytest

from kernels.make import LEVELS
from kernels.models import structures
from kernels.plan import descriptors, graphs_of
from kernels.training import encoder_training, lenet_training
from kernels.transformer import Sizes
from opbuild.graph.types import Graph
from opbuild.kernel.key import make_key
from opbuild.kernel.opdesc import OpDesc
from opbuild.lowering.lower import lower
from opbuild.store.pack import Pack
from opbuild.store.pack_file import PackFile
from opbuild.target.level import BY_NAME
from opbuild.target.soc_version import parse_level
from support.networks import bert

LEVEL = parse_level("x86-64-v4")


def kernels(models: Iterator[onnx.ModelProto | Graph]) -> set[OpDesc]:
    """Return the kernels that models need."""
    return {desc for graph in graphs_of(models) for desc in lower(graph, LEVEL).descriptors()}


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
def test_no_two_kernels_of_the_pack_are_compiled_from_one_pipeline(level: str) -> None:
    """What a descriptor says beyond what decides the code is a kernel more to build, to ship and to store.

    But for names that people look for: a square is written as a power, too.
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
    alike = [sorted(op_types for _, *op_types in each) for each in found.values() if len(each) > 1]
    assert all(each == [["Pow"], ["Square"]] for each in alike)
