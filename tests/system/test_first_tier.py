"""Networks whose kernels are not there: what is there computes them until their own are compiled, if they can be."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from platform import machine
from typing import Any

import halide as hl
import numpy as np
import onnx
import onnx.parser
import pytest

import opbuild
from opbuild.errors import CompileError, CompileForbiddenError
from opbuild.events import Warned
from opbuild.session import Session
from support import networks
from support.comparison import onnxruntime_outputs
from support.until import until

IMAGE = (1, 8, 12, 12)


@pytest.fixture(autouse=True)
def answers_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer as users' programs do: the other tests have a missing operator be an error."""
    monkeypatch.setenv("OPBUILD_FIRST", "answer")


def small_network() -> onnx.ModelProto:
    """Return a network with convolutions that have epilogues, a pool, a product and a softmax."""
    of = networks.Writer(3)
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, IMAGE)
    y = of.add("Relu", of.add("Conv", "x", of.drawn(16, 8, 3, 3), of.drawn(16), pads=[1, 1, 1, 1]))
    z = of.add("Add", of.add("Conv", y, of.drawn(16, 16, 1, 1)), y)
    pooled = of.add("MaxPool", of.add("Tanh", z), kernel_shape=[2, 2], strides=[2, 2])
    rows = of.add("Flatten", pooled)
    return of.model([x], of.add("Softmax", of.add("MatMul", rows, of.drawn(16 * 36, 10))), 17)


@pytest.fixture(scope="module")
def model() -> bytes:
    """Return the network as a file."""
    return small_network().SerializeToString()


@pytest.fixture(scope="module")
def image() -> np.ndarray:
    """Return its input."""
    return np.random.default_rng(5).standard_normal(IMAGE).astype(np.float32)


@pytest.fixture(scope="module")
def wanted(model: bytes, image: np.ndarray) -> np.ndarray:
    """Return ONNX Runtime's answer."""
    return onnxruntime_outputs(onnx.load_from_string(model), {"x": image})[0]


@pytest.mark.parametrize("pack", ["0", "1"])
def test_a_network_answers_where_compiling_is_forbidden(
    pack: str, model: bytes, image: np.ndarray, wanted: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With nothing stored; numpy computes what no kernel does, the report counts it and one warning says it."""
    monkeypatch.setenv("OPBUILD_PACK", pack)
    told: list[str] = []
    network = opbuild.compile(
        model,
        cache_path=tmp_path,
        forbid_compile=True,
        observer=lambda event: told.append(event.message) if isinstance(event, Warned) else None,
    )
    np.testing.assert_allclose(network(image), wanted, rtol=1e-5, atol=1e-6)
    assert network.report.built == 0
    if pack == "0":
        assert network.report.host["Conv"] == 2
        assert [each for each in told if "compiling is forbidden" in each and "2 x Conv" in each]
    assert len(told) <= 1


def test_what_answers_first_is_not_what_is_stored(
    model: bytes, image: np.ndarray, wanted: np.ndarray, tmp_path: Path
) -> None:
    """A process that may compile builds the network, and one that may not starts that one then."""
    opbuild.compile(model, cache_path=tmp_path, forbid_compile=True)(image)
    built = opbuild.compile(model, cache_path=tmp_path, wait=True)
    assert built.report.built > 0
    assert not built.report.host
    again = opbuild.compile(model, cache_path=tmp_path, forbid_compile=True)
    assert again.report.image
    np.testing.assert_allclose(again(image), wanted, rtol=1e-5, atol=1e-6)


def test_kernels_that_are_there_compute_their_part(
    model: bytes, image: np.ndarray, wanted: np.ndarray, tmp_path: Path
) -> None:
    """Of a network of which one kernel was removed, that part alone is numpy's."""
    built = opbuild.compile(model, cache_path=tmp_path, wait=True)
    gone = next(each.name for each in built.report.operators if each.name.startswith("softmax"))
    for path in tmp_path.glob(f"rank_0/kernel_meta/{gone}.*"):
        path.unlink()
    for path in tmp_path.glob("rank_0/network_meta/*"):
        path.unlink() if path.is_file() else None
    network = opbuild.compile(model, cache_path=tmp_path, forbid_compile=True)
    assert network.report.host == {"Softmax": 1}
    np.testing.assert_allclose(network(image), wanted, rtol=1e-5, atol=1e-6)


def test_who_waits_gets_the_error(model: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``OPBUILD_FIRST=wait`` is for those who measure, and for whom a slow answer is worse than none."""
    monkeypatch.setenv("OPBUILD_FIRST", "wait")
    with pytest.raises(CompileForbiddenError, match="compiling is forbidden"):
        opbuild.compile(model, cache_path=tmp_path, forbid_compile=True)


def test_an_operator_of_the_user_is_not_guessed(tmp_path: Path) -> None:
    """Numpy does not know it: the error names it, as before."""

    @opbuild.operator("SquaredAndOne", domain="first")
    def squared_and_one(x: hl.Expr) -> hl.Expr:
        return x * x + hl.f32(1)

    own = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17, "first" : 1]>
        own (float[4] x) => (float[4] y) { a = Exp(x) y = first.SquaredAndOne(a) }"""
    )
    with pytest.raises(CompileForbiddenError, match="squaredandone"):
        opbuild.compile(own, cache_path=tmp_path, forbid_compile=True)


def test_a_network_answers_where_halide_is_absent(
    model: bytes, image: np.ndarray, wanted: np.ndarray, tmp_path: Path
) -> None:
    """In a process in which nobody can import it."""
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['halide'] = None\n")
    (tmp_path / "m.onnx").write_bytes(model)
    np.save(tmp_path / "x.npy", image)
    code = (
        "import numpy as np, opbuild\n"
        "net = opbuild.compile('m.onnx', cache_path='cache')\n"
        "np.save('y.npy', net(np.load('x.npy')))\n"
        "print(net.report.host)\n"
    )
    search = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    own = {**os.environ, "PYTHONPATH": search, "OPBUILD_PACK": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=own, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), wanted, rtol=1e-5, atol=1e-6)


