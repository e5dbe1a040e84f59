"""Stored networks in segments: another process goes from one to the next without onnx, compiler and model reader."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

import opbuild
from opbuild.errors import CompileForbiddenError
from opbuild.frontend.models.source import ModelSource

pytestmark = pytest.mark.usefixtures("kept_objects")

MODEL = """<ir_version: 10, opset_import: ["" : 21]>
g (float[4,6] x, int64[1] axes, int64 turns, bool go) => (float[] y, float[] s, int64[] found, float[] n) <
    float zero = {0}, float[6] bias = {1, 2, 3, 4, 5, 6}> {
    a = Add(x, bias)
    s = ReduceSum(a, axes)
    m = Greater(a, zero)
    found = NonZero(m)
    i = Transpose(found)
    v = GatherND(a, i)
    n = Neg(v)
    z = Loop <body = b (int64 k, bool c, float[4,6] u) => (bool d, float[4,6] w) {
        d = Identity(c)  t = Mul(u, bias)  w = Sub(t, a) }> (turns, , x)
    y = If <then_branch = tb () => (float[] p) { p = Relu(z) }, else_branch = eb () => (float[] q) { q = Abs(z) }> (go)
}"""

SCRIPT = """
import json, sys
import numpy as np
sys.modules["onnx"] = sys.modules["halide"] = None
import opbuild
path, cache, feeds, results = sys.argv[1:]
net = opbuild.compile(path, cache_path=cache, forbid_compile=True)
got = net.run({name: array for name, array in np.load(feeds).items()})
np.savez(results, **got)
print(json.dumps([net.report.image, net.report.built]))
"""


def feeds(seed: int, turns: int, axis: int, *, go: bool) -> dict[str, Any]:
    """Return inputs."""
    x = np.random.default_rng(seed).standard_normal((4, 6)).astype(np.float32)
    return {"x": x, "axes": np.array([axis]), "turns": np.array(turns), "go": np.array(go)}


def same(path: Path, given: dict[str, Any], got: dict[str, Any]) -> None:
    """Compare results with ONNX Runtime's."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for name, wanted in zip(got, session.run(list(got), given), strict=True):
        np.testing.assert_allclose(got[name], wanted, rtol=1e-5, atol=1e-5, strict=True)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the model's file and a cache in which the network is stored for some values."""
    folder = tmp_path_factory.mktemp("segments")
    path = folder / "g.onnx"
    onnx.save(parser.parse_model(MODEL), path)
    net = opbuild.compile(path, cache_path=folder / "cache")
    for given in (feeds(0, 3, 0, go=True), feeds(0, 2, 1, go=False)):
        same(path, given, net.run(given))
    return path, folder / "cache"


