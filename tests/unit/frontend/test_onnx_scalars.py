"""Constants without dimensions stay so when onnx types an operator for which opbuild has no rule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from opbuild.backend.evaluate import evaluate
from opbuild.errors import UnsupportedOperatorError
from opbuild.frontend.onnx_model import load_model

I64, F32, U8 = np.int64, np.float32, np.uint8


QUANTIZED = {
    "as": F32(0.5), "az": U8(3), "b": np.ones((3, 4), U8), "bs": F32(1), "bz": U8(1), "ys": F32(2), "yz": U8(0),
}  # fmt: skip


@pytest.mark.parametrize(
    ("op_type", "shape", "known", "wanted"),
    [
        ("DFT", (1, 10, 1), {"length": I64(8), "axis": I64(1)}, (1, 8, 2)),
        ("STFT", (1, 128, 1), {"step": I64(8), "window": np.ones(16, F32), "length": I64(16)}, (1, 15, 9, 2)),
        ("QLinearMatMul", (2, 3), QUANTIZED, (2, 4)),
    ],
)
def test_an_operator_is_typed_with_its_scalars(
    op_type: str, shape: tuple[int, ...], known: dict[str, Any], wanted: tuple[int, ...]
) -> None:
    """They came to onnx's inference with one dimension, and it refused; STFT is one-sided unless it says otherwise."""
    dtype = TensorProto.UINT8 if op_type == "QLinearMatMul" else TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node(op_type, ["x", *known], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", dtype, shape)],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in known.items()],
    )
    loaded = load_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]))
    assert loaded.bind({}, evaluate).types["y"].shape == wanted


def test_a_sequence_is_refused_as_one() -> None:
    """Not for the scalar that it is split by, which is valid."""
    nodes = [
        helper.make_node("SplitToSequence", ["x", "size"], ["s"], axis=0),
        helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=0),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [6])],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(np.asarray(I64(2)), "size")],
    )
    with pytest.raises(UnsupportedOperatorError, match="makes a sequence"):
        load_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])).bind({}, evaluate)