# -- where compiling is allowed ----------------------------------------------------------------------------------------

PATIENCE = 120.0
"""Seconds in which a few kernels are surely compiled."""


def uncommon_network(batch: int | str = 2) -> onnx.ModelProto:
    """Return a network of common operators that nobody fused in this order: the pack lacks some of its kernels."""
    weights = ", ".join(["0.01"] * 64 * 48)
    return onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 18]>
        uncommon (float[{batch},64] x) => (float[{batch},48] y) <float[64,48] w = {{ {weights} }}> {{
            a = Sin(x) b = Exp(a) c = Cos(x) d = Sub(b, c) e = Mul(d, a)
            p = MatMul(e, w) q = Softsign(p) r = Cos(q) y = Mul(r, p)
        }}"""
    )


@pytest.fixture
def rows() -> np.ndarray:
    """Return the network's input."""
    return np.random.default_rng(6).standard_normal((2, 64)).astype(np.float32)


def called_until_built(network: opbuild.Network, *arrays: np.ndarray) -> list[np.ndarray]:
    """Return the answers of calls until the kernels of the network are there, and one more."""
    found, latest = [network(*arrays)], time.monotonic() + PATIENCE
    while network.report.pending and time.monotonic() < latest:
        found.append(network(*arrays))
        time.sleep(0.01)
    return [*found, network(*arrays)]


