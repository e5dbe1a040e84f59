"""Variants that a database may choose of recurrences, reductions, pools, expressions and few bits compute the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import opbuild
from opbuild.config import Config
from opbuild.lowering.context import Options
from opbuild.lowering.lower import lower
from opbuild.lowering.tuned import Tuned
from opbuild.pipeline.setup import set_up
from opbuild.target.host import host_level
from opbuild.tuning import tuner
from opbuild.tuning.trial import FixedAnswers
from support.tuned_records import record, remember

pytestmark = pytest.mark.usefixtures("kept_objects")

MOST = 4
"""Candidates of each query that are built here."""

DRAW = np.random.default_rng(0)


def weights(*shape: int) -> np.ndarray:
    """Return small random weights."""
    return (DRAW.standard_normal(shape) * 0.2).astype(np.float32)


def few_bits(bits: int, block: int, k: int, n: int) -> list[np.ndarray]:
    """Return packed weights and their scales."""
    packed = DRAW.integers(0, 256, (n, k // block, block * bits // 8)).astype(np.uint8)
    return [packed, np.abs(weights(n * (k // block))) + np.float32(0.01)]


CASES = {
    "lstm": ("LSTM", (5, 9, 12), [weights(1, 192, 12), weights(1, 192, 48)], {"hidden_size": 48}),
    "gru": ("GRU", (5, 1, 12), [weights(1, 96, 12), weights(1, 96, 32)], {"hidden_size": 32, "linear_before_reset": 1}),
    "rows": ("ReduceSum", (7, 133), [np.array([1])], {"keepdims": 0}),
    "columns": ("ReduceMean", (7, 133), [], {"axes": [0]}),
    "pool": ("GlobalAveragePool", (1, 20, 7, 11), [], {}),
    "expression": ("Exp", (7, 133), [], {}),
    "few bits": ("MatMulNBits", (5, 64), few_bits(4, 32, 64, 96), {"K": 64, "N": 96, "bits": 4, "block_size": 32}),
}
FAMILIES = {"lstm": "recurrent", "gru": "recurrent", "rows": "reduce", "columns": "reduce", "pool": "global_pool",
            "expression": "elementwise", "few bits": "matmul_nbits"}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_each_candidate_computes_what_the_default_does(case: str, tmp_path: Path) -> None:
    """Another tile or width under another name, and results that differ by rounding alone."""
    op_type, shape, constants, attrs = CASES[case]
    domain = "com.microsoft" if op_type == "MatMulNBits" else ""
    names = [f"c{place}" for place in range(len(constants))]
    graph = helper.make_graph(
        [helper.make_node(op_type, ["x", *names], ["y"], name="node", domain=domain, **attrs)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(each, name) for each, name in zip(constants, names, strict=True)],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    path, x = tmp_path / "m.onnx", DRAW.standard_normal(shape).astype(np.float32)
    onnx.save(model, path)

    def built(cache: Path) -> tuple[list[str], np.ndarray]:
        net = opbuild.compile(path, cache_path=cache, num_threads=2)
        return [each.name for each in net.report.operators], next(iter(net.run({"x": x}).values()))

    usual, expected = built(tmp_path / "cache")
    setup = set_up(Config.from_environment(op_compiler_cache_mode="disable"), None, None)
    asked = Tuned(FixedAnswers({}))
    lower(tuner._graph(model.SerializeToString(), setup, {})[0], host_level(), Options(chooser=asked))
    tried = 0
    for query, found in asked.queries.items():
        if query.family != FAMILIES[case]:
            continue
        for candidate in [each for each in found.candidates if each not in (found.default, None)][:MOST]:
            remember(record(query, found.default, candidate), cache_path=tmp_path / "cache")
            used, values = built(tmp_path / "cache")
            assert used != usual
            np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-5)
            tried += 1
    assert tried
