"""The nine light networks, bound; a campaign also computes those that are large."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import shape_inference

from opbuild.backend.host.evaluate import evaluate
from opbuild.errors import ShapeError
from opbuild.frontend.onnx_model import load_model
from opbuild.graph.passes.pipeline import simplify
from support import networks
from support.fuzzing import CAMPAIGN
from support.graph_runner import run_graph


def reference(model: onnx.ModelProto, feeds: dict[str, networks.Array]) -> list[networks.Array]:
    """Return ONNX Runtime's outputs, its own optimizations off."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    return list(ort.InferenceSession(model.SerializeToString(), options).run(None, feeds))


@pytest.mark.parametrize("name", networks.LIGHT)
def test_every_shape_of_a_light_network_is_what_onnx_infers(name: str) -> None:
    """Binding types each value as onnx's strict shape inference does."""
    model = onnx.load(networks.light_path(name))
    graph = load_model(networks.light_path(name)).bind({}, evaluate)
    inferred = shape_inference.infer_shapes(model, strict_mode=True, data_prop=True).graph
    compared = 0
    for value in [*inferred.value_info, *inferred.output]:
        shape = value.type.tensor_type.shape
        if value.name in graph.types and all(dim.HasField("dim_value") for dim in shape.dim):
            assert graph.types[value.name].shape == tuple(dim.dim_value for dim in shape.dim), value.name
            compared += 1
    assert compared >= len(graph.nodes) - 2


def test_constant_weights_of_a_light_network_take_no_memory() -> None:
    """A filled weight is a view of one number, not hundreds of megabytes."""
    graph = load_model(networks.light_path("vgg19")).bind({}, evaluate)
    optimized = simplify(graph, evaluate)
    weights = [optimized.constants[node.inputs[1]] for node in optimized.nodes if node.op_type in ("Conv", "Gemm")]
    assert sum(weight.nbytes for weight in weights) > 500_000_000
    assert not any(any(weight.strides) for weight in weights)


@pytest.mark.parametrize("name", ["squeezenet", "shufflenet", *(["inception_v2", "resnet50"] if CAMPAIGN else [])])
def test_an_optimized_network_computes_what_onnx_runtime_computes(name: str) -> None:
    """Folding batch normalization and cleaning up leaves the result within rounding."""
    model = networks.light(name)
    feeds = networks.random_input(model)
    graph = simplify(load_model(model).bind({}, evaluate), evaluate)
    (wanted,), (got,) = reference(model, feeds), run_graph(graph, feeds)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
    assert not any(node.op_type in ("BatchNormalization", "Sum", "Dropout", "Identity") for node in graph.nodes)


def test_steps_by_channel_before_a_convolution_become_one_normalization() -> None:
    """DenseNet's BatchNormalization, Mul and Add before Relu are one node, those after Conv none."""
    graph = load_model(networks.light_path("densenet121")).bind({}, evaluate)
    counts: dict[str, int] = {}
    for node in simplify(graph, evaluate).nodes:
        counts[node.op_type] = counts.get(node.op_type, 0) + 1
    assert counts["Conv"] == 121
    assert counts["BatchNormalization"] == 62
    assert not {"Mul", "Add", "Unsqueeze"} & set(counts)


@pytest.mark.parametrize("decomposed", [True, False])
def test_an_encoder_written_out_is_the_encoder_of_operators(decomposed: bool) -> None:
    """LayerNormalization and Gelu are found in what older exporters write, with ONNX Runtime's result."""
    model, feeds = networks.bert(decomposed=decomposed), networks.bert_input()
    graph = simplify(load_model(model).bind({}, evaluate), evaluate)
    kinds = [node.op_type for node in graph.nodes]
    assert (kinds.count("LayerNormalization"), kinds.count("Gelu")) == (5, 2)
    assert not {"Erf", "Pow", "ReduceMean", "Sqrt"} & set(kinds)
    (wanted,), (got,) = reference(model, feeds), run_graph(graph, feeds)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_a_network_runs_at_another_size_than_its_file_says() -> None:
    """``input_shapes`` wins over the file's fixed extents."""
    model = networks.resnet50_any_size(224, 224)
    graph = load_model(model).bind({"gpu_0/data_0": (1, 3, 192, 256)}, evaluate)
    assert graph.types[graph.outputs[0]].shape == (1, 1000)
    assert (1, 2048, 6, 8) in {kind.shape for kind in graph.types.values()}


def test_a_size_that_a_reshape_forbids_is_an_error_that_names_the_node() -> None:
    """ResNet-50's own Reshape and Gemm need 224x224; the error says where it ends."""
    with pytest.raises(ShapeError, match=r"node .*inputs are"):
        load_model(networks.light_path("resnet50")).bind({"gpu_0/data_0": (1, 3, 288, 320)}, evaluate)


@pytest.mark.slow
def test_the_edits_change_what_they_say() -> None:
    """The modified ResNet-50s that incremental builds are tested with are valid and differ in one layer."""
    base = networks.light("resnet50")
    feeds = networks.random_input(base)
    (original,) = reference(base, feeds)
    for changed in (networks.conv_to_5x5(base), networks.resnet50_with_channels(), networks.scale_weights(base)):
        (got,) = reference(changed, feeds)
        assert got.shape == original.shape
        assert not np.allclose(got, original, rtol=1e-3)
