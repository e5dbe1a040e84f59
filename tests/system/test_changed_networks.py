"""What is built again when a network changes: only what no network needed before."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import opbuild
from support import networks
from support.comparison import onnxruntime_output, relative_error

pytestmark = pytest.mark.usefixtures("kept_objects")


@pytest.fixture(scope="module")
def resnet50() -> onnx.ModelProto:
    """ResNet-50, as all changes find it."""
    return networks.light("resnet50")


@pytest.fixture(scope="module")
def densenet121() -> onnx.ModelProto:
    """DenseNet-121, likewise."""
    return networks.light("densenet121")


@pytest.fixture(scope="module")
def cache(shared_store: Path, resnet50: onnx.ModelProto, densenet121: onnx.ModelProto) -> Path:
    """A store that holds the operators of ResNet-50 and DenseNet-121 at 224 x 224."""
    opbuild.compile(resnet50, cache_path=shared_store)
    opbuild.compile(densenet121, cache_path=shared_store)
    return shared_store


def check(model: onnx.ModelProto, net: opbuild.Network) -> None:
    """Compare a network with ONNX Runtime on random input."""
    feeds = networks.random_input(model)
    assert relative_error(net.run(feeds)[net.outputs[0].name], onnxruntime_output(model, feeds)) < 1e-3


@pytest.mark.slow
def test_a_5x5_kernel_in_place_of_a_3x3_builds_that_operator_alone(cache: Path, resnet50: onnx.ModelProto) -> None:
    """One 3 x 3 Conv made 5 x 5: built only for it, the rest reused."""
    model = networks.conv_to_5x5(resnet50)
    net = opbuild.compile(model, cache_path=cache)
    built = [operator for operator in net.report.operators if operator.status == "built"]
    assert len(built) == 1
    types = {node.name: node.op_type for node in model.graph.node}
    assert [types[name] for name in built[0].nodes] == ["Conv", "BatchNormalization", "Relu"]
    check(model, net)


@pytest.mark.slow
def test_other_weights_build_nothing(cache: Path, resnet50: onnx.ModelProto) -> None:
    """Weights are arguments of the kernels."""
    model = networks.scale_weights(resnet50)
    net = opbuild.compile(model, cache_path=cache, forbid_compile=True)
    assert net.report.built == 0
    check(model, net)


@pytest.mark.slow
def test_another_number_of_channels_builds_nothing_or_names_the_variant(cache: Path) -> None:
    """Channels are read from the buffers; what is built all the same is a variant, and its reason says so."""
    model = networks.resnet50_with_channels(96)
    net = opbuild.compile(model, cache_path=cache)
    assert all("variant" in operator.reason for operator in net.report.operators if operator.status == "built")
    check(model, net)


@pytest.mark.slow
def test_resnet50_at_192x256_builds_nothing_or_names_the_variant(cache: Path) -> None:
    """Extents are read from the buffers; what is built all the same is a variant or other strides, and says so."""
    base = networks.resnet50_any_size(224, 224)
    opbuild.compile(base, cache_path=cache)
    model = networks.with_input_shape(base, (1, 3, 192, 256))
    net = opbuild.compile(model, cache_path=cache)
    reasons = [operator.reason for operator in net.report.operators if operator.status == "built"]
    assert all("variant" in each or "inputs[0].dims" in each for each in reasons), reasons
    check(model, net)


@pytest.mark.slow
def test_densenet121_at_288x224_after_224x224_builds_nothing(cache: Path, densenet121: onnx.ModelProto) -> None:
    """A network compiled at one size runs at another: the signature is bound, every operator is there."""
    model = networks.with_input_shape(densenet121, (1, 3, 288, 224))
    net = opbuild.compile(model, cache_path=cache, forbid_compile=True)
    assert net.report.built == 0
    check(model, net)


@pytest.mark.slow
def test_one_network_object_takes_a_new_input_size(cache: Path, densenet121: onnx.ModelProto) -> None:
    """A size that the caller left open is bound at the first call that has it."""
    net = opbuild.compile(densenet121, input_shapes={"data_0": (1, 3, 224, 224)}, cache_path=cache)
    results = []
    for height, width in ((224, 224), (288, 224)):
        model = networks.with_input_shape(densenet121, (1, 3, height, width))
        feeds = networks.random_input(model)
        got = net(feeds["data_0"])
        assert relative_error(np.asarray(got), onnxruntime_output(model, feeds)) < 1e-3
        results.append((feeds["data_0"], got))
    x, expected = results[0]
    np.testing.assert_array_equal(net(x), expected)
