"""The nine real network structures that the onnx package ships, end to end on Halide's kernels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import networks
import opbuild
from comparison import onnxruntime_output, relative_error
from fuzzing import CAMPAIGN
from processes import build_and_run

LARGE = ("bvlc_alexnet", "vgg19", "zfnet512")
"""Their 240 to 580 MB of weights take a minute: ``make campaign`` tries them too."""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One store for all networks of this module, as a user would have."""
    return tmp_path_factory.mktemp("light")


@pytest.mark.parametrize("name", networks.LIGHT if CAMPAIGN else LARGE)
def test_a_light_network_gives_the_output_that_comes_with_it(name: str, cache: Path) -> None:
    """With its own weights, each network's output is within 1e-3 of the file that the onnx package ships.

    The others are compared with random weights, below; ``make campaign`` compares all in both ways.
    """
    net = opbuild.compile(networks.light_path(name), cache_path=cache)
    got = net(networks.light_input(name))
    assert relative_error(got, networks.expected_output(name)) < 1e-3
    assert not net.report.host


@pytest.mark.parametrize("name", [name for name in networks.LIGHT if name not in LARGE or CAMPAIGN])
def test_a_light_network_with_random_weights_agrees_with_onnxruntime_in_two_processes(
    name: str, cache: Path, tmp_path: Path
) -> None:
    """Logits agree to 1e-3 in two processes; the second compiles nothing and loads neither halide nor onnx."""
    model = networks.light(name)
    path = tmp_path / f"{name}.onnx"
    path.write_bytes(model.SerializeToString())
    feeds = networks.random_input(model)
    expected = onnxruntime_output(model, feeds)
    first = build_and_run(path, cache, feeds)
    second = build_and_run(path, cache, feeds, OPBUILD_FORBID_COMPILE="1")
    assert relative_error(first.outputs[0], expected) < 1e-3
    np.testing.assert_array_equal(first.outputs[0], second.outputs[0])
    assert second.built == []
    assert second.image
    assert second.loaded == []


def test_networks_share_operators_and_a_later_one_finds_most_of_its_own(tmp_path: Path) -> None:
    """In a store that three networks filled, ResNet-50 finds at least half of its operators."""
    for name in ("squeezenet", "inception_v1", "densenet121"):
        opbuild.compile(networks.light_path(name), cache_path=tmp_path)
    report = opbuild.compile(networks.light_path("resnet50"), cache_path=tmp_path).report
    assert report.reused >= report.built
    assert all(operator.reason for operator in report.operators)
