"""One offline model for any size in ranges, run where neither halide nor onnx can be imported."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import opbuild
from opbuild.config import Config
from opbuild.errors import BuildError, OptionError, ShapeError
from opbuild.frontend.models.sizes import make_sizes
from opbuild.offline.build import export
from opbuild.offline.file import read_offline
from support import networks
from support.comparison import onnxruntime_output, onnxruntime_outputs, relative_error
from support.fuzzing import CAMPAIGN
from support.processes import WITHOUT_COMPILER, environment

pytestmark = pytest.mark.usefixtures("kept_objects")

Ranges = Sequence[int | tuple[int, int]]

_RUN = (
    WITHOUT_COMPILER
    + """
import json
import numpy as np, opbuild
net = opbuild.load(sys.argv[1])
feeds = np.load(sys.argv[2])
found, host = {}, {}
for name in feeds:
    found[name] = net(feeds[name])
    host.update(net.report.host)
np.savez(sys.argv[3], **found)
print(json.dumps(host))
"""
)

IMAGES: Ranges = ((1, 4), 3, (1, 640), (1, 640))
SIZES = ((1, 3, 32, 32), (1, 3, 224, 224), (2, 3, 97, 131), (1, 3, 320, 51), (4, 3, 40, 40), (3, 3, 33, 250))


@pytest.fixture(scope="module")
def config(shared_store: Path) -> Config:
    """Settings for one store for all tests; with one thread there are half as many variants, a campaign has two."""
    return Config(cache_path=shared_store, workers=2, num_threads=2 if CAMPAIGN else 1, uses_pack=True)


def opened(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model with one input whose declared extents are open, but for its channels."""
    known = {tensor.name for tensor in model.graph.initializer}
    (value,) = (each for each in model.graph.input if each.name not in known)
    for axis, dim in enumerate(value.type.tensor_type.shape.dim):
        if axis != 1:
            dim.dim_param = f"d{axis}"
    del model.graph.value_info[:]
    for output in model.graph.output:
        for axis, dim in enumerate(output.type.tensor_type.shape.dim):
            dim.dim_param = f"o{axis}"
    return model