@pytest.mark.parametrize("batch", [2, "n"])
def test_others_answer_until_the_kernels_are_compiled(
    batch: int | str, rows: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is compiled before the first answer; the kernels take their places between two calls, and are stored."""
    monkeypatch.setenv("OPBUILD_PACK", "1")
    model = uncommon_network(batch)
    wanted = onnxruntime_outputs(model, {"x": rows})[0]
    network = opbuild.compile(model.SerializeToString(), cache_path=tmp_path)
    first = network(rows)
    assert network.built == 0
    assert network.report.pending > 0
    assert f"{network.report.pending} operators to be compiled behind" in str(network.report)
    for found in (first, *called_until_built(network, rows)):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    assert network.report.pending == 0
    assert network.built > 0
    network.wait_until_stored()
    again = opbuild.compile(model.SerializeToString(), cache_path=tmp_path)
    np.testing.assert_allclose(again(rows), wanted, rtol=1e-5, atol=1e-6)
    assert again.built == again.report.pending == 0
    assert again.report.image


def threads_of(name: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which the threads that call a session's method are added."""
    own, found = getattr(Session, name), list[str]()

    def noted(*arguments: Any, **options: Any) -> Any:
        found.append(threading.current_thread().name)
        return own(*arguments, **options)

    monkeypatch.setattr(Session, name, noted)
    return found


def test_the_first_size_is_answered_before_a_program_for_others_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lowering with symbolic extents takes up to twice as long; the size itself is stored, as the process may end."""
    monkeypatch.setenv("OPBUILD_PACK", "1")
    text = '<ir_version: 8, opset_import: ["" : 18]> one (float[n,64] x) => (float[n,64] y) { y = Softmax(x) }'
    model, lowering = onnx.parser.parse_model(text).SerializeToString(), threads_of("lower", monkeypatch)
    network = opbuild.compile(model, cache_path=tmp_path)
    sizes = [np.random.default_rng(rows).standard_normal((rows, 64)).astype(np.float32) for rows in (2, 3, 5)]
    np.testing.assert_allclose(network(sizes[0]).sum(-1), 1, rtol=1e-5)
    assert threading.current_thread().name not in lowering
    assert network.built == network.report.pending == 0
    network.wait_until_stored()
    assert opbuild.compile(model, cache_path=tmp_path).run({"x": sizes[0]})["y"].shape == (2, 64)
    for x in sizes:
        np.testing.assert_allclose(network(x).sum(-1), 1, rtol=1e-5)
    assert until(lambda: network._improver is None)
    assert 1 <= len(lowering) <= 2


def test_a_first_size_that_is_sooner_compiled_for_is_lowered_once_in_front(
    rows: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program for other sizes is made behind it as ever; it was made in front, and the size planned twice."""
    monkeypatch.setenv("OPBUILD_PACK", "1")
    monkeypatch.setattr("opbuild.pipeline.first_tier.first_tier", lambda *_: None)
    planned, lowered = (threads_of(name, monkeypatch) for name in ("plan", "lower"))
    model = uncommon_network("n")
    network = opbuild.compile(model.SerializeToString(), cache_path=tmp_path)
    wanted = onnxruntime_outputs(model, {"x": rows})[0]
    np.testing.assert_allclose(network(rows), wanted, rtol=1e-5, atol=1e-6)
    assert network.built > 0
    assert (planned, lowered) == ([threading.current_thread().name], [])
    np.testing.assert_allclose(network(rows[:1]), wanted[:1], rtol=1e-5, atol=1e-6)
    assert lowered


SEGMENTS = """<ir_version: 8, opset_import: ["" : 18]>
segments (float[{rows},64] x) => (float[n,m] y) <int64[2] flat = {{1, -1}}> {{
    a = Sin(x) b = Cos(a) c = Mul(a, b) l = Less(c, x) d = NonZero(l) e = Cast<to = 1>(d)
    f = Cos(e) g = Sin(f) h = Mul(g, f) y = Reshape(h, flat)
}}"""


@pytest.mark.skipif(machine() != "x86_64", reason="the level is one of x86-64")
@pytest.mark.parametrize("large", [0, 2, 64])
@pytest.mark.parametrize("operator", ["MatMulInteger", "ConvInteger"])
def test_kernels_compute_products_of_bytes_whatever_the_weights(
    operator: str, large: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AVX2 has kernels for small weights, for some large ones and for many; numpy computed all but small ones."""
    monkeypatch.setenv("OPBUILD_PACK", "1")
    weights = np.ones((64, 64), np.int8)
    weights[:large] = 127
    drawn, shape = np.random.default_rng(large), (3, 64) if operator == "MatMulInteger" else (1, 64, 5, 5)
    kernel = weights if operator == "MatMulInteger" else weights.T.reshape(64, 64, 1, 1)
    node = onnx.helper.make_node(operator, ["x", "w"], ["p"])
    square, x = onnx.helper.make_node("Mul", ["p", "p"], ["y"]), drawn.integers(0, 256, shape).astype(np.uint8)
    ends = [
        onnx.helper.make_tensor_value_info(name, kind, shape)
        for name, kind in (("x", onnx.TensorProto.UINT8), ("y", onnx.TensorProto.INT32))
    ]
    graph = onnx.helper.make_graph(
        [node, square], "bytes", ends[:1], ends[1:], [onnx.numpy_helper.from_array(kernel, "w")]
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    network = opbuild.compile(model, cache_path=tmp_path, forbid_compile=True, target="x86-64-v3")
    rows = x.astype(np.int32).reshape(shape[:2] if operator == "MatMulInteger" else (64, 25))
    product = rows @ weights if operator == "MatMulInteger" else (weights.T.astype(np.int32) @ rows)
    np.testing.assert_array_equal(network(x).reshape(product.shape), product**2)
    assert not network.report.host


@pytest.mark.parametrize("rows", [2, "k"])
def test_others_answer_for_segments_until_their_kernels_are_compiled(
    rows: int | str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All segments are bound anew then: one in place of another gave the values behind it other sizes."""
    monkeypatch.setenv("OPBUILD_PACK", "1")
    model = onnx.parser.parse_model(SEGMENTS.format(rows=rows))
    generator = np.random.default_rng(8)
    network = opbuild.compile(model.SerializeToString(), cache_path=tmp_path)

    def call() -> None:
        x = generator.standard_normal((2, 64)).astype(np.float32)
        np.testing.assert_allclose(network(x), onnxruntime_outputs(model, {"x": x})[0], rtol=1e-5, atol=1e-6)

    call()
    assert network.report.breaks
    assert network.built == 0
    assert network.report.pending > 0
    latest, complete = time.monotonic() + PATIENCE, 0
    while complete < 5 and time.monotonic() < latest:
        call()
        complete = 0 if network.report.pending else complete + 1
    assert complete == 5
    assert network.built > 0
    again = opbuild.compile(model.SerializeToString(), cache_path=tmp_path)
    again(generator.standard_normal((2, 64)).astype(np.float32))
    assert again.built == again.report.pending == 0


def test_segments_whose_kernels_cannot_be_stored_get_them_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is told; they are not compiled for ever."""
    monkeypatch.setenv("OPBUILD_PACK", "1")
    monkeypatch.setattr("opbuild.store.operators.Operators.publish", lambda *_: "the disk is full")
    model, told = onnx.parser.parse_model(SEGMENTS.format(rows=2)), list[str]()
    network = opbuild.compile(
        model.SerializeToString(),
        cache_path=tmp_path,
        observer=lambda event: told.append(event.message) if isinstance(event, Warned) else None,
    )
    x = np.random.default_rng(8).standard_normal((2, 64)).astype(np.float32)
    wanted = onnxruntime_outputs(model, {"x": x})[0]
    for found in called_until_built(network, x):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    assert network.report.pending == 0
    assert network.built > 0
    assert told
    assert all("the disk is full" in each for each in told)
    begun = (network.built, [*told])
    for _ in range(5):
        np.testing.assert_allclose(network(x), wanted, rtol=1e-5, atol=1e-6)
        assert until(lambda: network._improver is None)
    assert begun == (network.built, told)


def test_segments_are_lowered_anew_behind_the_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The call that came when all kernels were there lowered all segments again, as long as the first one does."""
    monkeypatch.setenv("OPBUILD_PACK", "1")
    model, waited = onnx.parser.parse_model(SEGMENTS.format(rows="k")), list[str]()
    for name in ("lower", "plan"):
        step = getattr(Session, name)

        def noted(*arguments: Any, step: Any = step, name: str = name) -> Any:
            if threading.current_thread() is threading.main_thread():
                waited.append(name)
            return step(*arguments)

        monkeypatch.setattr(Session, name, noted)
    network = opbuild.compile(model.SerializeToString(), cache_path=tmp_path)
    sizes = [np.random.default_rng(rows).standard_normal((rows, 64)).astype(np.float32) for rows in (2, 3)]
    wanted = [onnxruntime_outputs(model, {"x": x})[0] for x in sizes]
    first = [network(x) for x in sizes]
    assert waited
    waited.clear()
    for x, own, one in zip(sizes, wanted, first, strict=True):
        for found in (one, *called_until_built(network, x)):
            np.testing.assert_allclose(found, own, rtol=1e-5, atol=1e-6)
    assert (network.report.pending, waited) == (0, [])
    kernels = {path.stem for path in tmp_path.glob("rank_0/kernel_meta/*.o")}
    assert network.built == len(kernels)


def test_segments_answer_where_nothing_can_be_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then nothing comes behind the calls."""
    monkeypatch.setenv("OPBUILD_PACK", "1")
    model = onnx.parser.parse_model(SEGMENTS.format(rows=2))
    network = opbuild.compile(model.SerializeToString(), cache_path=tmp_path, forbid_compile=True)
    for seed in (1, 2):
        x = np.random.default_rng(seed).standard_normal((2, 64)).astype(np.float32)
        np.testing.assert_allclose(network(x), onnxruntime_outputs(model, {"x": x})[0], rtol=1e-5, atol=1e-6)
    assert network.report.built == network.report.pending == 0


def test_who_asks_to_wait_gets_the_kernels(rows: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``wait=True`` compiles before it returns; where nothing can be compiled others answer nevertheless."""
    monkeypatch.setenv("OPBUILD_PACK", "1")
    model = uncommon_network().SerializeToString()
    assert opbuild.compile(model, cache_path=tmp_path / "other", wait=True, forbid_compile=True)(rows).shape == (2, 48)
    network = opbuild.compile(model, cache_path=tmp_path, wait=True)
    assert network.report.built > 0
    assert network.report.pending == 0


def test_kernels_that_cannot_be_compiled_behind_are_told_of(
    rows: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The network keeps those that it has, and one warning says why."""
    monkeypatch.setenv("OPBUILD_PACK", "1")
    told: list[str] = []
    model = uncommon_network()
    network = opbuild.compile(
        model.SerializeToString(),
        cache_path=tmp_path,
        observer=lambda event: told.append(event.message) if isinstance(event, Warned) else None,
    )

    def refuse(*_: object, **__: object) -> None:
        raise CompileError("no")

    monkeypatch.setattr("opbuild.builder.build.Builder.start", refuse)
    latest = time.monotonic() + PATIENCE
    while not told and time.monotonic() < latest:
        found = network(rows)
        time.sleep(0.01)
    np.testing.assert_allclose(found, onnxruntime_outputs(model, {"x": rows})[0], rtol=1e-5, atol=1e-6)
    assert told == ["uncommon keeps its first kernels: no"]
    assert network.report.pending > 0


def test_a_program_may_end_while_kernels_are_compiled_behind(rows: np.ndarray, tmp_path: Path) -> None:
    """It waits for nothing and leaves nothing broken: the next one answers, and one that waits builds the rest."""
    (tmp_path / "m.onnx").write_bytes(uncommon_network().SerializeToString())
    np.save(tmp_path / "x.npy", rows)
    code = (
        "import numpy as np, opbuild\n"
        "net = opbuild.compile('m.onnx', cache_path='cache')\n"
        "net(np.load('x.npy')); np.save('y.npy', net(np.load('x.npy')))\n"
        "print(net.report.pending)\n"
    )
    own = {**os.environ, "OPBUILD_PACK": "1", "OPBUILD_FIRST": "answer"}
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, env=own, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
    wanted = onnxruntime_outputs(uncommon_network(), {"x": rows})[0]
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), wanted, rtol=1e-5, atol=1e-6)
    network = opbuild.compile(tmp_path / "m.onnx", cache_path=tmp_path / "cache", wait=True)
    np.testing.assert_allclose(network(rows), wanted, rtol=1e-5, atol=1e-6)


def test_threads_call_while_kernels_take_their_places(
    rows: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each answer is right, whichever kernels computed it."""
    monkeypatch.setenv("OPBUILD_PACK", "1")
    model = uncommon_network()
    wanted = onnxruntime_outputs(model, {"x": rows})[0]
    network = opbuild.compile(model.SerializeToString(), cache_path=tmp_path)
    with ThreadPoolExecutor(4) as pool:
        for answers in pool.map(lambda _: called_until_built(network, rows), range(4)):
            for found in answers:
                np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    assert network.report.pending == 0