@pytest.mark.slow
def test_another_process_needs_neither_onnx_nor_a_compiler(stored: tuple[Path, Path], tmp_path: Path) -> None:
    """The breaks, with the nodes that the host evaluates and the names of values, are in the segments' records."""
    path, cache = stored
    given = feeds(0, 5, 1, go=True)  # another number of turns, and values that were met with others
    np.savez(tmp_path / "feeds.npz", **given)
    command = [
        sys.executable,
        "-c",
        SCRIPT,
        str(path),
        str(cache),
        str(tmp_path / "feeds.npz"),
        str(tmp_path / "y.npz"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [True, 0]
    same(path, given, dict(np.load(tmp_path / "y.npz")))


@pytest.mark.slow
def test_what_is_new_is_bound_from_the_model(stored: tuple[Path, Path]) -> None:
    """Also if the segments before it started from their images."""
    path, cache = stored
    net = opbuild.compile(path, cache_path=cache)
    assert net.report.image
    for seed in range(3):
        given = feeds(seed, seed, 0, go=bool(seed % 2))
        same(path, given, net.run(given))


def test_threads_may_call_at_once(stored: tuple[Path, Path]) -> None:
    """Each binds what is new for it; nobody sees another one's values."""
    path, cache = stored
    net = opbuild.compile(path, cache_path=cache)
    problems: list[BaseException] = []

    def call(seed: int) -> None:
        try:
            for turn in range(6):
                given = feeds(seed % 2, turn, turn % 2, go=bool(seed % 2))
                same(path, given, net.run(given))
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=call, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert problems == []


def test_the_report_is_of_all_segments_that_were_met(stored: tuple[Path, Path]) -> None:
    """Calls of the host between the segments count as those inside them do."""
    path, cache = stored
    net = opbuild.compile(path, cache_path=cache)
    assert net.report.host == {}
    net.run(feeds(0, 3, 0, go=True))
    assert net.report.host["NonZero"] == 1
    assert {"Loop", "If"}.isdisjoint(net.report.host)
    assert len(net.report.operators) >= 5
    assert {"NonZero", "Loop", "If", "ReduceSum"} == {each.split()[0] for each in net.report.breaks}
    assert "in parts, cut at" in str(net.report)
    assert "in parts, cut at" in net.report._repr_html_()


@pytest.mark.slow
def test_where_nothing_may_be_compiled_a_new_segment_says_what_it_lacks(tmp_path: Path) -> None:
    """The first segments of a network may be there, and a later one not."""
    text = """<ir_version: 10, opset_import: ["" : 21]> g (float[4,6] x, bool go) => (float[4,6] y) {
        y = If <then_branch = tb () => (float[4,6] p) { p = Relu(x) },
                else_branch = eb () => (float[4,6] q) { q = Softmax(x) }> (go) }"""
    model = parser.parse_model(text)
    x = np.ones((4, 6), np.float32)
    opbuild.compile(model, cache_path=tmp_path)(x, np.array(True))
    net = opbuild.compile(model, cache_path=tmp_path, forbid_compile=True)
    np.testing.assert_array_equal(net(x, np.array(True)), x)
    with pytest.raises(CompileForbiddenError):
        net(x, np.array(False))


def test_outputs_are_declared_before_and_after_a_call(stored: tuple[Path, Path]) -> None:
    """An extent or a rank that the model leaves open stays open, whatever a call gave."""
    path, cache = stored
    net = opbuild.compile(path, cache_path=cache)
    before = net.outputs
    net.run(feeds(0, 3, 0, go=True))
    assert net.outputs == before
    assert [port.shape for port in before] == [None, None, (2, -1), (-1,)]
    assert [port.dtype.name for port in before] == ["float32", "float32", "int64", "float32"]
    assert [port.name for port in net.bound_outputs] == ["y", "s", "found", "n"]
    assert net.bound_outputs[0].shape == (4, 6)


def test_a_network_in_segments_takes_any_size_without_a_word(tmp_path: Path) -> None:
    """It has no program before a second size was built: that is no failure, of which somebody is told."""
    text = """<ir_version: 10, opset_import: ["" : 21]> g (float[a,b] x) => (float[] y) <float zero = {0}> {
        n = NonZero(x)  t = Transpose(n)  v = GatherND(x, t)  y = Neg(v) }"""
    told: list[str] = []
    net = opbuild.compile(
        parser.parse_model(text), cache_path=tmp_path, observer=lambda event: told.append(type(event).__name__)
    )
    for shape in ((2, 3), (3, 2), (1, 4), (2, 3)):
        x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        np.testing.assert_array_equal(net(x), -x[x != 0])
    assert "Warned" not in told


DETECTING = """<ir_version: 10, opset_import: ["" : 21]>
g (float[n,4,h,w] x) => (float[k,8] y, float[] planes) <
    float[8,4,3,3] c, float[8,8] w1, float[8,8] w2, float bound = {0.05}, int64[1] one = {1}> {
    a = Conv <pads = [1, 1, 1, 1]> (x, c)
    m = ReduceMax <keepdims = 0> (a, one)
    g = Greater(m, bound)
    found = NonZero(g)
    planes = Transpose <perm = [0, 2, 3, 1]> (a)
    places = Transpose(found)
    v = GatherND(planes, places)
    h = MatMul(v, w1)
    r = ReduceMean <keepdims = 0> (h, one)
    kept = Greater(r, bound)
    k = Compress <axis = 0> (h, kept)
    y = MatMul(k, w2)
}"""


@pytest.mark.slow
def test_segments_before_and_between_breaks_are_bound_by_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once two sizes were built: a third one, of another batch too, neither compiles nor reads the model.

    All values are whole numbers and eighths, so that no rounding decides which are above the bound.
    """
    model = parser.parse_model(DETECTING)
    rng = np.random.default_rng(0)
    for name, shape in (("c", (8, 4, 3, 3)), ("w1", (8, 8)), ("w2", (8, 8))):
        array = rng.integers(-2, 3, shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    path = tmp_path / "g.onnx"
    onnx.save(model, path)
    net = opbuild.compile(path, cache_path=tmp_path / "cache", workers=2)

    def check(*shape: int) -> None:
        given = {"x": rng.integers(-2, 3, shape).astype(np.float32)}
        same(path, given, dict(zip(("y", "planes"), net.run(None, given), strict=True)))

    check(2, 4, 40, 40)
    check(3, 4, 52, 44)
    monkeypatch.setattr(ModelSource, "walk", lambda *_: pytest.fail("the model was read for a new size"))
    monkeypatch.setattr(ModelSource, "go_on", lambda *_: pytest.fail("the model was read for a new size"))
    before = net.report.built
    for shape in ((4, 4, 64, 80), (2, 4, 101, 37)):
        check(*shape)
    assert net.report.built <= before


GROWING = """<ir_version: 10, opset_import: ["" : 21]>
g (float[2,3] x, int64 turns) => (float[] y, float[] t) <float[3,3] w = {1, 0, 2, 0, 1, 1, 1, 1, 0}> {
    y = Loop <body = b (int64 i, bool c, float[2,k] a) => (bool d, float[2,l] e) {
        d = Identity(c)  p = MatMul(x, w)  q = Tanh(a)  e = Concat <axis = 1> (q, p) }> (turns, , x)
    z = Relu(y)
    t = Transpose(z) }"""


@pytest.mark.slow
def test_what_follows_growing_values_is_bound_by_numbers(tmp_path: Path) -> None:
    """Two sizes are built; further ones need next to no compile, also in a process that finds a program stored."""
    path = tmp_path / "g.onnx"
    onnx.save(parser.parse_model(GROWING), path)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])

    def check(net: opbuild.Network, turns: int) -> None:
        given = {"x": np.float32([[1, 2, 3], [-1, 0, 1]]), "turns": np.array(turns)}
        for got, wanted in zip(net.run(None, given), session.run(None, given), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6, strict=True)

    net = opbuild.compile(path, cache_path=tmp_path / "cache")
    for turns in (3, 4):
        check(net, turns)
    built = net.report.built
    for turns in (5, 12, 0, 1, 2, 30):
        check(net, turns)
    assert net.report.built <= built + 2  # 60 sizes; a few are such that others of its kernels were chosen
    again = opbuild.compile(path, cache_path=tmp_path / "cache")
    for turns in (3, 9, 40):
        check(again, turns)
    assert again.report.built <= 2
    assert any(each.reason.startswith("it was there") for each in again.report.operators)
