"""Random Scan nodes against ONNX Runtime: all operator sets, axes, directions, states, batches of sequences.

``OPBUILD_FUZZ=5000`` tries so many.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import opbuild
from generated.random_scans import OPSETS, Array, RandomScan
from opbuild.config import Config
from support.fuzzing import CAMPAIGN, check_seeds
from support.tiers import spans
from support.walk_runner import WalkRunner

COMPILED = CAMPAIGN // 20 or 2
LENGTHS = (3, 1, 6)

pytestmark = pytest.mark.timeout(14400 if CAMPAIGN else 300)


def expected(scan: RandomScan, feeds: dict[str, Array]) -> list[Array]:
    """Return the outputs of ONNX Runtime."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(scan.model.SerializeToString(), options, ["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def compare(got: list[Array], wanted: list[Array], where: str) -> None:
    """All numbers are whole: results are equal, not only close."""
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(one, other, err_msg=where, strict=True)


@pytest.mark.parametrize("seeds", spans(60, 25))
def test_scans_compute_what_onnx_runtime_does(seeds: range) -> None:
    """Node by node: how inputs are sliced, states carried and results put together."""

    def one(seed: int) -> str:
        scan = RandomScan(seed)
        runner = WalkRunner(scan.model)
        for length in LENGTHS:
            feeds = scan.feeds(seed + length, length)
            compare(runner(**feeds), expected(scan, feeds), f"scan {seed}, length {length}")
        assert runner.breaks[0] == "repeat Scan"
        return f"right in operator set {scan.opset}"

    assert len(check_seeds("scans", one, seeds).outcomes) == len({*OPSETS})


@pytest.mark.parametrize("seed", range(COMPILED))
def test_scans_are_programs_in_images_and_offline_models(seed: int, shared_store: Path, tmp_path: Path) -> None:
    """Bodies have kernels, nothing is computed on the host, at any length; also started from the images, and in .om."""
    scan = RandomScan(seed + 20)
    for _ in range(2):
        net = opbuild.compile(scan.model, cache_path=tmp_path)
        for length in LENGTHS:
            feeds = scan.feeds(seed + length, length)
            compare(net.run(None, feeds), expected(scan, feeds), f"scan {seed + 20}, length {length}")
        assert not net.report.host
        assert net.report.breaks == ("Scan scan",)
    assert net.report.built == 0
    feeds = scan.feeds(seed, 5)
    config = Config(cache_path=shared_store, workers=1, num_threads=1)
    shapes = {name: each.shape for name, each in feeds.items()}
    offline = opbuild.load(opbuild.export(scan.model, tmp_path / "scan", input_shapes=shapes, config=config))
    compare(offline.run(None, feeds), expected(scan, feeds), f"scan {seed + 20} offline")
    assert not offline.report.host
