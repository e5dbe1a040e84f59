"""What the pack's structures cover: networks that somebody else wrote need no kernel besides."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
import pytest

from kernels.models import structures
from kernels.plan import descriptors, graphs_of
from networks import bert
from opbuild.kernel.opdesc import OpDesc
from opbuild.kernel.soc_version import parse_level
from opbuild.lowering.lower import lower

LEVEL = parse_level("x86-64-v4")


def kernels(models: Iterator[onnx.ModelProto]) -> set[OpDesc]:
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
