"""A model's large tensors stay in its file; what is parsed says where they are."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from opbuild.backend.evaluate import evaluate
from opbuild.errors import OpbuildError
from opbuild.frontend.onnx_model import load_model
from opbuild.frontend.wire import LARGE, PLACE, without_large_tensors

LARGE_VALUES = np.arange(LARGE, dtype=np.float32)


def model(*initializers: TensorProto, constant: Any = None) -> onnx.ModelProto:
    """Return a model of initializers, and of a Constant node if a value is given for it."""
    nodes = [helper.make_node("Neg", ["w"], ["y"])]
    if constant is not None:
        nodes = [
            helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(constant, "c")),
            helper.make_node("Add", ["w", "c"], ["y"]),
        ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [], [output], list(initializers))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])


def test_a_large_initializer_is_left_where_it_is_and_read_from_there() -> None:
    """The parsed message is small, names the place, and the value is the file's."""
    data = model(numpy_helper.from_array(LARGE_VALUES, "w")).SerializeToString()
    slim = without_large_tensors(memoryview(data))[0]
    assert len(slim) < 500 < LARGE < len(data)
    tensor = onnx.ModelProto.FromString(slim).graph.initializer[0]
    begin, size = map(int, {e.key: e.value for e in tensor.external_data}[PLACE].split())
    assert data[begin : begin + size] == LARGE_VALUES.tobytes()
    graph = load_model(data).bind({}, evaluate)
    np.testing.assert_array_equal(graph.constants["y"], -LARGE_VALUES)


def test_a_large_constant_node_is_left_where_it_is() -> None:
    """Exporters that write weights as Constant nodes are served too."""
    small = numpy_helper.from_array(np.float32([2.0]), "w")
    data = model(small, constant=LARGE_VALUES).SerializeToString()
    assert len(without_large_tensors(memoryview(data))[0]) < 500
    graph = load_model(data).bind({}, evaluate)
    np.testing.assert_array_equal(graph.constants["y"], LARGE_VALUES + 2)


@pytest.mark.parametrize("count", [LARGE // 4 - 1, LARGE // 4])
def test_small_tensors_stay_in_the_message(count: int) -> None:
    """One byte decides; both sizes give the same values."""
    values = np.arange(count, dtype=np.float32)
    data = model(numpy_helper.from_array(values, "w")).SerializeToString()
    tensor = onnx.ModelProto.FromString(without_large_tensors(memoryview(data))[0]).graph.initializer[0]
    assert bool(tensor.raw_data) == (count * 4 < LARGE)
    graph = load_model(data).bind({}, evaluate)
    np.testing.assert_array_equal(graph.constants["y"], -values)


def test_what_is_small_is_passed_on_byte_for_byte() -> None:
    """A model without large tensors is the same message."""
    data = model(numpy_helper.from_array(np.float32([1.0]), "w")).SerializeToString()
    assert without_large_tensors(memoryview(data))[0] == data


def test_a_tensor_that_names_a_place_outside_the_file_is_refused() -> None:
    """A file cannot make the reader look outside its own bytes."""
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for place in ("1000000 16", "-16 16", "x", "0 99999999"):
        del tensor.external_data[:]
        tensor.external_data.add(key=PLACE, value=place)
        with pytest.raises(OpbuildError):
            load_model(model(tensor).SerializeToString()).bind({}, evaluate)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_damaged_file_gives_an_error_or_a_model_and_never_anything_else(data: st.DataObject) -> None:
    """Cut and flipped bytes, also in the lengths that are followed."""
    content = bytearray(model(numpy_helper.from_array(LARGE_VALUES, "w")).SerializeToString())
    content = content[: data.draw(st.integers(1, len(content)))]
    for _ in range(data.draw(st.integers(0, 3))):
        content[data.draw(st.integers(0, min(len(content), 120) - 1))] = data.draw(st.integers(0, 255))
    with suppress(OpbuildError):
        load_model(bytes(content)).bind({}, evaluate)
