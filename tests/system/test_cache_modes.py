"""Cache modes end to end: what is compiled, read and written with enable, force and disable."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import opbuild
from opbuild.store import ageing
from support.aged_entries import fill
from support.fuzzing import CAMPAIGN
from support.processes import environment

pytestmark = pytest.mark.usefixtures("kept_objects")

WEIGHTS = np.linspace(-1, 1, 256 * 256, dtype=np.float32).reshape(256, 256)
X = np.linspace(0.1, 2, 4 * 256, dtype=np.float32).reshape(4, 256)

AFTER: dict[str, Callable[[Any], Any]] = {
    "Neg": np.negative,
    "Abs": np.abs,
    "Tanh": np.tanh,
    "Relu": lambda y: np.maximum(y, 0),
    "Sigmoid": lambda y: 1 / (1 + np.exp(-y)),
    "Sin": np.sin,
    "Cos": np.cos,
    "Floor": np.floor,
}
"""What follows the product in the models below, each another operator; the product they share."""


def save(path: Path, after: str = "Erf") -> Path:
    """Write a model of a product and one more operator in another row of the graph; return its path."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node(after, ["x"], ["q"]),
         helper.make_node("Concat", ["p", "q"], ["y"], axis=1)],
        after.lower(),
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (4, 256))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (4, 512))],
        [numpy_helper.from_array(WEIGHTS, "w")],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def state(folder: Path) -> dict[str, tuple[int, int]]:
    """Return inode and time of modification of each file."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): (path.stat().st_ino, path.stat().st_mtime_ns) for path in files}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that holds two models, ``one.onnx`` and ``two.onnx``, which lie beside it."""
    folder = tmp_path_factory.mktemp("modes")
    for name, after in (("one", "Neg"), ("two", "Tanh")):
        opbuild.compile(save(folder / f"{name}.onnx", after), cache_path=folder / "cache")
    return folder


@pytest.mark.slow
def test_disable_leaves_no_file_and_compiles_each_time(cache: Path, tmp_path: Path) -> None:
    """Neither an empty folder nor a full one is touched, and nothing of it is used."""
    before = state(cache)
    for folder in (tmp_path / "new", cache / "cache"):
        net = opbuild.compile(cache / "one.onnx", cache_path=folder, op_compiler_cache_mode="disable")
        assert (net.report.reused, net.report.image) == (0, False)
        assert net.report.built == len(net.report.operators) > 0
        np.testing.assert_allclose(net(X), np.hstack([X @ WEIGHTS, -X]), rtol=1e-3, atol=1e-3)
    assert state(cache) == before
    assert list(tmp_path.iterdir()) == []


def test_force_replaces_this_builds_entries_and_no_others(cache: Path) -> None:
    """Every operator is compiled again for that reason; other networks' entries stay; then the new ones are used."""
    before = state(cache / "cache")
    net = opbuild.compile(cache / "one.onnx", cache_path=cache / "cache", op_compiler_cache_mode="force")
    assert (net.report.reused, net.report.image) == (0, False)
    assert {operator.reason for operator in net.report.operators} == {"a rebuild was asked for"}
    after = state(cache / "cache")
    own = {f"rank_0/kernel_meta/{operator.name}.json" for operator in net.report.operators}
    operators = {name for name in before if name.startswith("rank_0/kernel_meta/") and name.endswith(".json")}
    assert {name for name in operators if after[name] != before[name]} == own
    assert operators - own
    assert set(before) <= set(after)
    np.testing.assert_allclose(net(X), np.hstack([X @ WEIGHTS, -X]), rtol=1e-3, atol=1e-3)
    again = opbuild.compile(cache / "one.onnx", cache_path=cache / "cache", forbid_compile=True)
    assert again.report.image


def test_force_compiles_an_operator_once_for_all_signatures(tmp_path: Path) -> None:
    """What this call has just compiled need not be compiled again for another input shape."""
    path = save(tmp_path / "model.onnx", "Neg")
    model = onnx.load(path)
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    net = opbuild.compile(model, cache_path=tmp_path / "cache", op_compiler_cache_mode="force")
    net(X)
    first = net.report
    net(np.vstack([X] * 2))
    assert first.built == len(first.operators)
    assert {operator.name for operator in first.operators if operator.status == "built"}.isdisjoint(
        operator.name for operator in net.report.operators if operator.status == "built"
    )


