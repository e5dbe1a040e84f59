"""Dropping a network frees all of it at once: nothing waits for Python's cyclic collector.

A service that compiles, calls and drops networks would otherwise run out of descriptors long before that runs.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import opbuild
import opbuild.onnxruntime as ort
from generated.random_segments import RandomSegments
from opbuild.backend.evaluate import evaluate
from opbuild.errors import OpbuildError
from opbuild.frontend.onnx_model import load_model
from support.fuzzing import CAMPAIGN, SEED
from support.small_network import small_model
from support.uncollected import held, left_over
from support.until import until

pytestmark = [pytest.mark.usefixtures("kept_objects")]

Make = Callable[[Path], object]
FEATURES = 256
NETWORKS = 20
KEPT_BY_OTHERS = {"torch module"}
"""Made by what refers to its networks itself, also when its caches were reset."""


def _rows(count: int) -> np.ndarray:
    return np.ones((count, FEATURES), np.float32)


def _model(nodes: list[onnx.NodeProto], extent: str | int, **constants: np.ndarray) -> bytes:
    """Return a network from ``x`` to ``y``."""
    graph = helper.make_graph(
        nodes,
        "dropped",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (extent, 4))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]).SerializeToString()


def _selecting() -> bytes:
    """Return a network in segments: how many elements there are depends on data."""
    return _model(
        [
            helper.make_node("NonZero", ["x"], ["places"]),
            helper.make_node("Transpose", ["places"], ["rows"], perm=[1, 0]),
            helper.make_node("GatherND", ["x", "rows"], ["found"]),
            helper.make_node("Sigmoid", ["found"], ["y"]),
        ],
        "n",
    )


def _file(folder: Path) -> Path:
    path = folder / "small.onnx"
    if not path.exists():
        onnx.save(small_model(), path)
    return path


def _one_size(folder: Path) -> None:
    network = opbuild.compile(_file(folder), input_shapes={"x": (64, FEATURES)})
    network(_rows(64))
    network.wait_until_stored()


def _open_sizes(folder: Path) -> None:
    network = opbuild.compile(_file(folder))
    for count in (64, 3, 7, 100, 1):
        network(_rows(count))
    network.wait_until_stored()


def _parts(folder: Path) -> None:
    network = opbuild.compile(_selecting())
    for count in (3, 5, 8, 13):
        network(np.eye(count, 4, dtype=np.float32))


def _session(folder: Path) -> None:
    session = ort.InferenceSession(_file(folder))
    session.run(None, {"x": _rows(64)})
    binding = session.io_binding()
    binding.bind_cpu_input("x", _rows(3))
    binding.bind_output("y")
    session.run_with_iobinding(binding)


def _graph(folder: Path) -> None:
    model = load_model(_model([helper.make_node("Sigmoid", ["x"], ["y"])], 3))
    opbuild.compile_graph(model.bind({"x": (3, 4)}, evaluate))(np.ones((3, 4), np.float32))


def _offline(folder: Path) -> None:
    if not (folder / "small.om").exists():
        opbuild.export(_file(folder), folder / "small.om", ranges={"x": ((1, 64), FEATURES)})
    network = opbuild.load(folder / "small.om")
    for count in (64, 3, 9):
        network(_rows(count))


def _wrong_input(folder: Path) -> None:
    network = opbuild.compile(_file(folder))
    for given in (np.ones((2, 3), np.float32), np.ones((2, FEATURES), np.complex64), "no array"):
        with contextlib.suppress(OpbuildError):
            network(given)
    network.profile([_rows(2)], runs=1)


def _not_a_model(folder: Path) -> None:
    for content in (b"", b"not a model", _selecting()[:-20]):
        with contextlib.suppress(OpbuildError):
            opbuild.compile(content)


def _wrong_model(folder: Path) -> None:
    weights = np.ones((2, 5, 3, 3), np.float32)
    with contextlib.suppress(OpbuildError):
        opbuild.compile(_model([helper.make_node("Conv", ["x", "w"], ["y"])], 3, w=weights))


def _torch_module(folder: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed (the extra [torch])")
    torch._dynamo.reset()
    module = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    compiled = torch.compile(module, backend="opbuild")
    with torch.no_grad():
        for count in (3, 5):
            compiled(torch.ones(count, 8))
    torch._dynamo.reset()  # torch keeps what it has compiled until then


def _training(folder: Path) -> None:
    import opbuild.mindspore as ms
    from opbuild.mindspore import nn

    network = nn.WithLossCell(nn.Dense(8, 4), nn.MSELoss())
    step = nn.TrainOneStepCell(network, nn.SGD(network.trainable_params(), 0.1))
    for _ in range(2):
        step(ms.Tensor(np.ones((3, 8), np.float32)), ms.Tensor(np.zeros((3, 4), np.float32)))


WAYS: dict[str, Make] = {
    "one size": _one_size,
    "open sizes": _open_sizes,
    "in segments": _parts,
    "session": _session,
    "graph": _graph,
    "offline model": _offline,
    "wrong input": _wrong_input,
    "not a model": _not_a_model,
    "wrong model": _wrong_model,
    "torch module": _torch_module,
    "training": _training,
}


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_dropped_network_waits_for_no_collector(way: str, tmp_path: Path) -> None:
    """Whatever way it was made, built or refused: no object of opbuild's is part of a cycle."""
    assert left_over(lambda: WAYS[way](tmp_path)) == []


@pytest.mark.slow
@pytest.mark.parametrize("way", sorted(WAYS.keys() - KEPT_BY_OTHERS))
def test_dropped_networks_hold_no_descriptors_maps_or_threads(way: str, tmp_path: Path) -> None:
    """Of twenty networks, made and dropped with the collector off, each would leave one; the process may have more."""
    WAYS[way](tmp_path)
    WAYS[way](tmp_path)
    gc.collect()
    gc.disable()
    try:
        before = held()
        for _ in range(NETWORKS):
            WAYS[way](tmp_path)
        until(lambda: not _grown(before))  # what began beside a build may go on behind it
        grown = _grown(before)
    finally:
        gc.enable()
    assert grown == {}


def _grown(before: dict[str, int]) -> dict[str, int]:
    return {name: count - before[name] for name, count in held().items() if count >= before[name] + NETWORKS}


@pytest.mark.slow
def test_a_build_that_may_compile_nothing_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of a build has frames in which the build is; dropping it frees both."""
    monkeypatch.setenv("OPBUILD_PACK", "0")
    monkeypatch.setenv("OPBUILD_FORBID_COMPILE", "1")

    def refused() -> None:
        with pytest.raises(OpbuildError):
            opbuild.compile(_file(tmp_path), input_shapes={"x": (64, FEATURES)})

    assert left_over(refused) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEED, SEED + (CAMPAIGN // 20 or 2)))
def test_random_networks_in_segments_are_freed_at_once(seed: int, tmp_path: Path) -> None:
    """Branches, loops and what depends on data: nothing of what was bound for them is part of a cycle."""
    found = RandomSegments(seed)

    def run() -> None:
        network = opbuild.compile(found.model)
        for size in (2, 3, 4):
            with contextlib.suppress(OpbuildError):
                network(**found.feeds(size))

    assert left_over(run) == []
