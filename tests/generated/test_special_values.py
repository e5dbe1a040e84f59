"""What operators give for infinities and NaN where peers differ: what the standard's text says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from generated.ways import every_way

VALUES = (np.nan, np.inf, -np.inf, -0.0, 2.0, -2.0)


def model(op_type: str, dtype: str, **bounds: float) -> onnx.ModelProto:
    """Return a model of one node; ``low`` and ``high`` become its second and third input."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    inputs = ["x", *(name if name in bounds else "" for name in ("low", "high"))]
    while not inputs[-1]:
        inputs.pop()
    graph = helper.make_graph(
        [helper.make_node(op_type, inputs, ["y"])],
        "special",
        [helper.make_tensor_value_info("x", kind, [len(VALUES)])],
        [helper.make_tensor_value_info("y", kind, [len(VALUES)])],
        [numpy_helper.from_array(np.array(value, dtype), name) for name, value in bounds.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_absent_bounds_of_clip_are_the_type_s_finite_limits(dtype: str, tmp_path: Path) -> None:
    """The text: "they default to numeric_limits::lowest() and numeric_limits::max()"; infinity was kept."""
    x = np.array(VALUES, dtype)
    limits = np.finfo(dtype)
    for bounds in ({}, {"low": 0.0}, {"high": 1.0}):
        wanted = np.minimum(np.maximum(x, bounds.get("low", limits.min)), bounds.get("high", limits.max))
        for way, (got,) in every_way(model("Clip", dtype, **bounds), {"x": x}, tmp_path).items():
            np.testing.assert_array_equal(got, wanted.astype(dtype), err_msg=f"{way}, {bounds}")


def test_shrink_of_nan_is_0(tmp_path: Path) -> None:
    """The text: y is x + bias below -lambd, x - bias above lambd, "otherwise 0"; NaN was passed on."""
    x = np.array(VALUES, np.float32)
    for way, (got,) in every_way(model("Shrink", "float32"), {"x": x}, tmp_path).items():
        np.testing.assert_array_equal(got, np.float32([0, np.inf, -np.inf, 0, 2, -2]), err_msg=way)
