"""Numbers in inputs that decide shapes: what follows is lowered once, and each new number is bound to that."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, parser

import opbuild
from opbuild.frontend.models.source import ModelSource

pytestmark = pytest.mark.usefixtures("kept_objects")

Array = npt.NDArray[Any]
Step = Callable[[int], dict[str, Array]]

RNG = np.random.default_rng(115)
HEADS = {"num_heads": 4, "kv_num_heads": 2}
LAYERS = 2


def floats(*shape: int) -> Array:
    """Return random numbers."""
    return RNG.standard_normal(shape).astype(np.float32)


def growing() -> onnx.ModelProto:
    """Attention over a cache that grows by each token; the number of all keys is an input."""
    caches = [f"past_{kind}{layer}" for layer in range(LAYERS) for kind in "kv"]
    nodes = [
        helper.make_node(
            "GroupQueryAttention",
            ["x" if layer == 0 else f"y{layer - 1}", "key", "value", *caches[2 * layer :][:2], "last", "total"],
            [f"y{layer}", *(f"new_{name}" for name in caches[2 * layer :][:2])],
            domain="com.microsoft",
            **HEADS,
        )
        for layer in range(LAYERS)
    ]
    shapes: dict[str, list[Any]] = {"x": [1, 1, 32], "key": [1, 1, 16], "value": [1, 1, 16]}
    shapes |= {name: [1, 2, "past", 8] for name in caches}
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    inputs += [helper.make_tensor_value_info(name, TensorProto.INT32, [1]) for name in ("last", "total")]
    results = (f"y{LAYERS - 1}", *(f"new_{name}" for name in caches))
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in results]
    graph = helper.make_graph(nodes, "growing", inputs, outputs)
    versions = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=versions, ir_version=10)


class Decoder:
    """Calls a network token after token, and compares."""

    def __init__(self, model: onnx.ModelProto, past: int) -> None:
        self._session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        self._past = past
        self._held = {name: floats(1, 2, past, 8) for name in (f"past_{k}{i}" for i in range(LAYERS) for k in "kv")}

    def token(self, network: opbuild.Network) -> None:
        """Call it with one more token."""
        given = {"x": floats(1, 1, 32), "key": floats(1, 1, 16), "value": floats(1, 1, 16), **self._held}
        given |= {"last": np.array([self._past], np.int32), "total": np.array([self._past + 1], np.int32)}
        found = network.run(given)
        for one, other in zip(found.values(), self._session.run(None, given), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5, strict=True)
        self._held = {name: found[f"new_{name}"] for name in self._held}
        self._past += 1


@pytest.fixture
def nothing_lowered(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a function that makes each lowering from now on fail: it would begin by walking through the model."""

    def forbid() -> None:
        for name in ("walk", "go_on", "graph"):
            monkeypatch.setattr(ModelSource, name, lambda *_: pytest.fail("the model was lowered for a new number"))

    return forbid


