"""``compile``: the data path, stored networks, signatures, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import opbuild
from opbuild.config import Config
from opbuild.errors import CompileForbiddenError, InputError, InvalidModelError, OptionError, ShapeError, TargetError
from opbuild.events import Event, Warned
from opbuild.graph.types import Graph, Node, TensorType

RNG = np.random.default_rng(0)
WEIGHTS = RNG.standard_normal((256, 256)).astype(np.float32)


def model(shape: tuple[int | str, ...] = (4, 256), weights: Any = WEIGHTS) -> onnx.ModelProto:
    """``y = x @ w``; the weights are large enough for a file of their own."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weights, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def check(net: opbuild.Network, rows: int = 4, weights: Any = WEIGHTS) -> None:
    """Call a network of ``model`` and compare."""
    x = RNG.standard_normal((rows, 256)).astype(np.float32)
    np.testing.assert_allclose(net(x), x @ weights, rtol=1e-4, atol=1e-4)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that holds the network of ``model``."""
    folder = tmp_path_factory.mktemp("cache")
    check(opbuild.compile(model(), cache_path=folder))
    return folder


def test_path_bytes_and_proto_are_one_model(cache: Path, tmp_path: Path) -> None:
    """The same model in three forms starts from one stored network, and computes the same."""
    path = tmp_path / "product.onnx"
    path.write_bytes(model().SerializeToString(deterministic=True))
    opbuild.compile(path.read_bytes(), cache_path=cache)
    for form in (path.read_bytes(), model()):
        net = opbuild.compile(form, cache_path=cache)
        assert net.report.image
        check(net)
    check(opbuild.compile(path, cache_path=cache))
    check(opbuild.compile(str(path), cache_path=cache))


def test_a_second_compile_starts_from_the_stored_network(cache: Path) -> None:
    """Nothing is built, and the report says where the network came from."""
    net = opbuild.compile(model(), cache_path=cache, forbid_compile=True)
    assert (net.report.image, net.report.built) == (True, 0)
    assert net.report.reused == len(net.report.operators) > 0
    check(net)


def test_other_weights_build_nothing(cache: Path) -> None:
    """Operators do not hold weights: the network is put together anew from what is there."""
    weights = WEIGHTS + 1
    net = opbuild.compile(model(weights=weights), cache_path=cache, forbid_compile=True)
    assert (net.report.image, net.report.built) == (False, 0)
    check(net, weights=weights)


def test_forbidding_compiles_names_the_operator(tmp_path: Path) -> None:
    """In an empty store the error names what would have to be compiled."""
    with pytest.raises(CompileForbiddenError, match=r"matmul.*product"):
        opbuild.compile(model(), cache_path=tmp_path, forbid_compile=True)


def test_open_extents_are_bound_call_by_call(cache: Path) -> None:
    """A model with a free batch compiles without shapes and runs at any."""
    net = opbuild.compile(model(("batch", 256)), cache_path=cache)
    assert net.inputs[0].type == TensorType("float32", (-1, 256))
    for rows in (4, 7, 1, 4):
        check(net, rows)
    with pytest.raises(InputError, match=r"'x' has shape \[4, 255\], the network needs \[any, 256\]"):
        net(np.ones((4, 255), np.float32))


def test_fixed_extents_stay_fixed_unless_given(cache: Path) -> None:
    """What the file fixes cannot differ in a call, but input_shapes overrides it and opens it."""
    with pytest.raises(InputError, match="input_shapes"):
        opbuild.compile(model(), cache_path=cache)(np.ones((5, 256), np.float32))
    net = opbuild.compile(model(), cache_path=cache, input_shapes={"x": (5, 256)})
    assert (net.inputs[0].shape, net.bound_inputs[0].shape) == ((-1, 256), (5, 256))
    check(net, 5)
    check(net, 6)


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        ({"z": (1,)}, r"'z', which is no input\n.*'x'"),
        ({"x": (4,)}, r"'x' has 2 dimensions \[4, 256\]"),
        ({"x": (4, -2)}, r"'x' is \[4, -2\]"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(cache: Path, shapes: Any, words: str) -> None:
    """A shape for no input, of another rank or with a negative extent is a ShapeError that names the input."""
    with pytest.raises(ShapeError, match=words):
        opbuild.compile(model(), cache_path=cache, input_shapes=shapes)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("/no/such/model.onnx", "there is no file"),
        (b"", "empty"),
        (b"rubbish", "not an ONNX model"),
        (7, "model is 7, which is of type int, not a model"),
    ],
)
def test_what_is_no_model_is_refused(tmp_path: Path, given: Any, words: str) -> None:
    """A missing file, empty or foreign bytes, another object: one clear error."""
    with pytest.raises(InvalidModelError, match=words):
        opbuild.compile(given, cache_path=tmp_path)


def test_bad_options_are_refused(tmp_path: Path) -> None:
    """Numbers of threads and workers, and targets that do not run here."""
    with pytest.raises(OptionError, match="num_threads"):
        opbuild.compile(model(), cache_path=tmp_path, num_threads=0)
    with pytest.raises(TargetError, match="cannot run here"):
        opbuild.compile(model(), cache_path=tmp_path, target="riscv-64-linux")


def test_a_model_that_changed_on_disk_is_another_model(cache: Path, tmp_path: Path) -> None:
    """Never stale: new bytes under the old name are compiled; a network of the old ones stays what it was."""
    path = tmp_path / "model.onnx"
    path.write_bytes(model(("batch", 256)).SerializeToString())
    net = opbuild.compile(path, cache_path=cache)
    check(net)
    path.write_bytes(model(("batch", 256), WEIGHTS * 2).SerializeToString())
    check(opbuild.compile(path, cache_path=cache), weights=WEIGHTS * 2)
    check(net)
    check(net, rows=9)  # as it was lowered for any size
    with pytest.raises(InvalidModelError, match="changed since it was compiled"):
        net(np.ones((0, 256), np.float32))


def test_external_data_is_part_of_the_model(cache: Path, tmp_path: Path) -> None:
    """Weights in a file beside the model: the network starts from its image, and new weights are noticed."""
    path = tmp_path / "model.onnx"

    def save(weights: Any) -> None:
        onnx.save(
            model(weights=weights), str(path), save_as_external_data=True, location="model.data", size_threshold=0
        )

    save(WEIGHTS)
    check(opbuild.compile(path, cache_path=cache))
    assert opbuild.compile(path, cache_path=cache).report.image
    save(WEIGHTS * 3)
    net = opbuild.compile(path, cache_path=cache)
    assert not net.report.image
    check(net, weights=WEIGHTS * 3)
    (tmp_path / "model.data").unlink()
    with pytest.raises(InvalidModelError, match=r"model\.data"):
        opbuild.compile(path, cache_path=cache)


def test_a_store_that_cannot_be_written_warns_once_and_runs(tmp_path: Path) -> None:
    """F54, F61: with a file where the folders should be, the network builds and runs, with one warning."""
    (tmp_path / "rank_0").write_text("not a folder")
    seen: list[Event] = []
    check(opbuild.compile(model(), cache_path=tmp_path, observer=seen.append))
    assert len([event for event in seen if isinstance(event, Warned)]) == 1


@pytest.mark.parametrize("suffix", [".so", ".bin", ".json", ".model", ".seen"])
def test_a_damaged_image_is_replaced_and_never_an_error(tmp_path: Path, suffix: str) -> None:
    """F07: with any file of the stored network cut, the next start compiles nothing, and the one after is warm."""
    check(opbuild.compile(model(), cache_path=tmp_path))
    path = next((tmp_path / "rank_0" / "network_meta").glob(f"*{suffix}"))
    path.write_bytes(path.read_bytes()[:-3] or b"x")
    check(opbuild.compile(model(), cache_path=tmp_path, forbid_compile=True))
    assert opbuild.compile(model(), cache_path=tmp_path).report.image


def test_another_number_of_threads_is_another_image(cache: Path) -> None:
    """Schedules may depend on it; the network is put together for it."""
    net = opbuild.compile(model(), cache_path=cache, num_threads=1)
    check(net)
    assert opbuild.compile(model(), cache_path=cache, num_threads=1).report.image


def graph(value: float = 2.0) -> Graph:
    """``y = x * value`` given as a graph, as another front end does."""
    type_ = TensorType("float32", (3, 5))
    node = Node("Mul", ("x", "value"), ("y",), name="scale")
    types = {"x": type_, "y": type_, "value": TensorType("float32", ())}
    return Graph("scaled", (node,), ("x",), ("y",), types, {"value": np.array(value, np.float32)})


def test_a_graph_compiles_and_is_stored_like_a_model(tmp_path: Path) -> None:
    """The graph's digest finds its image; another constant is another network; without images none is stored."""
    config = Config(cache_path=tmp_path, workers=2)
    x = np.arange(15, dtype=np.float32).reshape(3, 5)
    opbuild.compile_graph(graph(), config=config, image=False)
    assert not list((tmp_path / "rank_0" / "network_meta").glob("scaled_*"))
    np.testing.assert_array_equal(opbuild.compile_graph(graph(), config=config)(x), x * 2)
    again = opbuild.compile_graph(graph(), config=config)
    assert again.report.image
    np.testing.assert_array_equal(again(x), x * 2)
    np.testing.assert_array_equal(opbuild.compile_graph(graph(3.0), config=config)(x), x * 3)


def test_every_step_is_timed(cache: Path) -> None:
    """The report has the steps of the data path in the order in which they begin."""
    net = opbuild.compile(model(weights=WEIGHTS - 1), cache_path=cache)
    assert list(net.report.steps) == [
        "load", "read", "optimize", "lower", "pack", "plan", "decide", "build", "link", "start", "store",
    ]  # fmt: skip
    assert all(milliseconds >= 0 for milliseconds in net.report.steps.values())
