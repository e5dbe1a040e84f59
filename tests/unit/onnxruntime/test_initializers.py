"""Models' bytes with other values of their weights: what ``onnx`` reads of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import opbuild.onnxruntime as ort
from opbuild.onnxruntime.capi._pybind_state import Fail, NotImplemented  # noqa: A004  ONNX Runtime's name
from opbuild.onnxruntime.initializers import with_values
from opbuild.platform.paths import Path as OwnPath

A, B = np.arange(6, dtype=np.float32).reshape(2, 3), np.arange(4, dtype=np.int64)


def _tensor(array: Any, name: str, *entries: tuple[str, str]) -> TensorProto:
    """Return a tensor, with entries one whose data are in a file."""
    made = numpy_helper.from_array(array, name)
    if entries:
        made.ClearField("raw_data")
        made.data_location = TensorProto.EXTERNAL
        for key, value in entries:
            made.external_data.add(key=key, value=value)
    return made


def _model(*tensors: TensorProto, nodes: Any = ()) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
    return helper.make_model(helper.make_graph(nodes, "g", [x], [x], tensors), producer_name="maker")


def _read(model: onnx.ModelProto, options: Any = None, folder: Path | None = None, left_out: Any = ()) -> Any:
    data = memoryview(model.SerializeToString())
    place = None if folder is None else OwnPath(folder)
    return onnx.load_from_string(with_values(data, options or ort.SessionOptions(), place, left_out))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a file of data: A behind four bytes, B behind it."""
    (tmp_path / "data").write_bytes(b"----" + A.tobytes() + B.tobytes())
    return tmp_path


_A = ("location", "data"), ("offset", "4"), ("length", "24")
_B = ("location", "data"), ("offset", "28")


def test_data_in_files_become_part_of_the_model_wherever_a_tensor_is(folder: Path) -> None:
    """Initializers, constants, and both in a branch; all else stays as it is, byte for byte."""
    plain = _tensor(B + 1, "plain")
    constant = helper.make_node("Constant", [], ["c"], value=_tensor(B, "", *_B))
    inner = helper.make_graph([constant], "inner", [], [], [_tensor(A, "a", *_A)])
    nodes = [helper.make_node("If", ["x"], ["y"], then_branch=inner, else_branch=inner), constant]
    model = _model(_tensor(A, "a", *_A), plain, nodes=nodes)
    found = _read(model, folder=folder)
    a, other = found.graph.initializer
    np.testing.assert_array_equal(numpy_helper.to_array(a), A)
    assert other == plain
    branch = found.graph.node[0].attribute[0].g
    np.testing.assert_array_equal(numpy_helper.to_array(branch.initializer[0]), A)
    for node in (branch.node[0], found.graph.node[1]):
        np.testing.assert_array_equal(numpy_helper.to_array(node.attribute[0].t), B)
    assert (found.producer_name, found.opset_import) == ("maker", model.opset_import)
    assert _read(_model(plain)).SerializeToString() == _model(plain).SerializeToString()


def test_names_of_a_branch_are_none_of_the_models_weights(folder: Path) -> None:
    """A value is for the outermost graph; one that is left out becomes an input."""
    inner = helper.make_graph([], "inner", [], [], [_tensor(A, "a"), _tensor(A, "b", *_A)])
    nodes = [helper.make_node("If", ["x"], ["y"], then_branch=inner, else_branch=inner)]
    options = ort.SessionOptions()
    options.add_initializer("a", ort.OrtValue(A + 1))
    found = _read(_model(_tensor(A, "a"), _tensor(B, "b"), nodes=nodes), options, folder, ["b"])
    (a,) = found.graph.initializer
    np.testing.assert_array_equal(numpy_helper.to_array(a), A + 1)
    np.testing.assert_array_equal(numpy_helper.to_array(found.graph.node[0].attribute[0].g.initializer[0]), A)


@pytest.mark.parametrize("dtype", [ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.bfloat16, np.bool_, np.float16])
def test_a_value_of_any_type_is_written_as_onnx_has_it(dtype: Any) -> None:
    """Elements of fewer than 8 bits are packed, an odd number of them too."""
    array = np.array([1, 0, 1, 1, 0]).astype(dtype)
    options = ort.SessionOptions()
    options.add_initializer("w", ort.OrtValue(array))
    (found,) = _read(_model(_tensor(np.zeros(5, dtype), "w")), options).graph.initializer
    np.testing.assert_array_equal(numpy_helper.to_array(found).astype(np.float32), array.astype(np.float32))


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        ((("location", "../data"),), "leads outside the folder"),
        ((("location", "none"),), "does not exist"),
        ((("location", "data"), ("offset", "50")), "out of bounds"),
        ((("location", "data"), ("length", "12")), "out of bounds"),
        ((("location", "data"), ("offset", "-4")), "no number of bytes"),
    ],
)
def test_data_that_are_not_there_are_refused(folder: Path, entries: Any, text: str) -> None:
    """By the weight's name."""
    with pytest.raises(Fail, match=f"a.*{text}"):
        _read(_model(_tensor(A, "a", *entries)), folder=folder)
    with pytest.raises(Fail, match="the model is bytes"):
        _read(_model(_tensor(A, "a", *_A)))


def test_text_is_not_replaced() -> None:
    """It has no bytes to write."""
    options = ort.SessionOptions()
    options.add_initializer("t", ort.OrtValue(np.array(["b"], object)))
    with pytest.raises(NotImplemented, match="the text t cannot be replaced"):
        _read(_model(_tensor(np.array(["a"], object), "t")), options)
