"""What selects elements by their values, on the host: the same as ONNX Runtime, ties and empty results included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from opbuild.backend.host.evaluate import evaluate, is_native
from opbuild.graph.types import Node
from support.comparison import onnxruntime_outputs

RNG = np.random.default_rng(84)


def compare(op_type: str, inputs: list[Any], outputs: int = 1, **attrs: Any) -> list[Any]:
    """Compute a node here and by ONNX Runtime; both must agree exactly."""
    names = tuple("" if each is None else f"i{index}" for index, each in enumerate(inputs))
    results = tuple(f"o{index}" for index in range(outputs))
    node = Node(op_type, names, results, attrs, "node")
    assert is_native(node)
    got = evaluate(node, inputs, 21)
    feeds = {name: each for name, each in zip(names, inputs, strict=True) if name}
    declared = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(each.dtype), each.shape)
        for name, each in feeds.items()
    ]
    proto = helper.make_node(op_type, names, results, **attrs)
    graph = helper.make_graph([proto], "g", declared, [helper.make_empty_tensor_value_info(each) for each in results])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    for one, other in zip(got, onnxruntime_outputs(model, feeds), strict=True):
        assert np.asarray(one).dtype == other.dtype
        np.testing.assert_array_equal(one, other, strict=True)
    return list(got)


def test_a_scalar_has_no_dimension_in_which_it_lies() -> None:
    """ONNX's standard says a shape of (0, N); ONNX Runtime gives (1, N), as older releases of numpy did."""
    node = Node("NonZero", ("x",), ("y",), {}, "node")
    for value, count in ((3.0, 1), (0.0, 0)):
        assert evaluate(node, [np.array(value, np.float32)], 21)[0].shape == (0, count)


@pytest.mark.parametrize("shape", [(1,), (5,), (3, 4), (0, 3), (2, 1, 3)])
@pytest.mark.parametrize("dtype", ["bool", "int64", "float32"])
def test_places_of_elements_that_are_not_zero(shape: tuple[int, ...], dtype: str) -> None:
    """A row for each dimension, in the order of the elements."""
    compare("NonZero", [RNG.integers(0, 2, shape).astype(dtype)])


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_slices_that_a_condition_chooses(axis: int | None) -> None:
    """A condition may be shorter than what it chooses from, and may choose nothing."""
    x = RNG.standard_normal((3, 4)).astype(np.float32)
    attrs = {} if axis is None else {"axis": axis}
    for condition in ([True, False, True], [False, False], [True]):
        compare("Compress", [x, np.array(condition)], **attrs)


@pytest.mark.parametrize("ordered", [0, 1])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_different_elements_or_slices(axis: int | None, ordered: int) -> None:
    """With where each first stands, which each is, and how many there are."""
    attrs = {"sorted": ordered} | ({} if axis is None else {"axis": axis})
    for dtype in ("int64", "float32"):
        compare("Unique", [RNG.integers(0, 2, (5, 4)).astype(dtype)], 4, **attrs)
    if axis in (None, 0):
        compare("Unique", [np.float32([2, 1, 1, 3, 2])], 4, **attrs)


@pytest.mark.parametrize("seed", range(6))
def test_boxes_that_overlap_less_than_the_limit(seed: int) -> None:
    """Corners may come in any order, scores may be equal, boxes may be empty; no limit of their number chooses none."""
    rng = np.random.default_rng(seed)
    boxes = rng.integers(0, 6, (2, 8, 4)).astype(np.float32)
    scores = (rng.integers(0, 5, (2, 3, 8)) / 4).astype(np.float32)
    limits = [np.array([value], kind) for value, kind in ((3, "int64"), (0.4, "float32"), (0.25, "float32"))]
    for count in (1, 2, 3):
        compare("NonMaxSuppression", [boxes, scores, *limits[:count]], center_point_box=seed % 2)
    assert compare("NonMaxSuppression", [boxes, scores])[0].shape == (0, 3)
