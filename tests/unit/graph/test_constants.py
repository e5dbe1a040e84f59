"""Constants that are worked out when they are read: folded weights, which most of a build does without."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from onnx import helper, numpy_helper

from opbuild.backend.host.evaluate import evaluate
from opbuild.frontend.onnx_model import load_model
from opbuild.graph import constants as module
from opbuild.graph.constants import ConstantValues, Deferred, array_digest, remembered_digests
from opbuild.graph.passes import batchnorm
from opbuild.graph.passes.pipeline import optimize
from opbuild.graph.types import Array, Graph, TensorType
from opbuild.lowering import conv_weights
from opbuild.lowering.lower import lower
from opbuild.program import Buffer
from opbuild.target.host import parse_level

LEVEL = parse_level("x86-64-linux-avx-avx2-f16c-fma-sse41")


def deferred(value: Array, *made_of: Array, recipe: str = "r") -> Deferred:
    """Return a constant to be worked out."""
    return Deferred(TensorType(str(value.dtype), value.shape), recipe, made_of, lambda: value)


def network(scale: float) -> Graph:
    """Return a convolution followed by BatchNormalization."""
    draw = np.random.default_rng(0)
    weight = draw.standard_normal((16, 16, 3, 3)).astype(np.float32)
    rows = {name: np.full(16, value, np.float32) for name, value in (("s", scale), ("b", 1), ("m", 0.5), ("v", 2))}
    values = [numpy_helper.from_array(value, name) for name, value in {"w": weight, **rows}.items()]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1] * 4),
        helper.make_node("BatchNormalization", ["c", "s", "b", "m", "v"], ["y"]),
    ]
    ports = [[helper.make_tensor_value_info(name, 1, (1, 16, 8, 8))] for name in "xy"]
    graph = helper.make_graph(nodes, "net", *ports, values)
    return load_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])).bind({}, evaluate)


def constants_of(graph: Graph) -> list[Buffer]:
    """Return the constants of the program that a graph becomes."""
    return [buffer for buffer in lower(optimize(graph, evaluate), LEVEL).buffers if buffer.kind == "constant"]


def test_weights_are_not_folded_before_they_are_packed() -> None:
    """What is compiled is known without them: a whole network is lowered, and each weight is made once, when packed."""
    with (
        mock.patch.object(batchnorm, "scaled") as made,
        mock.patch.object(conv_weights, "arrange", wraps=conv_weights.arrange) as arranged,
    ):
        buffers = constants_of(network(3.0))
        assert arranged.call_count == 0
        for buffer in buffers:
            assert buffer.pack is not None
            buffer.pack()
        assert arranged.call_count == 1
        assert made.call_count == 0


def test_folded_weights_are_known_by_what_they_are_made_of() -> None:
    """Equal networks have equal sources, so that nothing is packed twice; another scale is another source."""
    first, same, other = (constants_of(network(scale)) for scale in (3.0, 3.0, 4.0))
    sources = [{buffer.source() for buffer in buffers if buffer.source} for buffers in (first, same, other)]
    assert sources[0] == sources[1]
    assert len(sources[0] & sources[2]) < len(sources[0])


def test_every_part_of_a_deferred_constant_changes_its_digest() -> None:
    """The arrays that it is made of, their order, its type and its recipe."""
    one, two = np.arange(4, dtype=np.float32), np.ones(4, np.float32)
    variants = [
        deferred(one, one, two),
        deferred(one, two, one),
        deferred(one, one),
        deferred(one, one, two, recipe="s"),
        deferred(one.reshape(2, 2), one, two),
        deferred(one.astype(np.float64), one, two),
    ]
    digests = [ConstantValues({}) for _ in variants]
    for constants, variant in zip(digests, variants, strict=True):
        constants["w"] = variant
    assert len({constants.digest("w") for constants in digests}) == len(variants)


def test_a_copy_keeps_deferred_constants_deferred() -> None:
    """Passes copy and drop constants without reading any."""
    made: list[int] = []

    def make() -> Array:
        made.append(1)
        return np.zeros(3, np.float32)

    constants = ConstantValues({"a": np.ones(2, np.float32)})
    constants["w"] = Deferred(TensorType("float32", (3,)), "r", (), make)
    copy = ConstantValues(constants)
    copy.keep({"w"})
    assert ("w" in copy, "a" in copy, len(copy), list(constants)) == (True, False, 1, ["a", "w"])
    assert not made
    assert copy["w"].shape == (3,)
    assert made == [1]
    del copy["w"]
    assert list(copy) == []
    assert "w" in constants


def test_two_graphs_of_one_model_take_the_digest_of_its_weights_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Meanwhile only: afterwards whoever wrote to the memory gets another digest; other shapes of it are others."""
    taken: list[int] = []
    whole = module.digest_of
    monkeypatch.setattr(module, "digest_of", lambda data: (taken.append(1), whole(data))[1])
    weights = np.arange(6, dtype=np.float32)
    outside = array_digest(weights)
    taken.clear()
    with remembered_digests():
        assert [array_digest(weights[:]), array_digest(weights[:])] == [outside, outside]
        assert len(taken) == 1
        assert array_digest(weights.reshape(2, 3)) != outside
        assert array_digest(weights.view(np.int32)) != outside
        assert array_digest(weights[::2]) != array_digest(weights[:3])
    weights[0] = 7
    assert array_digest(weights) != outside
