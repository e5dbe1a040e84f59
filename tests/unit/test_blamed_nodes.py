"""Errors about a model name the node that is at fault, as a field: what reads them reads no message."""

from __future__ import annotations

import pickle
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from opbuild.config import Config
from opbuild.errors import ModelError, UnsupportedOperatorError
from opbuild.graph.passes.blame import blaming
from opbuild.graph.types import Node
from opbuild.offline.check import check

X = helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 6))
SIZES = helper.make_tensor_value_info("sizes", TensorProto.INT64, (2,))
Y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)


def write(folder: Path, *nodes: onnx.NodeProto) -> Path:
    """Write a model of ``x`` and ``sizes``."""
    model = helper.make_model(helper.make_graph(list(nodes), "g", [X, SIZES], [Y]))
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_a_node_is_not_blamed_for_a_value_of_its_name(tmp_path: Path) -> None:
    """The message about ``last`` mentions the value ``first``, and the node of that name was blamed."""
    path = write(
        tmp_path,
        helper.make_node("Abs", ["sizes"], ["first"], name="first"),
        helper.make_node("Reshape", ["x", "first"], ["y"], name="last"),
    )
    checked = check(path, config=Config(cache_path=tmp_path))
    assert [node.name for node in checked.failed] == ["last"]
    assert "'first'" in checked.failed[0].remark


def test_the_innermost_node_is_named() -> None:
    """An error that has a node keeps it on its way out."""
    inner, outer = (Node("Abs", ("x",), ("y",), {}, name) for name in ("inner", "outer"))
    with pytest.raises(UnsupportedOperatorError) as caught, blaming(outer), blaming(inner):
        raise UnsupportedOperatorError("no", "replace it")
    assert caught.value.node == "inner"


def test_a_node_survives_a_process() -> None:
    """Errors travel between ranks and workers as they are."""
    error = ModelError("no", "yes", command="--yes")
    error.node = "last"
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.message, copy.hint, copy.command_hint, copy.node) == ("no", "yes", "--yes", "last")
