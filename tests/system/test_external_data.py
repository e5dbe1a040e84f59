"""External data that is written through a map, as training loops do: results are of the weights that are there now."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import opbuild
from opbuild.files import mapping as files
from processes import build_and_run

SIZE = 32 * 1024


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A network ``x + w`` whose weights lie beside it."""
    path = tmp_path / "model.onnx"
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [SIZE]) for name in "xy")
    weights = numpy_helper.from_array(np.zeros(SIZE, np.float32), "w")
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "sum", [x], [y], [weights])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(proto, path, save_as_external_data=True, location="weights.data", size_threshold=0)
    return path


@pytest.mark.parametrize("flushed", [False, True], ids=["dirty", "flushed"])
def test_weights_written_again_through_a_map_are_used(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flushed: bool
) -> None:
    """F82: a second store to a page that is dirty moves no time; the network of the first weights was started."""
    monkeypatch.setattr(files, "_SETTLED", -1)  # as if one had waited
    path, x = model.parent / "weights.data", np.arange(SIZE, dtype=np.float32)
    mapped = np.memmap(path, np.float32, "r+", shape=(SIZE,))
    for value in (1, 2, 3, 2):
        mapped[:] = value
        if flushed:
            mapped.flush()
            mapped[:] = value  # so that the page is dirty again
        network = opbuild.compile(model, cache_path=tmp_path / "cache")
        np.testing.assert_array_equal(network(x), x + value)
    mapped[:] = 5
    outcome = build_and_run(model, tmp_path / "cache", {"x": x})
    np.testing.assert_array_equal(outcome.outputs[0], x + 5)
    del mapped
    for _ in range(2):
        network = opbuild.compile(model, cache_path=tmp_path / "cache")
        np.testing.assert_array_equal(network(x), x + 5)
    assert network.report.image
    np.memmap(path, np.float32, "r+", shape=(SIZE,))[:] = 6  # through a map made since: the times move
    np.testing.assert_array_equal(opbuild.compile(model, cache_path=tmp_path / "cache")(x), x + 6)


def test_a_model_written_again_through_a_map_is_another(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F82: the same holds for weights in the model's own file."""
    monkeypatch.setattr(files, "_SETTLED", -1)
    whole, x = tmp_path / "whole.onnx", np.arange(SIZE, dtype=np.float32)
    proto = onnx.load(model)
    onnx.save(proto, whole)
    zeros = whole.read_bytes().index(bytes(4 * SIZE))
    mapped = np.memmap(whole, np.float32, "r+", offset=zeros, shape=(SIZE,))
    for value in (1, 2, 1):
        mapped[:] = value
        np.testing.assert_array_equal(opbuild.compile(whole, cache_path=tmp_path / "cache")(x), x + value)
