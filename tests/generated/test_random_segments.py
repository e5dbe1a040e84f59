"""Random networks in segments against ONNX Runtime: broken at any place, nested, with empty matrices on the way.

``OPBUILD_FUZZ=5000`` tries so many networks.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, RuntimeException

import opbuild
from generated.random_segments import Array, RandomSegments
from opbuild.api import compile_model
from opbuild.config import Config
from support.fuzzing import CAMPAIGN, check_seeds
from support.walk_runner import WalkRunner

NETWORKS, CALLS, COMPILED = CAMPAIGN or 40, 3, CAMPAIGN // 20 or 2

PATIENCE = 300.0
"""Seconds in which the kernels of a network are surely compiled."""

pytestmark = [pytest.mark.timeout(14400)] if CAMPAIGN else []


def expected(network: RandomSegments, feeds: dict[str, Array]) -> list[Array] | None:
    """Return the outputs of ONNX Runtime; None if it refuses what a random shape asks of it."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(network.model.SerializeToString(), options, ["CPUExecutionProvider"])
    try:
        return list(session.run(None, feeds))
    except (Fail, RuntimeException):
        return None


def compare(got: list[Array], wanted: list[Array], where: str) -> None:
    """All numbers are whole: results are equal, not only close."""
    assert len(got) == len(wanted)
    for one, other in zip(got, wanted, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape), where
        np.testing.assert_array_equal(one, other, err_msg=where)


@pytest.mark.slow
def test_networks_broken_anywhere_compute_what_onnx_runtime_does() -> None:
    """On the host, node by node: the breaks and the driver are as where there are kernels."""
    breaks: Counter[str] = Counter()
    compared: Counter[int] = Counter()

    def one(seed: int) -> None:
        network = RandomSegments(seed)
        runner = WalkRunner(network.model)
        for call in range(CALLS):
            feeds = network.feeds(seed * CALLS + call)
            wanted = expected(network, feeds)
            if wanted is not None:
                compare(runner(**feeds), wanted, f"network {seed}, call {call}")
                compared[seed] += 1
        breaks.update(runner.breaks)

    check_seeds("networks in segments", one, NETWORKS, processes=0)
    assert compared.total() > 0.8 * NETWORKS * CALLS
    kinds = {"values", "data", "repeat", "end"}
    assert {each.split()[0] for each in breaks} == kinds, breaks
    assert {"values If", "values Slice", "data NonZero", "data Compress", "repeat Loop", "repeat Scan"} <= {*breaks}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(COMPILED))
def test_networks_in_segments_with_kernels_compute_what_onnx_runtime_does(seed: int, tmp_path: Path) -> None:
    """Built, and started from the images again."""
    network = RandomSegments(1003 + seed)
    for _ in range(2):
        net = opbuild.compile(network.model, cache_path=tmp_path)
        for call in range(2):
            feeds = network.feeds(seed * CALLS + call)
            wanted = expected(network, feeds)
            if wanted is not None:
                compare(net.run(None, feeds), wanted, f"network {1003 + seed}, call {call}")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(COMPILED))
def test_networks_in_segments_compute_the_same_before_and_while_and_after_their_kernels_are_compiled(
    seed: int, tmp_path: Path
) -> None:
    """A segment that was replaced alone gave those behind it other values: SSD300 in 8 bits ended with an error."""
    network, calls = RandomSegments(2003 + seed), 0
    config = Config.from_environment(cache_path=tmp_path, num_threads=2)
    net = compile_model(network.model, replace(config, first="answer", uses_pack=True))
    latest, complete = time.monotonic() + PATIENCE, 0
    while complete < CALLS and time.monotonic() < latest:
        feeds = network.feeds(seed * CALLS + calls % (2 * CALLS))
        wanted = expected(network, feeds)
        if wanted is not None:
            compare(net.run(None, feeds), wanted, f"network {2003 + seed}, call {calls}")
        calls, complete = calls + 1, 0 if net.report.pending else complete + 1
    assert complete == CALLS


@pytest.mark.parametrize("seed", range(COMPILED))
def test_offline_models_in_segments_compute_what_onnx_runtime_does(
    seed: int, shared_store: Path, tmp_path: Path
) -> None:
    """With the kernels that made-up values led to: only what stands at breaks is evaluated on the host."""
    network = RandomSegments(seed + 8)
    first = network.feeds(seed * CALLS)
    shapes = {name: array.shape for name, array in first.items()}
    config = Config(cache_path=shared_store, workers=1, num_threads=1)
    net = opbuild.load(opbuild.export(network.model, tmp_path / "net", input_shapes=shapes, config=config))
    for call in range(CALLS):
        feeds = network.feeds(seed * CALLS + call)
        wanted = expected(network, feeds) if {name: each.shape for name, each in feeds.items()} == shapes else None
        if wanted is not None:
            compare(net.run(None, feeds), wanted, f"network {seed + 8}, call {call}")
    assert {*net.report.host} <= {"Compress", "NonZero", "Unique"}
