"""The nine real network structures that the onnx package ships, end to end on Halide's kernels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import opbuild
from opbuild.backend.host.evaluate import evaluate
from opbuild.frontend.onnx_model import load_model
from opbuild.graph.passes.pipeline import optimize
from opbuild.kernel.opdesc import OpDesc
from opbuild.lowering.context import Options
from opbuild.lowering.lower import lower
from opbuild.platform.background import BACKGROUND_WRITER
from opbuild.target.host import host_level
from support import networks
from support.comparison import onnxruntime_output, relative_error
from support.fuzzing import CAMPAIGN
from support.processes import build_and_run

LARGE = ("bvlc_alexnet", "vgg19", "zfnet512")
"""Their 240 to 580 MB of weights take a minute: ``make campaign`` tries them too."""

pytestmark = pytest.mark.usefixtures("with_pack", "kept_objects")


@pytest.mark.parametrize("name", networks.LIGHT if CAMPAIGN else LARGE)
def test_a_light_network_gives_the_output_that_comes_with_it(name: str, shared_store: Path) -> None:
    """With its own weights, each network's output is within 1e-3 of the file that the onnx package ships.

    The others are compared with random weights, below; ``make campaign`` compares all in both ways.
    """
    net = opbuild.compile(networks.light_path(name), cache_path=shared_store)
    got = net(networks.light_input(name))
    assert relative_error(got, networks.expected_output(name)) < 1e-3
    assert not net.report.host


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in networks.LIGHT if name not in LARGE or CAMPAIGN])
def test_a_light_network_with_random_weights_agrees_with_onnxruntime_in_two_processes(
    name: str, shared_store: Path, tmp_path: Path
) -> None:
    """Logits agree to 1e-3 in two processes; the second compiles nothing and loads neither halide nor onnx."""
    model = networks.light(name)
    path = tmp_path / f"{name}.onnx"
    path.write_bytes(model.SerializeToString())
    feeds = networks.random_input(model)
    expected = onnxruntime_output(model, feeds)
    first = opbuild.compile(path, cache_path=shared_store).run(feeds)
    BACKGROUND_WRITER.finish()
    second = build_and_run(path, shared_store, feeds, OPBUILD_FORBID_COMPILE="1")
    (output,) = first.values()
    assert relative_error(output, expected) < 1e-3
    np.testing.assert_array_equal(output, second.outputs[0])
    assert second.built == []
    assert second.image
    assert second.loaded == []


def descriptors(name: str) -> set[OpDesc]:
    """Return the operators of a light network: equal ones have one key, so a store holds them once."""
    graph = load_model(networks.light(name, random_weights=False)).bind({}, evaluate)
    return set(lower(optimize(graph, evaluate), host_level(), Options()).descriptors())


def test_networks_share_operators_and_a_later_one_finds_most_of_its_own() -> None:
    """Of what ResNet-50 needs, three networks that were built before it left at least half."""
    left = set().union(*map(descriptors, ("squeezenet", "inception_v1", "inception_v2")))
    needed = descriptors("resnet50")
    assert len(needed & left) >= len(needed - left)