def graph_model(
    nodes: Sequence[onnx.NodeProto], shape: Sequence[int | str], constants: dict[str, networks.Array]
) -> onnx.ModelProto:
    """Return a model from ``x`` to ``y``."""
    graph = helper.make_graph(
        list(nodes),
        "made",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def weights(*shape: int) -> networks.Array:
    """Return small normally distributed weights."""
    return (np.random.default_rng(sum(shape)).standard_normal(shape) / 8).astype(np.float32)


def perceptron() -> onnx.ModelProto:
    """Two layers over rows whose number is open, a shape that is computed, and attention between the rows."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["rows"]),
        helper.make_node("Gemm", ["x", "w1", "b1"], ["a"]),
        helper.make_node("Gelu", ["a"], ["b"]),
        helper.make_node("Concat", ["rows", "four", "minus"], ["heads"], axis=0),
        helper.make_node("Reshape", ["b", "heads"], ["c"]),
        helper.make_node("Transpose", ["c"], ["d"], perm=[1, 0, 2]),
        helper.make_node("Transpose", ["c"], ["e"], perm=[1, 2, 0]),
        helper.make_node("MatMul", ["d", "e"], ["f"]),
        helper.make_node("Softmax", ["f"], ["g"], axis=-1),
        helper.make_node("MatMul", ["g", "d"], ["h"]),
        helper.make_node("ReduceMean", ["h", "zero"], ["i"], keepdims=0),
        helper.make_node("LayerNormalization", ["i", "scale"], ["y"]),
    ]
    constants = {
        "w1": weights(24, 64), "b1": weights(64), "scale": weights(16), "zero": np.array([0]), "four": np.array([4]),
        "minus": np.array([-1]),
    }  # fmt: skip
    return graph_model(nodes, ["n", 24], constants)


def convolutional() -> onnx.ModelProto:
    """Every kind of convolution, padding that depends on the size, and a resize."""
    nodes = [
        helper.make_node("Conv", ["x", "first"], ["a"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "depth"], ["c"], group=24, auto_pad="SAME_UPPER", strides=[2, 2]),
        helper.make_node("Conv", ["c", "square"], ["d"], pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["d", "point"], ["p"]),
        helper.make_node("Add", ["c", "p"], ["e"]),
        helper.make_node("MaxPool", ["e"], ["f"], kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_LOWER"),
        helper.make_node("ConvTranspose", ["f", "up"], ["g"], strides=[2, 2]),
        helper.make_node("Resize", ["g", "", "scales"], ["h"], mode="linear"),
        helper.make_node("Concat", ["h", "h2"], ["i"], axis=1),
        helper.make_node("Sigmoid", ["i"], ["y"]),
    ]
    nodes.insert(9, helper.make_node("Mul", ["h", "h"], ["h2"]))
    constants = {
        "first": weights(24, 3, 3, 3), "depth": weights(24, 1, 5, 5), "square": weights(24, 24, 3, 3),
        "point": weights(24, 24, 1, 1),
        "up": weights(24, 8, 2, 2), "scales": np.float32([1, 1, 2, 2]),
    }  # fmt: skip
    return graph_model(nodes, ["n", 3, "h", "w"], constants)


def recurrent() -> onnx.ModelProto:
    """Layers of both kinds of gates over sequences whose length and number are open."""
    nodes = [
        helper.make_node("LSTM", ["x", "w1", "r1", "b1"], ["a"], hidden_size=20, direction="bidirectional"),
        helper.make_node("Transpose", ["a"], ["b"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["b", "shape"], ["c"]),
        helper.make_node("GRU", ["c", "w2", "r2"], ["y"], hidden_size=32, linear_before_reset=1),
    ]
    constants = {
        "w1": weights(2, 80, 8), "r1": weights(2, 80, 20), "b1": weights(2, 160), "w2": weights(1, 96, 40),
        "r2": weights(1, 96, 32), "shape": np.array([0, 0, -1]),
    }  # fmt: skip
    return graph_model(nodes, ["t", "n", 8], constants)


def run_elsewhere(path: Path, feeds: dict[str, networks.Array]) -> tuple[dict[str, networks.Array], dict[str, int]]:
    """Run a file in a process that has neither halide nor onnx; return the outputs and what the host computed."""
    inputs, outputs = path.with_suffix(".in.npz"), path.with_suffix(".out.npz")
    np.savez(inputs, **feeds)
    command = [sys.executable, "-c", _RUN, str(path), str(inputs), str(outputs)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(np.load(outputs)), json.loads(done.stdout)


def check_sizes(
    model: onnx.ModelProto, ranges: Ranges, shapes: Sequence[Sequence[int]], config: Config, path: Path
) -> int:
    """Compare sizes with ONNX Runtime; return how many kernels the file has."""
    known = {tensor.name for tensor in model.graph.initializer}
    (name,) = (each.name for each in model.graph.input if each.name not in known)
    export(model.SerializeToString(), path, ranges={name: ranges}, config=config)
    rng = np.random.default_rng(3)
    feeds = {f"i{index}": rng.standard_normal(shape).astype(np.float32) for index, shape in enumerate(shapes)}
    found, host = run_elsewhere(path, feeds)
    assert host == {}
    for each, x in feeds.items():
        expected = onnxruntime_output(model, {name: x})
        assert found[each].shape == expected.shape
        assert relative_error(found[each], expected) < 1e-3, x.shape
    return len(read_offline(path).build["operators"])


@pytest.mark.skipif(not CAMPAIGN, reason="make campaign: hundreds of kernels, and a guide runs SqueezeNet so")
@pytest.mark.parametrize("name", ["squeezenet", "densenet121"])
def test_a_network_of_images_runs_at_any_size_from_one_file(name: str, config: Config, tmp_path: Path) -> None:
    """Any batch to 4 and size to 640 agrees with ONNX Runtime to 1e-3, from fewer than 120 kernels for all of them."""
    count = check_sizes(opened(networks.light(name)), IMAGES, SIZES, config, tmp_path / "net.om")
    assert 10 < count < 120


@pytest.mark.slow
def test_rows_may_be_any_number_from_one_file(config: Config, tmp_path: Path) -> None:
    """A range without an upper limit serves sizes far beyond those that were looked at, and one row."""
    shapes = [(rows, 24) for rows in (1, 2, 3, 15, 16, 17, 100, 513, 1999)]
    check_sizes(perceptron(), [-1, 24], shapes, config, tmp_path / "net.om")


@pytest.mark.slow
def test_sequences_may_be_of_any_length_and_number_from_one_file(config: Config, tmp_path: Path) -> None:
    """Recurrent layers have one kernel for all lengths, and few for all numbers of sequences."""
    shapes = [(1, 1, 8), (2, 7, 8), (100, 1, 8), (33, 16, 8)]
    check_sizes(recurrent(), [(1, 100), (1, 16), 8], shapes, config, tmp_path / "net.om")


@pytest.mark.slow
def test_paddings_and_phases_that_depend_on_the_size_are_served(config: Config, tmp_path: Path) -> None:
    """Convolutions of every kind, padding for the same size, transposed ones, a resize, at odd and even sizes."""
    shapes = [(1, 3, h, w) for h, w in ((1, 1), (2, 5), (7, 8), (16, 33), (64, 64), (61, 130), (200, 3))]
    check_sizes(convolutional(), [(1, 2), 3, (1, 300), (1, 300)], [*shapes, (2, 3, 19, 44)], config, tmp_path / "n.om")


@pytest.mark.slow
def test_a_size_outside_the_ranges_is_refused_by_name(config: Config, tmp_path: Path) -> None:
    """The message names the input, its shape and the range."""
    export(perceptron(), tmp_path / "net.om", ranges={"x": [(2, 8), 24]}, config=config)
    net = opbuild.load(tmp_path / "net.om")
    assert net.inputs[0].type.shape == (-1, 24)
    with pytest.raises(ShapeError, match=r"'x' has shape \[9, 24\], which is outside \[2~8, 24\]"):
        net(np.zeros((9, 24), np.float32))
    with pytest.raises(ShapeError, match=r"\[1, 24\]"):
        net(np.zeros((1, 24), np.float32))


def test_a_file_of_another_version_binds_no_new_size(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another version may choose and lay out otherwise: it runs the stored size only, and says so."""
    path = export(perceptron(), tmp_path / "net.om", ranges={"x": [(2, 8), 24]}, config=config)
    monkeypatch.setattr("opbuild.offline.load.own_sources", lambda: "other")
    net = opbuild.load(path)
    assert net(np.zeros((5, 24), np.float32)).size
    with pytest.raises(BuildError, match="another version of opbuild"):
        net(np.zeros((7, 24), np.float32))


def test_what_only_functions_define_is_in_a_file_for_ranges(config: Config, tmp_path: Path) -> None:
    """The functions of operators without a shape rule are lowered when the file is made, in branches too."""
    branch = helper.make_graph(
        [helper.make_node("CenterCropPad", ["x", "size"], ["r"], name="inside")],
        "b",
        [],
        [helper.make_tensor_value_info("r", TensorProto.FLOAT, None)],
    )
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Cast", ["sum"], ["which"], to=TensorProto.BOOL),
        helper.make_node("If", ["which"], ["c"], name="the_if", then_branch=branch, else_branch=branch),
        helper.make_node("CenterCropPad", ["x", "size"], ["d"], name="the_crop"),
        helper.make_node("Add", ["c", "d"], ["y"]),
    ]
    model = graph_model(nodes, ["n", "n"], {"size": np.array([2, 2])})
    net = opbuild.load(export(model, tmp_path / "net", ranges={"x": [(3, 9), (3, 9)]}, config=config))
    for size in (3, 4, 9):
        x = np.arange(size * size, dtype=np.float32).reshape(size, size)
        np.testing.assert_array_equal(net(x), onnxruntime_outputs(model, {"x": x})[0])


