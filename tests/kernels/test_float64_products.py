"""MatMul, Gemm and Conv of float64 have kernels, and compute in float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from kernels.harness import run_program
from kernels.lowered import program_of, random, run_node
from opbuild.dtypes import numpy_dtype
from opbuild.graph.types import Node
from opbuild.operations.expression import ACC, arg
from opbuild.program import HostCall
from opbuild.target.level import Level
from support.machines import TRIED
from support.tiers import halved

DOUBLE = "float64"
MATMUL = Node("MatMul", ("a", "b"), ("y",), {}, "product")


def doubles(*shape: int, seed: int = 0) -> np.ndarray:
    """Return normally distributed numbers."""
    return random(*shape, seed=seed, dtype=DOUBLE)


def check(actual: np.ndarray, expected: np.ndarray) -> None:
    """Assert that numbers are equal but for the order of sums; float32 would be a billion times further off."""
    np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-12)


@halved
@pytest.mark.parametrize("level", TRIED, ids=str)
@pytest.mark.parametrize("constant", [True, False])
def test_products_of_every_layout_and_tile_are_those_of_numpy(level: Level, constant: bool) -> None:
    """Packed, row by row, copied first, vectors on either side, nothing to add up, and edges of tiles."""
    shapes: list[tuple[Sequence[int], Sequence[int]]] = [
        ((13, 37), (37, 70)), ((5, 20), (20, 9)), ((1, 40), (40, 260)), ((2, 70, 33), (2, 33, 260)),
        ((6, 19), (19, 1)), ((4, 0), (0, 3)), ((0, 4), (4, 3)), ((25, 3), (3, 33)),
    ]  # fmt: skip
    for left, right in shapes:
        a, b = doubles(*left), doubles(*right, seed=1)
        given, known = ({"a": a}, {"b": b}) if constant else ({"a": a, "b": b}, {})
        program = program_of([MATMUL], given, {"y": (DOUBLE, (a @ b).shape)}, known, level=level)
        check(run_program(program, given, level=level)["y"], a @ b)


def test_a_gemm_scales_in_float64() -> None:
    """Both operands transposed, alpha and beta in the type of the product."""
    a, b, c = doubles(30, 9), doubles(50, 30, seed=1), doubles(50, seed=2)
    attrs = {"alpha": 0.1, "beta": 0.3, "transA": 1, "transB": 1}
    actual = run_node(Node("Gemm", ("a", "b", "c"), ("y",), attrs, "g"), {"a": a}, DOUBLE, (9, 50), {"b": b, "c": c})
    check(actual, 0.1 * (a.T @ b.T) + 0.3 * c)


def test_nan_and_infinity_reach_their_rows_alone() -> None:
    """As in numpy; numbers beyond float32 are numbers."""
    a, b = doubles(9, 30), np.abs(doubles(30, 50, seed=1)) + 1
    a[2, 3], a[5, 7], a[6, 0], a[6, 1], a[7, 0] = np.nan, np.inf, np.inf, -np.inf, 1e300
    with np.errstate(invalid="ignore"):
        check(run_node(MATMUL, {"a": a}, DOUBLE, (9, 50), {"b": b}), a @ b)


GEOMETRIES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 6, 9, 11), (8, 3, 3, 2), {"group": 2, "pads": [1, 0, 2, 1], "strides": [2, 1], "dilations": [1, 2]}),
    ((1, 5, 4, 7), (33, 5, 1, 1), {}),
    ((2, 4, 13), (6, 4, 5), {"auto_pad": "SAME_UPPER"}),
    ((1, 4, 5, 6, 7), (6, 2, 3, 3, 3), {"pads": [1] * 6, "group": 2}),
    ((1, 3, 1, 1), (3, 1, 1, 1), {"group": 3}),
]


@pytest.mark.slow
@halved
@pytest.mark.parametrize(("x", "w", "attrs"), GEOMETRIES)
@pytest.mark.parametrize("constant", [True, False])
def test_convolutions_of_any_geometry_are_those_of_the_standard(
    x: Sequence[int], w: Sequence[int], attrs: dict[str, Any], constant: bool
) -> None:
    """Of one, two and three dimensions, grouped, dilated, padded; weights known or not; with a bias."""
    data, weights, bias = doubles(*x), doubles(*w, seed=1), doubles(w[0], seed=2)
    expected = convolved(data, weights, bias, attrs)
    known = {"w": weights, "b": bias}
    given = {"x": data} if constant else {"x": data, **known}
    node = Node("Conv", ("x", "w", "b"), ("y",), attrs, "conv")
    check(run_node(node, given, DOUBLE, expected.shape, known if constant else {}), expected)


def test_what_is_fused_with_a_convolution_reads_channels_and_elements() -> None:
    """A scale for each channel, another value of the same shape, and a bias before both."""
    data, weights, bias = doubles(2, 4, 5, 6), doubles(7, 4, 3, 3, seed=1), doubles(7, seed=2)
    scale, other = doubles(7, 1, 1, seed=3), doubles(2, 7, 3, 4, seed=4)
    attrs = {"epilogue": ("add", ("mul", ACC, arg(0)), arg(1)), "own_inputs": 3}
    node = Node("Conv", ("x", "w", "b", "s", "o"), ("y",), attrs, "conv")
    known = {"w": weights, "b": bias, "s": scale}
    actual = run_node(node, {"x": data, "o": other}, DOUBLE, other.shape, known)
    check(actual, convolved(data, weights, bias, {}) * scale + other)


@pytest.mark.parametrize("dtypes", [("float32", "float64"), ("float64", "float32"), ("float64", "bfloat16")])
def test_operands_of_several_types_have_no_kernel(dtypes: tuple[str, str]) -> None:
    """The kernels would read them as what they are not."""
    a, b = (doubles(20, 20).astype(numpy_dtype(dtype)) for dtype in dtypes)
    program = program_of([MATMUL], {"a": a}, {"y": (DOUBLE, (20, 20))}, {"b": b})
    assert [type(call) for call in program.calls] == [HostCall]


def convolved(data: np.ndarray, weights: np.ndarray, bias: np.ndarray, attrs: dict[str, Any]) -> np.ndarray:
    """Return the output of the standard's reference."""
    values = {"x": data, "w": weights, "b": bias}
    inputs = [helper.make_tensor_value_info(name, TensorProto.DOUBLE, value.shape) for name, value in values.items()]
    output = helper.make_tensor_value_info("y", TensorProto.DOUBLE, None)
    graph = helper.make_graph([helper.make_node("Conv", list(values), ["y"], **attrs)], "conv", inputs, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return np.asarray(ReferenceEvaluator(model).run(None, values)[0])
