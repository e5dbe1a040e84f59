"""Resize in every mode that has kernels, against onnx's reference; with aligned corners against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.reference
import pytest
from onnx import helper

from kernels.lowered import random, run_node
from opbuild.graph.types import Array, Node
from support.comparison import onnxruntime_outputs
from support.tiers import halved

COORDINATES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric")


def check(x: Array, scales: list[float] | None, sizes: list[int] | None, **attrs: object) -> None:
    """Compare a Resize with onnx's reference; it alone divides by a fraction where corners are aligned."""
    names = ["x", "", "scales" if scales is not None else "", "sizes" if sizes is not None else ""]
    constants: dict[str, Array] = {}
    if scales is not None:
        constants["scales"] = np.array(scales, np.float32)
    if sizes is not None:
        constants["sizes"] = np.array(sizes)
    node = helper.make_node("Resize", [n for n in names if n] if all(names) else names, ["y"], **attrs)
    inputs = [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)]
    tensors = [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()]
    output = [helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(x.dtype), None)]
    model = helper.make_model(
        helper.make_graph([node], "g", inputs, output, tensors),
        opset_imports=[helper.make_opsetid("", 19)],
        ir_version=9,
    )
    if attrs.get("coordinate_transformation_mode") == "align_corners":
        expected = onnxruntime_outputs(model, {"x": x})[0]
    else:
        expected = onnx.reference.ReferenceEvaluator(model).run(None, {"x": x})[0]
    found = run_node(
        Node("Resize", tuple(names), ("y",), dict(attrs), "r"), {"x": x}, str(x.dtype), expected.shape, constants
    )
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@halved
@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_every_way_to_map_coordinates(mode: str, coordinates: str) -> None:
    """Growing and shrinking by uneven factors, and to given sizes."""
    x = random(1, 2, 5, 7)
    check(x, [1, 1, 1.7, 0.6], None, mode=mode, coordinate_transformation_mode=coordinates)
    check(x, None, [1, 2, 9, 4], mode=mode, coordinate_transformation_mode=coordinates)


@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
def test_every_way_to_round_to_the_nearest(rounding: str) -> None:
    """Factors at which coordinates lie half way."""
    for coordinates in ("asymmetric", "half_pixel"):
        check(
            random(1, 1, 4, 6), [1, 1, 2, 0.5], None, nearest_mode=rounding, coordinate_transformation_mode=coordinates
        )


def test_nearest_places_are_found_in_float32() -> None:
    """The fourth place of 8 by a scale of 0.6 is 5 in float32, as frameworks have it, and less in float64."""
    x = np.arange(8, dtype=np.float32).reshape(1, 1, 8)
    attrs = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    scales = {"s": np.array([1, 1, 0.6], np.float32)}
    found = run_node(Node("Resize", ("x", "", "s"), ("y",), attrs, "r"), {"x": x}, "float32", (1, 1, 4), scales)
    assert found.reshape(-1).tolist() == [0, 1, 3, 5]


def test_extents_of_one_and_long_rows() -> None:
    """One element stretched, rows longer than a vector, one dimension only."""
    check(random(1, 1, 1, 1), None, [1, 1, 3, 4], mode="linear")
    check(random(1, 3, 40), [1, 1, 2.5], None, mode="linear")
    check(random(2, 40, 3, 20), None, [2, 40, 7, 33], mode="linear")


def test_neighbours_outside_can_be_left_out() -> None:
    """``exclude_outside`` renormalises the weights at the border."""
    check(random(1, 1, 4, 4), [1, 1, 1.5, 0.8], None, mode="cubic", exclude_outside=1, cubic_coeff_a=-0.5)


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float16"])
def test_nearest_moves_every_type(dtype: str) -> None:
    """Nearest neighbours are a gather."""
    x = np.abs(random(1, 2, 3, 5, dtype="int32")).astype(dtype)
    found = run_node(
        Node(
            "Resize",
            ("x", "", "s"),
            ("y",),
            {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
            "r",
        ),
        {"x": x},
        dtype,
        (1, 2, 6, 10),
        {"s": np.array([1, 1, 2, 2], np.float32)},
    )
    np.testing.assert_array_equal(found, x.repeat(2, 2).repeat(2, 3))
