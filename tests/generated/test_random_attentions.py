"""Random nodes of ONNX's Attention give what its documentation says, whatever lies behind the keys that are there.

``OPBUILD_FUZZ=5000`` tries so many.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from generated.random_attentions import Array, RandomAttention, random_attention
from opbuild.api import compile_model
from opbuild.backend.host.evaluate import evaluate
from opbuild.config import Config
from opbuild.frontend.onnx_model import load_model
from support.fuzzing import CAMPAIGN, INPUTS, check_seeds
from support.graph_runner import run_graph
from support.tiers import spans

pytestmark = [pytest.mark.timeout(14400)] if CAMPAIGN else []


def compare(drawn: RandomAttention, found: dict[str, Array]) -> None:
    """Compare results where they are told."""
    for name, wanted in drawn.expected.items():
        got, told = found[name].astype(np.float64), ~np.isnan(wanted)
        if name.startswith("present"):
            np.testing.assert_array_equal(got, wanted, err_msg=name)
        np.testing.assert_allclose(got[told], wanted[told], rtol=drawn.tolerance, atol=drawn.tolerance, err_msg=name)


def test_what_attention_is_written_with_computes_it() -> None:
    """Every form is written with other operators: heads that share keys, masks, windows, lengths and all outputs."""

    def one(seed: int) -> None:
        drawn = random_attention(np.random.default_rng(seed))
        graph = load_model(drawn.model).bind({}, evaluate)
        assert "Attention" not in {node.op_type for node in graph.nodes}
        with np.errstate(all="ignore"):
            found = run_graph(graph, drawn.feeds)
        compare(drawn, dict(zip(graph.outputs, found, strict=True)))

    check_seeds("attentions written", one, 2 * INPUTS, processes=0)


@pytest.mark.parametrize("seeds", spans(60, 12))
def test_kernels_compute_attention(seeds: range, tmp_path: Path) -> None:
    """Whether it is one kernel or several, NaN and infinities behind the keys that are there do not show."""
    config = replace(Config.from_environment(cache_path=tmp_path, num_threads=2), first="build")

    def one(seed: int) -> None:
        drawn = random_attention(np.random.default_rng(seed))
        network = compile_model(drawn.model.SerializeToString(), config)
        compare(drawn, network.run(drawn.feeds))

    check_seeds("attentions", one, seeds)