def test_kernels_of_all_segments_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that a call met, too: as many as the store holds then; none in a network that finds them there."""
    monkeypatch.setenv("OPBUILD_PACK", "0")
    for again in (False, True):
        network = opbuild.compile(growing(), cache_path=tmp_path)
        Decoder(growing(), 3).token(network)
        stored = len([*tmp_path.rglob("*.o")])
        assert network.built == (0 if again else stored)
        assert stored > 0


@pytest.mark.slow
def test_tokens_with_a_growing_cache_are_bound_by_numbers(tmp_path: Path, nothing_lowered: Callable[[], None]) -> None:
    """The number of all keys is an extent: two tokens are built, then one program serves; another process finds it."""
    path = tmp_path / "growing.onnx"
    model = growing()
    onnx.save(model, path)
    network, decoder = opbuild.compile(path, cache_path=tmp_path / "cache", workers=2), Decoder(model, 20)
    for _ in range(2):
        decoder.token(network)
    again, other = opbuild.compile(path, cache_path=tmp_path / "cache"), Decoder(model, 20)
    nothing_lowered()
    built = network.report.built
    for _ in range(30):
        decoder.token(network)
    assert network.report.built == built
    assert not network.report.host
    for _ in range(6):
        other.token(again)
    assert again.report.built == 0


FILLED = """<ir_version: 10, opset_import: ["" : 21]>
g (float[3,4] x, int64[2] s, int64 n) => (float[] y, float[] z) <
    int64 zero = {0}, int64 one = {1}, int64[1] flat = {-1}, int64[1] four = {4}, int64[1] axis = {0}> {
    wide = Concat <axis = 0> (s, four)
    e = Expand (x, wide)
    a = Tanh (e)
    k = Range (zero, n, one)
    f = Cast <to = 1> (k)
    m = Reshape (f, flat)
    y = ReduceSum <keepdims = 0> (a, axis)
    z = Neg (m)
}"""


def test_numbers_of_several_inputs_are_bound_together(tmp_path: Path, nothing_lowered: Callable[[], None]) -> None:
    """An extent in a list and the end of a range: what was built for two pairs serves all others."""
    model = parser.parse_model(FILLED)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    network = opbuild.compile(model, cache_path=tmp_path, workers=2)

    def check(rows: int, count: int) -> None:
        given = {"x": floats(3, 4), "s": np.array([rows, 3]), "n": np.array(count)}
        for one, other in zip(network.run(None, given), session.run(None, given), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5, strict=True)

    for rows, count in ((20, 30), (21, 32)):
        check(rows, count)
    nothing_lowered()
    built = network.report.built
    for index in range(30):
        check(50 + index, 40 + 3 * index)
    assert network.report.built == built
    assert not network.report.host


def test_a_number_that_only_says_where_is_left_to_the_host_in_the_end(
    tmp_path: Path, nothing_lowered: Callable[[], None]
) -> None:
    """A slice of one length at ever new places needs no binding for each of them."""
    text = """<ir_version: 10, opset_import: ["" : 21]> g (float[400] x, int64[1] s) => (float[] y) <
        int64[1] width = {20}> { e = Add (s, width)  p = Slice (x, s, e)  q = Exp (p)  y = Neg (q) }"""
    network = opbuild.compile(parser.parse_model(text), cache_path=tmp_path)
    x = floats(400)

    def check(start: int) -> None:
        found = network(x, np.array([start]))
        np.testing.assert_allclose(found, -np.exp(x[start : start + 20]), rtol=1e-5, strict=True)

    for start in range(20, 40):
        check(start)
    assert network.report.host == {"Slice": 1}
    nothing_lowered()
    for start in range(100, 300, 7):
        check(start)


CARRIED = """<ir_version: 10, opset_import: ["" : 21]>
g (float[n] x) => (float[] y, float[] z) <float zero = {0.0}, float[1] one = {1.0}, int64[1] axis = {0}> {
    s = Shape (x)
    c = Greater (x, zero)
    p = NonZero (c)
    k = Gather (x, p)
    f = Squeeze (k, axis)
    e = Expand (one, s)
    w = Concat <axis = 0> (f, e)
    y = Tanh (w)
    z = Neg (x)
}"""


def test_a_size_that_is_read_behind_data_is_lowered_once(tmp_path: Path, nothing_lowered: Callable[[], None]) -> None:
    """It stands behind the break as what follows from the input's extent: each new size, and what data choose, fit."""
    path = tmp_path / "carried.onnx"
    onnx.save(parser.parse_model(CARRIED), path)
    networks = [opbuild.compile(path, cache_path=tmp_path / "cache", workers=2)]

    def check(network: opbuild.Network, count: int) -> None:
        x = floats(count)
        wanted = np.tanh(np.concatenate([x[x > 0], np.ones(count, np.float32)]))
        found = network.run(None, {"x": x})
        np.testing.assert_allclose(found[0], wanted, rtol=1e-5, atol=1e-6, strict=True)
        np.testing.assert_array_equal(found[1], -x, strict=True)

    check(networks[0], 60)
    check(networks[0], 71)
    networks.append(opbuild.compile(path, cache_path=tmp_path / "cache"))
    nothing_lowered()
    built = networks[0].report.built
    for network in networks:
        for index in range(12):
            check(network, 90 + 13 * index)
    assert networks[0].report.built == built
    assert networks[1].report.built == 0
    assert networks[1].report.host == {"NonZero": 1}
