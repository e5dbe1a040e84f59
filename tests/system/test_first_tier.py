"""Networks whose kernels are not there and cannot be compiled: what is there computes them, and numpy the rest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import halide as hl
import numpy as np
import onnx
import onnx.parser
import pytest

import opbuild
from opbuild.errors import CompileForbiddenError
from opbuild.events import Warned
from support import networks
from support.comparison import onnxruntime_outputs

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
    built = opbuild.compile(model, cache_path=tmp_path)
    assert built.report.built > 0
    assert not built.report.host
    again = opbuild.compile(model, cache_path=tmp_path, forbid_compile=True)
    assert again.report.image
    np.testing.assert_allclose(again(image), wanted, rtol=1e-5, atol=1e-6)


def test_kernels_that_are_there_compute_their_part(
    model: bytes, image: np.ndarray, wanted: np.ndarray, tmp_path: Path
) -> None:
    """Of a network of which one kernel was removed, that part alone is numpy's."""
    built = opbuild.compile(model, cache_path=tmp_path)
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
