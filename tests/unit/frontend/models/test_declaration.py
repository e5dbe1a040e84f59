"""What ``net.inputs`` and ``net.outputs`` say: the model's declaration, whatever was bound; and the ways to ``run``."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import opbuild
from opbuild.backend.evaluate import evaluate
from opbuild.config import Config
from opbuild.errors import InputError
from opbuild.frontend.onnx_model import load_model

pytestmark = pytest.mark.usefixtures("kept_objects")

W = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
Shape = tuple[int | str | None, ...]


def model(shape: Shape = ("rows", 4), results: Shape | None = ("rows", 3)) -> onnx.ModelProto:
    """``probs = x @ w``, ``mask = relu(probs)``; ``results`` None: the model does not say their shapes."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["probs"]), helper.make_node("Relu", ["probs"], ["mask"])]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, results) for name in ("probs", "mask")]
    graph = helper.make_graph(nodes, "two", inputs, outputs, [numpy_helper.from_array(W, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store for all tests here."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def net(cache: Path) -> opbuild.Network:
    """A network with an open extent."""
    return opbuild.compile(model(), cache_path=cache)


def shapes(net: opbuild.Network) -> tuple[list[Any], list[Any]]:
    """The shapes of the inputs and of the outputs."""
    return [each.shape for each in net.inputs], [each.shape for each in net.outputs]


@pytest.mark.parametrize("results", [("rows", 3), None], ids=["declared", "inferred"])
def test_inputs_and_outputs_are_there_before_the_first_call_and_stay(cache: Path, results: Shape | None) -> None:
    """``net.outputs`` was empty before the first call, and both then changed with each signature that was bound."""
    net = opbuild.compile(model(results=results), cache_path=cache)
    before = (net.inputs, net.outputs)
    assert shapes(net) == ([(-1, 4)], [(-1, 3), (-1, 3)])
    assert [(each.name, each.dtype) for each in net.outputs] == [("probs", np.float32), ("mask", np.float32)]
    assert net.bound_inputs == net.bound_outputs == ()
    for rows in (2, 5):
        net(np.ones((rows, 4), np.float32))
        assert (net.inputs, net.outputs) == before
        assert [each.shape for each in (*net.bound_inputs, *net.bound_outputs)] == [(rows, 4), (rows, 3), (rows, 3)]


GIVEN = [None, (2, 4), (-1, 4), (5, 4), (-1, -1), (None, 4), (None, None)]


@pytest.mark.parametrize(("declared", "given"), list(itertools.product([("rows", 4), (2, 4), None], GIVEN)))
def test_what_is_declared_holds_for_every_call(cache: Path, declared: Shape | None, given: Any) -> None:
    """For each way to declare and to give a shape: whatever a network computes fits what it said before."""
    if declared is None and given is None:
        return  # a rank that nobody gives is an error of its own
    results = None if declared is None else (*declared[:1], 3)
    source = model(declared or ("rows", 4), results)
    if declared is None:
        source.graph.input[0].type.tensor_type.ClearField("shape")
    net = opbuild.compile(source, cache_path=cache, input_shapes=given and {"x": given})
    endpoints = (*net.inputs, *net.outputs)
    for rows in (2,) if declared == (2, 4) and given in (None, declared) else (2, 3):
        x = np.ones((rows, 4), np.float32)
        for endpoint, array in zip(endpoints, (x, *net(x)), strict=True):
            assert endpoint.shape is None or fits(array.shape, endpoint.shape), (endpoint, array.shape)
    assert (*net.inputs, *net.outputs) == endpoints
    if given is None:
        assert net.inputs[0].shape == tuple(e if isinstance(e, int) else -1 for e in declared or ())


def test_outputs_of_inputs_that_are_opened_are_told_from_some_sizes(cache: Path) -> None:
    """The model declares one row; what changes with their number is open, the rest stays."""
    net = opbuild.compile(model((1, 4), (1, 3)), cache_path=cache, input_shapes={"x": (None, 4)})
    assert shapes(net) == ([(-1, 4)], [(-1, 3), (-1, 3)])
    assert net.bound_inputs == ()


def fits(shape: tuple[int, ...], declared: tuple[int, ...]) -> bool:
    """Whether a declaration allows a shape."""
    return len(shape) == len(declared) and all(d in (-1, s) for s, d in zip(shape, declared, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "rows"),
    [
        ({"input_shapes": {"x": (2, 4)}}, 2),
        ({"variants": [{"x": (2, 4)}, {"x": (5, 4)}]}, -1),
        ({"ranges": {"x": [(1, 9), 4]}}, -1),
        ({"ranges": {"x": [None, 4]}}, -1),
        ({"input_shapes": {"x": (None, 4)}, "variants": [{"x": (2, 4)}]}, 2),
    ],
)
def test_offline_models_say_what_they_serve(
    config: Config, tmp_path: Path, options: Mapping[str, Any], rows: int
) -> None:
    """An extent that differs between the sizes that the file serves is -1, in outputs too, before and after a call."""
    net = opbuild.load(opbuild.export(model(), tmp_path / "net.om", config=config, **options))
    expected = ([(rows, 4)], [(rows, 3), (rows, 3)])
    assert shapes(net) == expected
    net(X)
    assert shapes(net) == expected
    assert net.bound_inputs[0].shape == (2, 4)


def squeezing() -> onnx.ModelProto:
    """``y = squeeze(x)``: how many dimensions it has depends on the extents."""
    ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ("n", 4)), helper.make_empty_tensor_value_info("y")]
    graph = helper.make_graph([helper.make_node("Squeeze", ["x"], ["y"])], "s", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def test_an_output_whose_rank_depends_on_the_size_has_no_shape(config: Config, tmp_path: Path) -> None:
    """Squeeze without axes drops what is 1; one call tells nothing of the next."""
    for given in (None, {"x": (3, 4)}):
        net = opbuild.compile(squeezing(), input_shapes=given, cache_path=config.cache_path)
        assert net.outputs[0].shape is None
    variants = [{"x": (1, 4)}, {"x": (3, 4)}]
    options: list[dict[str, Any]] = [{"variants": variants}, {"ranges": {"x": [(1, 3), 4]}}]
    for number, each in enumerate(options):
        net = opbuild.load(opbuild.export(squeezing(), tmp_path / f"{number}.om", config=config, **each))
        assert net.outputs[0].shape is None
        assert repr(net) == "<opbuild network s (x: float32[any, 4]) -> (y: float32[...])>"
        assert [net(np.ones((rows, 4), np.float32)).shape for rows in (1, 3)] == [(4,), (3, 4)]


def test_a_network_that_takes_hardly_any_size_leaves_its_outputs_open(config: Config, tmp_path: Path) -> None:
    """Of one size nothing can be told of others: ``x @ w`` with as many columns as ``w`` has rows."""
    net = opbuild.load(
        opbuild.export(model(("n", "m"), None), tmp_path / "net.om", ranges={"x": [2, (1, 7)]}, config=config)
    )
    assert net.outputs[0].shape == (-1, -1)


def test_a_graph_says_its_own_shapes(config: Config) -> None:
    """A network from another front end has no open extents."""
    net = opbuild.compile_graph(load_model(model()).bind({"x": (2, 4)}, evaluate), config=config)
    assert shapes(net) == ([(2, 4)], [(2, 3), (2, 3)])


def test_a_network_that_starts_from_its_image_says_the_same(cache: Path) -> None:
    """The declaration of a model is remembered with it: the model is not read again."""
    first, again = (opbuild.compile(model((2, 4), (2, 3)), cache_path=cache) for _ in range(2))
    assert again.report.image
    assert (first.inputs, first.outputs) == (again.inputs, again.outputs)


def test_an_endpoint_shows_itself_shortly(net: opbuild.Network) -> None:
    """Name, shape and element type; those of the network in a line."""
    assert repr(net.inputs[0]) == "Endpoint(name='x', shape=(-1, 4), dtype='float32')"
    assert repr(net) == "<opbuild network two (x: float32[any, 4]) -> (probs: float32[any, 3], mask: float32[any, 3])>"


def test_run_takes_its_arguments_as_onnx_runtime_does(net: opbuild.Network) -> None:
    """Names of outputs and a dictionary give a list in that order; None or no names, all of them."""
    probs, mask = net(X)
    feeds = {"x": X}
    for names, wanted in (
        (None, [probs, mask]),
        ([], [probs, mask]),
        (["mask"], [mask]),
        (("mask", "probs"), [mask, probs]),
    ):
        calls = (net.run(names, feeds), net.run(output_names=names, input_feed=feeds), net.run(names, x=X))
        for results in calls:
            assert isinstance(results, list)
            assert len(results) == len(wanted)
            for one, other in zip(results, wanted, strict=True):
                np.testing.assert_array_equal(one, other)


def test_run_returns_a_dictionary_where_no_outputs_are_named(net: opbuild.Network) -> None:
    """A dictionary, or keywords."""
    for results in (net.run({"x": X}), net.run(x=X), net.run(feeds={"x": X})):
        assert list(results) == ["probs", "mask"]


@pytest.mark.parametrize(
    ("args", "kwargs", "words"),
    [
        ((["prob"], {"x": X}), {}, r"no output 'prob'\n  hint: did you mean 'probs'\? its outputs are 'probs', 'mask'"),
        (([3], {"x": X}), {}, "no output 3"),
        (
            ("probs", {"x": X}),
            {},
            r"'probs' for the names of outputs\n  hint: give a list such as \['probs'\]",
        ),
        ((X,), {}, "a value of type ndarray for a dictionary(?s:.*)net.array. takes"),
        ((None, X), {}, "a value of type ndarray for the inputs"),
        ((None,), {}, "input 'x' is missing"),
        (({"X": X},), {}, r"no input 'X'\n  hint: did you mean 'x'"),
        (({"x": X}, ["probs"]), {}, "2 arguments that it does not know together"),
        ((None, {"x": X}, None, 1), {}, "4 arguments"),
        ((None, {"x": X}), {"output_names": ["probs"]}, "output_names was given twice"),
        (({"x": X},), {"x": X}, "input 'x' was given beside a dictionary"),
        ((None, {"x": X}, 3), {}, "run_options"),
        ((), {"feeds": {"x": X}, "input_feed": {"x": X}}, "does not know together"),
    ],
)
def test_what_run_cannot_understand_is_refused(net: opbuild.Network, args: Any, kwargs: Any, words: str) -> None:
    """Each misuse is an InputError with the right form or the nearest name."""
    with pytest.raises(InputError, match=words):
        net.run(*args, **kwargs)


def test_an_input_may_be_called_as_an_argument_of_run_is(cache: Path) -> None:
    """A keyword that is an input's name is the input, be it ``feeds`` or ``self``."""
    for name in ("feeds", "output_names", "self"):
        graph = helper.make_graph(
            [helper.make_node("Neg", [name], ["y"])],
            "named",
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, (2, 4))],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, (2, 4))],
        )
        net = opbuild.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), cache_path=cache)
        np.testing.assert_array_equal(net.run(**{name: X})["y"], -X)
        np.testing.assert_array_equal(net(**{name: X}), -X)
