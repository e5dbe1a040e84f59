# ruff: noqa: F811 - a fixture is imported
"""Layers: their parameters' names and their results are those that MindSpore 2.10 gave, in both modes.

``tests/data/mindspore_layers.npz`` holds what MindSpore gave: the parity tests' worker writes it with ``layers``.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import opbuild.mindspore as ms
from opbuild.mindspore import Tensor, mint, nn, ops
from support.mindspore_calls import differences, flat
from support.mindspore_host import graphs  # noqa: F401 - a fixture
from support.mindspore_worker import Results, all_layers, layer

TESTS = Path(__file__).resolve().parents[2]


NAMES = {"ms": ms, "mint": mint, "nn": nn, "ops": ops, "np": np, "Tensor": Tensor}
EXPECTED = Results(TESTS / "data" / "mindspore_layers.npz")


@pytest.mark.parametrize("mode", [ms.PYNATIVE_MODE, ms.GRAPH_MODE])
def test_layers_give_what_mindspore_gave(graphs, mode):
    """The same parameters give the same results; a network is one graph in GRAPH_MODE."""
    ms.set_context(mode=mode)
    problems = []
    for case, given in all_layers().items():
        graphs.clear()
        found = flat(layer(case, given, NAMES), Tensor)
        if text := differences(EXPECTED.leaves(case), found):
            problems.append(f"{case}: {text}")
        if mode == ms.GRAPH_MODE and "  # " not in case:
            assert len(graphs) == 1, case
    assert not problems, "\n".join(problems)


def test_what_mindspore_gave_is_kept_for_every_layer():
    """A case without a stored result would be compared with nothing."""
    assert set(all_layers()) == set(EXPECTED.said)
    assert not [case for case, said in EXPECTED.said.items() if isinstance(said, dict)]