@pytest.mark.slow
def test_a_cache_dir_holds_its_targets_folder_and_the_policy(tmp_path: Path) -> None:
    """With ``op_compiler_cache_dir`` entries lie in the target's folder and ``op_cache.ini`` above it."""
    net = opbuild.compile(save(tmp_path / "m.onnx", "Neg"), op_compiler_cache_dir=tmp_path / "kernel_cache")
    (target,) = (path for path in (tmp_path / "kernel_cache").iterdir() if path.is_dir())
    assert (tmp_path / "kernel_cache" / "op_cache.ini").is_file()
    assert {operator.name for operator in net.report.operators} <= {path.stem for path in target.glob("*.json")}
    again = opbuild.compile(tmp_path / "m.onnx", op_compiler_cache_dir=tmp_path / "kernel_cache", forbid_compile=True)
    assert again.report.image


def test_a_run_that_adds_nothing_does_not_list_the_folder(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network that starts from its image, or is put together and not stored, costs no scan."""

    def listed(*_: object) -> None:
        raise AssertionError("the folder was listed")

    monkeypatch.setattr(ageing, "tidy", listed)
    assert opbuild.compile(cache / "two.onnx", cache_path=cache / "cache").report.image


def test_ageing_in_a_build_spares_what_it_uses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder far beyond its maximum loses what is old; the network just built stays whole and starts again."""
    monkeypatch.setenv("ASCEND_MAX_OP_CACHE_SIZE", "10")
    fill(tmp_path / "rank_0" / "kernel_meta", 50, 20)
    path = save(tmp_path / "m.onnx", "Neg")
    net = opbuild.compile(path, cache_path=tmp_path)
    left = {path.stem for path in (tmp_path / "rank_0" / "kernel_meta").glob("*.json")}
    assert {operator.name for operator in net.report.operators} <= left
    assert len(left) < 20
    assert opbuild.compile(path, cache_path=tmp_path, forbid_compile=True).report.image


FORCE = """
import sys
import opbuild
model, cache, stop = sys.argv[1:]
import pathlib
rounds = 0
while rounds < 2 or not pathlib.Path(stop).exists():
    net = opbuild.compile(model, cache_path=cache, op_compiler_cache_mode="force")
    assert net.report.reused == 0, net.report
    rounds += 1
print(rounds)
"""

ENABLE = """
import sys
import numpy as np
import opbuild
model, cache, inputs, outputs = sys.argv[1:]
x = np.load(inputs)
for _ in range(3):
    y = opbuild.compile(model, cache_path=cache)(x)
np.save(outputs, y)
"""


@pytest.mark.slow
def test_force_in_a_loop_harms_no_build_beside_it(tmp_path: Path) -> None:
    """Processes build other models that share an operator with the forced one: no failure, right outputs.

    There are four; ``make campaign`` starts eight.
    """
    beside = dict(list(AFTER.items())[: 8 if CAMPAIGN else 4])
    cache, stop, inputs = tmp_path / "cache", tmp_path / "stop", tmp_path / "x.npy"
    np.save(inputs, X)
    forced = save(tmp_path / "forced.onnx", "Erf")
    models = {after: save(tmp_path / f"{after}.onnx", after) for after in beside}

    def start(script: str, *arguments: Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", script, *map(str, arguments)],
            env=environment(OPBUILD_NUM_THREADS="1", MS_BUILD_PROCESS_NUM="1"),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    forcing = start(FORCE, forced, cache, stop)
    try:
        builds = [start(ENABLE, path, cache, inputs, tmp_path / f"{after}.npy") for after, path in models.items()]
        said = [build.communicate()[1] for build in builds]
    finally:
        stop.write_text("")
    rounds, problem = forcing.communicate()
    assert (forcing.returncode, problem) == (0, "")
    assert int(rounds) >= 2
    assert [(build.returncode, text) for build, text in zip(builds, said, strict=True)] == [(0, "")] * len(builds)
    for after, function in beside.items():
        expected = np.hstack([X @ WEIGHTS, function(X)])
        np.testing.assert_allclose(np.load(tmp_path / f"{after}.npy"), expected, rtol=1e-3, atol=1e-3)