def test_ranges_and_listed_signatures_exclude_each_other(config: Config, tmp_path: Path) -> None:
    """Both would say what the file serves."""
    with pytest.raises(OptionError, match="ranges"):
        export(perceptron(), tmp_path / "n.om", ranges={"x": [-1, 24]}, variants=[{"x": (2, 24)}], config=config)
    with pytest.raises(ShapeError, match="8~2"):
        export(perceptron(), tmp_path / "n.om", ranges={"x": [(8, 2), 24]}, config=config)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "ranges"), [(perceptron, ((1, 512), 24)), (convolutional, IMAGES)], ids=["rows", "images"]
)
def test_any_size_is_bound_by_numbers(
    model: Callable[[], onnx.ModelProto],
    ranges: Ranges,
    config: Config,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Sizes that were not looked at are served by the programs of the file; nothing reads or lowers a network."""
    path = export(model(), tmp_path / "net.om", ranges={"x": ranges}, config=config)
    for name in ("opbuild.lowering.lower.lower", "opbuild.frontend.walk.walk"):
        monkeypatch.setattr(name, None)
    net, chance = opbuild.load(path, num_threads=1), random.Random(7)
    for _ in range(500 if CAMPAIGN else 12):
        shape = tuple(extent if isinstance(extent, int) else chance.randint(*extent) for extent in ranges)
        assert np.isfinite(net(np.ones(shape, np.float32))).all()


def test_masked_attention_has_a_program_at_one_batch(config: Config, tmp_path: Path) -> None:
    """A mask that is broadcast over rows, where the batch is 1 and the length is not: it is computed at all sizes."""
    nodes = [
        helper.make_node("ReduceMax", ["x", "two"], ["r"], keepdims=0),
        helper.make_node("Unsqueeze", ["r", "one"], ["h"]),
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["x", "t"], ["s"]),
        helper.make_node("Add", ["s", "h"], ["a"]),
        helper.make_node("Softmax", ["a"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "x"], ["y"]),
    ]
    model = graph_model(nodes, ["b", "n", 8], {"one": np.array([1]), "two": np.array([2])})
    export(model, tmp_path / "net.om", ranges={"x": (-1, -1, 8)}, config=config)
    net = opbuild.load(tmp_path / "net.om")
    for shape in ((1, 2, 8), (1, 1, 8), (1, 9, 8), (3, 1, 8), (2, 40, 8)):
        x = np.random.default_rng(shape[1]).standard_normal(shape).astype(np.float32)
        assert relative_error(net.run(None, {"x": x})[0], onnxruntime_output(model, {"x": x})) < 1e-5, shape


def test_a_size_that_no_program_serves_is_refused_by_name(config: Config, tmp_path: Path) -> None:
    """A size in the ranges that the network does not take: the message has the file and the size."""
    model = graph_model([helper.make_node("MatMul", ["x", "w"], ["y"])], ["n", "m"], {"w": weights(5, 3)})
    net = opbuild.load(export(model, tmp_path / "net.om", ranges={"x": [2, (1, 7)]}, config=config))
    assert net(np.ones((2, 5), np.float32)).shape == (2, 3)
    with pytest.raises(ShapeError, match=r"net.om' has no program for x:2,4"):
        net(np.ones((2, 4), np.float32))


def test_a_network_without_kernels_has_ranges_too(config: Config, tmp_path: Path) -> None:
    """Nothing is asked of any family where the host computes all; the file has its program all the same."""
    pool = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2, 2])
    model = graph_model([pool], ["n", 1, 4, 4, 4], {})
    net = opbuild.load(export(model, tmp_path / "net.om", ranges={"x": [(1, 9), 1, 4, 4, 4]}, config=config))
    assert net(np.ones((7, 1, 4, 4, 4), np.float32)).shape == (7, 1, 3, 3, 3)


def test_sizes_that_stand_for_a_range_lie_in_it_and_hold_its_ends() -> None:
    """Samples are inside the ranges, each once, with the least and the greatest; equal ranges vary together too."""
    sizes = make_sizes(["a", "b"], [[(1, 512), 4], [(1, 512)]])
    samples = sizes.samples()
    for shapes in samples:
        sizes.check(shapes)
    assert len(set(samples)) == len(samples)
    assert ((1, 4), (1,)) in samples
    assert ((512, 4), (512,)) in samples
    assert sum(first[0] == second[0] for first, second in samples) >= len(samples) // 3
    assert make_sizes(["a"], [[3, 4]]).samples() == (((3, 4),),)
