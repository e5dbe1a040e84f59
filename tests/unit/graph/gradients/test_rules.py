"""Each operator's gradient against numerical differences and torch's: odd shapes, broadcasts, ties, empty tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from opbuild.errors import UnsupportedOperatorError
from opbuild.graph.gradients.reverse import differentiate
from opbuild.graph.passes.infer import infer, type_of
from opbuild.graph.types import Array, Graph, Node
from opbuild.operations.derivatives import CONSTANT, DERIVATIVES
from opbuild.operations.table import OPERATIONS
from support import gradient_checks
from support.gradient_checks import check, draw, ints, ours, told, torchs
from support.graph_runner import run_graph

__all__ = ["told"]

UNARY = {
    **dict.fromkeys((
        "Neg", "Abs", "Exp", "Erf", "Sin", "Cos", "Sinh", "Cosh", "Tanh", "Asinh", "Atan", "Relu", "Sigmoid",
        "Softplus", "Softsign", "Mish", "Gelu", "HardSwish", "LeakyRelu", "Elu", "Celu", "Selu", "HardSigmoid",
        "ThresholdedRelu", "Shrink", "Identity", "Swish", "Sign", "Floor", "Ceil", "Round",
    ), (-2.0, 2.0)),
    "Log": (0.1, 2.0), "Sqrt": (0.1, 2.0), "Reciprocal": (0.5, 2.0), "Tan": (-1.0, 1.0), "Asin": (-0.9, 0.9),
    "Acos": (-0.9, 0.9), "Atanh": (-0.9, 0.9), "Acosh": (1.1, 3.0),
}  # fmt: skip

OWN = {
    "Expm1": (-1.0, 1.0), "Log1p": (-0.5, 1.0), "Rsqrt": (0.3, 2.0), "Square": (-2.0, 2.0), "Silu": (-2.0, 2.0),
    "GeluTanh": (-2.0, 2.0), "Trunc": (-2.0, 2.0),
}  # fmt: skip


@pytest.mark.parametrize("op_type", UNARY)
def test_a_functions_gradient_is_its_slope(op_type: str) -> None:
    """Functions of one element, against numerical differences."""
    low, high = UNARY[op_type]
    check(op_type, draw(3, 5, low=low, high=high))


@pytest.mark.parametrize("op_type", OWN)
def test_an_own_functions_gradient_is_its_slope(op_type: str) -> None:
    """Those that ONNX has not."""
    low, high = OWN[op_type]
    check(op_type, draw(3, 5, low=low, high=high), domain="opbuild")


X, Y, ROW, COLUMN, POSITIVE = draw(3, 4), draw(3, 4, seed=1), draw(4, seed=2), draw(3, 1, seed=3), draw(
    3, 4, low=0.5, seed=4
)  # fmt: skip

CASES: dict[str, Callable[[], None]] = {
    "add": lambda: check("Add", X, ROW),
    "sub": lambda: check("Sub", COLUMN, ROW),
    "mul": lambda: check("Mul", X, COLUMN),
    "mul_of_a_scalar": lambda: check("Mul", X, draw()),
    "div": lambda: check("Div", X, POSITIVE[:1]),
    "pow": lambda: check("Pow", POSITIVE, ROW),
    "pow_of_an_integer": lambda: check("Pow", X, np.array(3)),
    "mod": lambda: check("Mod", X, POSITIVE, fmod=1),
    "max": lambda: check("Max", X, ROW, COLUMN),
    "min": lambda: check("Min", X, Y),
    "sum": lambda: check("Sum", X, ROW, COLUMN),
    "mean": lambda: check("Mean", X, ROW, COLUMN),
    "where": lambda: check("Where", X > 0, Y, ROW),
    "prelu": lambda: check("PRelu", X, ROW),
    "clip": lambda: check("Clip", X, np.array(-0.5), np.array(0.7)),
    "clip_from_below": lambda: check("Clip", X, np.array(-0.5)),
    "gelu_tanh": lambda: check("Gelu", X, approximate="tanh"),
    "atan2": lambda: check("Atan2", X, POSITIVE, domain="opbuild"),
    "squared_difference": lambda: check("SquaredDifference", X, ROW, domain="opbuild"),
    "swiglu": lambda: check("Swiglu", X, Y, np.array(0.7), domain="opbuild"),
    "cumsum": lambda: check("CumSum", X, np.array(1), exclusive=1),
    "trilu": lambda: check("Trilu", X, upper=0),
    "expand": lambda: check("Expand", COLUMN, ints(2, 3, 4)),
    "matmul": lambda: check("MatMul", X, Y.T),
    "matmul_of_batches": lambda: check("MatMul", draw(2, 1, 3, 4), draw(3, 4, 2, seed=1)),
    "matmul_by_one_matrix": lambda: check("MatMul", draw(2, 2, 3, 4), draw(4, 2, seed=1)),
    "matmul_of_vectors": lambda: check("MatMul", ROW, draw(4, seed=5)),
    "matmul_by_a_vector": lambda: check("MatMul", draw(2, 3, 4), ROW),
    "matmul_of_a_vector": lambda: check("MatMul", ROW, draw(2, 4, 3)),
    "gemm": lambda: check("Gemm", X, Y.T, draw(3), alpha=0.5, beta=2.0),
    "gemm_turned": lambda: check("Gemm", X, Y, draw(1, 4), transA=1),
    "gemm_both_turned": lambda: check("Gemm", X, draw(5, 3), transA=1, transB=1),
    "einsum": lambda: check("Einsum", draw(2, 3, 4), draw(2, 4, 5), equation="bij,bjk->bik"),
    "reduce_sum": lambda: check("ReduceSum", draw(2, 3, 4), ints(0, -1), keepdims=0),
    "reduce_mean": lambda: check("ReduceMean", draw(2, 3, 4), ints(1), keepdims=1),
    "reduce_max": lambda: check("ReduceMax", draw(2, 3, 4), ints(2), keepdims=0),
    "reduce_min": lambda: check("ReduceMin", draw(2, 3, 4)),
    "reduce_prod": lambda: check("ReduceProd", draw(2, 3, 4), ints(0, 2), keepdims=0),
    "reduce_l1": lambda: check("ReduceL1", X, ints(1)),
    "reduce_l2": lambda: check("ReduceL2", X, ints(0), keepdims=0),
    "reduce_square": lambda: check("ReduceSumSquare", X, ints(0), keepdims=0),
    "reduce_log_sum": lambda: check("ReduceLogSum", POSITIVE, ints(1)),
    "reduce_log_sum_exp": lambda: check("ReduceLogSumExp", X, ints(1), keepdims=0),
    "softmax": lambda: check("Softmax", draw(2, 3, 4), axis=1),
    "log_softmax": lambda: check("LogSoftmax", draw(2, 3, 4)),
    "layer_norm": lambda: check("LayerNormalization", draw(2, 3, 4), draw(3, 4), draw(3, 4), axis=1),
    "layer_norm_broadcast": lambda: check("LayerNormalization", draw(2, 3, 4), draw(1, 4), axis=1),
    "rms_norm": lambda: check("RMSNormalization", draw(2, 3, 4), draw(4)),
    "batch_norm": lambda: check("BatchNormalization", draw(2, 3, 4), draw(3), draw(3), draw(3), draw(3, low=0.5)),
    "batch_norm_of_one_batch": lambda: check("BatchNormalization", draw(2, 3, 4), draw(3), draw(3),
                                              np.zeros(3, "f4"), np.ones(3, "f4"), training_mode=1),
    "instance_norm": lambda: check("InstanceNormalization", draw(2, 3, 4), draw(3), draw(3)),
    "group_norm": lambda: check("GroupNormalization", draw(2, 6, 4), draw(6), draw(6), num_groups=2),
    "lp_norm": lambda: check("LpNormalization", X, axis=0, p=2),
    "conv": lambda: check("Conv", draw(1, 2, 5, 4), draw(2, 2, 3, 2), draw(2), pads=(1, 0, 1, 1), strides=(2, 1)),
    "conv_same": lambda: check("Conv", draw(1, 2, 6), draw(2, 1, 3), group=2, strides=(2,), auto_pad="SAME_UPPER"),
    "conv_transpose": lambda: check("ConvTranspose", draw(1, 2, 3), draw(2, 2, 3), draw(2), strides=(2,),
                                     output_padding=(1,), pads=(1, 0)),
    "conv_transpose_shaped": lambda: check("ConvTranspose", draw(1, 2, 3), draw(2, 1, 3), group=2, strides=(2,),
                                            output_shape=(8,)),
    "conv_weight_gradient": lambda: check("ConvWeightGradient", draw(2, 2, 5, 4), draw(2, 3, 3, 4, seed=1),
                                          domain="opbuild", kernel_shape=(3, 2), pads=(1, 0, 1, 1), strides=(2, 1)),
    "conv_weight_gradient_in_groups": lambda: check("ConvWeightGradient", draw(2, 4, 5), draw(2, 6, 3, seed=1),
                                                    domain="opbuild", kernel_shape=(3,), group=2),
    "max_pool": lambda: check("MaxPool", draw(1, 2, 5, 4), kernel_shape=(3, 2), strides=(2, 1), pads=(1, 0, 1, 1)),
    "average_pool": lambda: check("AveragePool", draw(1, 2, 5, 4), kernel_shape=(3, 2), strides=(2, 1),
                                   pads=(1, 0, 1, 1), ceil_mode=1),
    "average_pool_dilated": lambda: check("AveragePool", draw(1, 2, 7), kernel_shape=(3,), dilations=(2,)),
    "lrn": lambda: check("LRN", draw(2, 7, 2, 3), size=3, alpha=0.5, beta=0.6, bias=1.5),
    "lrn_of_an_even_size": lambda: check("LRN", draw(1, 5, 3), size=4, alpha=2.0),
    "resize_nearest": lambda: check("Resize", draw(1, 2, 3, 4), None, np.array([1, 1, 2, 0.5], "f4")),
    "resize_linear": lambda: check("Resize", draw(1, 2, 3, 4), None, None, ints(1, 2, 7, 3), mode="linear"),
    "resize_aligned": lambda: check("Resize", draw(2, 3, 5), None, None, ints(2, 4, 9), mode="linear",
                                     coordinate_transformation_mode="align_corners"),
    "resize_cubic_smoothed": lambda: check("Resize", draw(1, 1, 6, 5), None, None, ints(4, 7), mode="cubic",
                                            antialias=1, axes=(2, 3)),
    "global_average": lambda: check("GlobalAveragePool", draw(2, 3, 2, 2)),
    "global_max": lambda: check("GlobalMaxPool", draw(2, 3, 2, 2)),
    "reshape": lambda: check("Reshape", X, ints(2, -1)),
    "flatten": lambda: check("Flatten", draw(2, 3, 2), axis=1),
    "squeeze": lambda: check("Squeeze", COLUMN, ints(1)),
    "unsqueeze": lambda: check("Unsqueeze", X, ints(0, 3)),
    "transpose": lambda: check("Transpose", draw(2, 3, 4), perm=(2, 0, 1)),
    "transpose_all": lambda: check("Transpose", draw(2, 3, 4)),
    "concat": lambda: check("Concat", X, draw(3, 2), COLUMN, axis=-1),
    "split": lambda: check("Split", draw(3, 5), ints(2, 3), outputs=2, axis=1),
    "slice": lambda: check("Slice", draw(4, 7), ints(1, -1), ints(4, -7), ints(0, 1), ints(1, -3)),
    "slice_strided": lambda: check("Slice", draw(4, 7), ints(1), ints(100), ints(1), ints(2)),
    "pad": lambda: check("Pad", X, ints(1, 0, 2, 3)),
    "pad_negative": lambda: check("Pad", X, ints(-1, 0, 2, -1)),
    "pad_of_axes": lambda: check("Pad", X, ints(1, 2), None, ints(-1)),
    "pad_reflect": lambda: check("Pad", X, ints(2, 3, 1, 2), mode="reflect"),
    "pad_reflect_twice": lambda: check("Pad", draw(3, 2), ints(5, 0, 4, 0), mode="reflect"),
    "pad_edge": lambda: check("Pad", X, ints(2, 3, 0, 1), mode="edge"),
    "pad_edge_of_axes": lambda: check("Pad", X, ints(2, 1), None, ints(-1), mode="edge"),
    "pad_wrap": lambda: check("Pad", X, ints(1, 3, 7, 2), mode="wrap"),
    "pad_wrap_cut": lambda: check("Pad", X, ints(-1, 3, 2, -1), mode="wrap"),
    "pad_of_one_element": lambda: check("Pad", draw(1, 3), ints(2, 0, 1, 2), mode="edge"),
    "pad_with_a_number": lambda: check("Pad", X, ints(1, 0, 2, 3), np.array(0.5)),
    "bits": lambda: check("BitCast", X, to="float64"),
    "cumprod": lambda: check("CumProd", draw(2, 7), np.array(1)),
    "cumprod_of_others": lambda: check("CumProd", draw(5, 2), np.array(-2), exclusive=1),
    "cumprod_from_the_end": lambda: check("CumProd", draw(2, 6), np.array(1), reverse=1),
    "cumprod_of_others_from_the_end": lambda: check("CumProd", draw(2, 6), np.array(1), reverse=1, exclusive=1),
    "lp_pool": lambda: check("LpPool", draw(1, 2, 5, 4), kernel_shape=(3, 2), strides=(2, 1), pads=(1, 0, 1, 1)),
    "lp_pool_of_sums": lambda: check("LpPool", draw(1, 2, 7), kernel_shape=(3,), dilations=(2,), p=1),
    "lp_pool_of_cubes": lambda: check("LpPool", draw(1, 2, 7), kernel_shape=(3,), p=3),
    "max_pool_by_columns": lambda: check("MaxPool", draw(1, 2, 5, 4), kernel_shape=(3, 2), outputs=2, storage_order=1),
    "reverse_sequence": lambda: check("ReverseSequence", draw(4, 3, 2), ints(3, 1, 4)),
    "gather_nd_of_batches": lambda: check("GatherND", draw(2, 3, 4), np.array([[[0], [2]], [[1], [1]]]), batch_dims=1),
    "gather_nd_of_two_batches": lambda: check("GatherND", draw(2, 2, 3), np.array([[[0], [2]], [[1], [-1]]]),
                                              batch_dims=2),
    "dequantize": lambda: check("DequantizeLinear", np.arange(12, dtype="u1").reshape(3, 4), np.array(0.5),
                                np.array(3, "u1")),
    "dequantize_rows": lambda: check("DequantizeLinear", np.arange(12, dtype="u1").reshape(3, 4), draw(3), axis=0),
    "dequantize_blocks": lambda: check("DequantizeLinear", np.arange(12, dtype="i1").reshape(3, 4), draw(3, 2), axis=1,
                                       block_size=2),
    "tile": lambda: check("Tile", X, ints(2, 3)),
    "depth_to_space": lambda: check("DepthToSpace", draw(1, 8, 2, 3), blocksize=2),
    "depth_to_space_crd": lambda: check("DepthToSpace", draw(1, 8, 2, 3), blocksize=2, mode="CRD"),
    "space_to_depth": lambda: check("SpaceToDepth", draw(1, 2, 4, 6), blocksize=2),
    "gather": lambda: check("Gather", draw(3, 4, 2), np.array([[0, -1], [3, 3]]), axis=1),
    "gather_one": lambda: check("Gather", X, np.array(1), axis=0),
    "gather_elements": lambda: check("GatherElements", X, np.array([[0, 1, 1, 2], [2, 2, 0, 0]]), axis=0),
    "gather_nd": lambda: check("GatherND", X, np.array([[0, 1], [0, 1], [2, 3]])),
    "top_k": lambda: check("TopK", X, ints(2), outputs=2, axis=-1),
    "scatter_add": lambda: check("ScatterElements", X, np.array([[0, 0, 2, 1]]), draw(1, 4), reduction="add"),
    "scatter": lambda: check("ScatterElements", X, np.array([[0, 0, 2, 1]]), draw(1, 4)),
    "scatter_twice": lambda: check("ScatterElements", X, np.array([[1, 1], [1, 2], [1, 0]]), draw(3, 2, seed=5)),
    "scatter_nd_twice": lambda: check("ScatterND", X, np.array([[2], [0], [2]]), draw(3, 4, seed=5)),
    "scatter_vectors_twice": lambda: check("ScatterND", X, np.array([[2, 1], [-1, 1]]), draw(2, seed=5)),
    "scatter_product": lambda: check("ScatterElements", X, np.array([[1, 1], [1, 2], [1, 0]]), draw(3, 2, seed=5),
                                     reduction="mul"),
    "scatter_greatest": lambda: check("ScatterElements", X, np.array([[1, 1], [1, 2], [1, 0]]), draw(3, 2, seed=5),
                                      reduction="max"),
    "scatter_smallest": lambda: check("ScatterND", X, np.array([[2], [0], [2]]), draw(3, 4, seed=5), reduction="min"),
    "scatter_nd": lambda: check("ScatterND", X, ints(2, 0).reshape(2, 1), draw(2, 4)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_an_operators_gradients_are_its_numerical_differences(name: str) -> None:
    """Every input of floats; broadcast operands, absent inputs, repeated indices, negative steps."""
    CASES[name]()


SAME = np.array([[-1.0, 0.0, 0.0, 3.0], [2.0, 2.0, -3.0, 2.0]])

TIES: dict[str, tuple[Callable[..., Any], str, tuple[Array, ...], dict[str, Any]]] = {
    "relu": (torch.relu, "Relu", (SAME,), {}),
    "abs": (torch.abs, "Abs", (SAME,), {}),
    "max": (torch.maximum, "Max", (SAME, np.abs(SAME)), {}),
    "min": (torch.minimum, "Min", (SAME, np.abs(SAME)), {}),
    "leaky": (lambda x: torch.nn.functional.leaky_relu(x, 0.25), "LeakyRelu", (SAME,), {"alpha": 0.25}),
    "elu": (torch.nn.functional.elu, "Elu", (SAME,), {}),
    "prelu": (torch.nn.functional.prelu, "PRelu", (SAME, np.array([0.3])), {}),
    "amax": (lambda x: x.amax(1), "ReduceMax", (SAME,), {"keepdims": 0}),
    "amin": (lambda x: x.amin(1), "ReduceMin", (SAME,), {"keepdims": 0}),
    "prod": (lambda x: x.prod(1), "ReduceProd", (SAME,), {"keepdims": 0}),
    "norm": (lambda x: torch.linalg.vector_norm(x, dim=1), "ReduceL2", (SAME * [[0], [1]],), {"keepdims": 0}),
    "hard_sigmoid": (torch.nn.functional.hardsigmoid, "HardSigmoid", (SAME,), {"alpha": 1 / 6, "beta": 0.5}),
    "hard_swish": (torch.nn.functional.hardswish, "HardSwish", (SAME,), {}),
    "pow": (torch.pow, "Pow", (np.abs(SAME), SAME[::-1].copy() ** 2), {}),
    "softplus": (torch.nn.functional.softplus, "Softplus", (SAME * 30,), {}),
    "elu_far": (torch.nn.functional.elu, "Elu", (SAME * 1000,), {}),
    "silu_far": (torch.nn.functional.silu, "Swish", (SAME * 300,), {}),
    "gelu_far": (torch.nn.functional.gelu, "Gelu", (SAME * 30,), {}),
    "mish_far": (torch.nn.functional.mish, "Mish", (SAME * 30,), {}),
}


@pytest.mark.parametrize("name", TIES)
def test_corners_ties_and_great_numbers_are_torchs(name: str) -> None:
    """Where a function has no one slope the gradient is the one that torch gives; great numbers give no NaN."""
    function, op_type, arrays, attrs = TIES[name]
    extra: tuple[Array | None, ...] = ()
    if op_type.startswith("Reduce"):
        extra = (ints(1),)
    found = ours(op_type, *arrays, *extra, **attrs)
    for own, wanted in zip(found, torchs(function, *arrays), strict=False):
        np.testing.assert_allclose(own, wanted, rtol=1e-7, atol=1e-12)


def test_the_bounds_of_clip_are_inside() -> None:
    """As in torch up to 2.13; from 2.14 on it gives 0 there."""
    found, *_ = ours("Clip", SAME, np.array(0.0), np.array(2.0))
    np.testing.assert_array_equal(found, (SAME >= 0) & (SAME <= 2))


IMAGES = draw(2, 5, 4, 6)


@pytest.mark.parametrize(
    ("function", "op_type", "attrs"),
    [
        (lambda x: torch.nn.functional.interpolate(x, (7, 3)), "Resize",
         {"nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}),
        (lambda x: torch.nn.functional.interpolate(x, (7, 3), mode="bilinear"), "Resize",
         {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"}),
        (lambda x: torch.nn.functional.interpolate(x, (7, 3), mode="bilinear", align_corners=True), "Resize",
         {"mode": "linear", "coordinate_transformation_mode": "align_corners"}),
        (lambda x: torch.nn.functional.local_response_norm(x, 3, alpha=0.5), "LRN", {"size": 3, "alpha": 0.5}),
    ],
)  # fmt: skip
def test_resampled_and_normalised_images_have_torchs_gradients(function: Any, op_type: str, attrs: Any) -> None:
    """Up and down, to the nearest and linearly, both conventions of corners; local response normalization."""
    sizes = (None, None, ints(2, 5, 7, 3)) if op_type == "Resize" else ()
    (found,) = ours(op_type, IMAGES, *sizes, **attrs)
    (wanted,) = torchs(function, IMAGES)
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("op_type", "arrays"), [
    ("Add", (np.zeros((0, 3)), np.zeros(3))), ("MatMul", (np.zeros((2, 0)), np.zeros((0, 3)))),
    ("Gemm", (np.zeros((0, 2)), np.zeros((2, 3)))), ("ReduceSum", (np.zeros((0, 3)),)),
    ("ReduceProd", (np.zeros((0, 3)),)), ("Softmax", (np.zeros((0, 3)),)),
    ("Conv", (np.zeros((0, 1, 3)), np.zeros((2, 1, 2)))), ("Gather", (np.zeros((3, 2)), np.zeros(0, np.int64))),
])  # fmt: skip
def test_empty_tensors_have_gradients(op_type: str, arrays: tuple[Array, ...]) -> None:
    """Their own are empty, those of what they were combined with are 0."""
    floats = [each for each in arrays if each.dtype.kind == "f"]
    for found, given in zip(ours(op_type, *arrays), floats, strict=True):
        assert found.shape == given.shape
        assert not found.any()


def test_every_operation_on_elements_has_a_derivative_or_is_a_step() -> None:
    """But for what only passes write, after gradients were."""
    assert OPERATIONS.keys() - DERIVATIVES.keys() - CONSTANT == {"saturate"}
    assert all(len(DERIVATIVES[name]) == OPERATIONS[name].arity for name in DERIVATIVES)


def test_a_value_that_several_nodes_read_gets_the_sum() -> None:
    """And what does not reach the output gets zeros."""
    nodes = (
        Node("Mul", ("x", "x"), ("a",), {}, "square"),
        Node("Add", ("a", "x"), ("b",), {}, "add"),
        Node("Exp", ("z",), ("unused",), {}, "exp"),
        Node("ReduceSum", ("b",), ("y",), {"keepdims": 0}, "sum"),
    )
    x = draw(2, 3)
    types = {"x": type_of(x), "z": type_of(x)}
    graph = infer(Graph("twice", nodes, ("x", "z"), ("y",), types, {}))
    _, dx, dz = run_graph(differentiate(graph, ("x", "z")), {"x": x, "z": x})
    np.testing.assert_allclose(dx, 2 * x + 1)
    assert not dz.any()


def test_an_operator_without_a_gradient_is_named_with_its_node() -> None:
    """The error says which operator and which node; nothing is wrong if no gradient passes there."""
    node = Node("Det", ("x",), ("y",), {}, "up/volume")
    types = {"x": type_of(draw(2, 2)), "y": type_of(draw())}
    graph = Graph("up", (node,), ("x",), ("y",), types, {})
    with pytest.raises(UnsupportedOperatorError, match=r"Det.*up/volume.*no gradient"):
        differentiate(graph, ("x",))


def test_nothing_flows_through_integers_and_marks_that_stop_it() -> None:
    """A conversion to integers and back, and an Identity that stops gradients, give zeros."""
    x = draw(2, 3)
    through = (
        Node("Cast", ("x",), ("i",), {"to": "int64"}, "cast"),
        Node("Cast", ("i",), ("y",), {"to": "float64"}, "back"),
    )
    stopped = (Node("Identity", ("x",), ("y",), {"stop_gradient": 1}, "stop"),)
    for nodes in (through, stopped):
        graph = infer(Graph("none", nodes, ("x",), ("y",), {"x": type_of(x)}, {}))
        assert not run_graph(differentiate(graph, ("x",)), {"x": x})[1].any()


@pytest.mark.parametrize("place", [(0, 0), (6, 6), (3, 4)])
def test_one_wrong_element_of_a_gradient_is_found(place: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it is, and by however little more than differences are wrong."""

    def nearly(graph: Graph, feeds: dict[str, Array]) -> list[Array]:
        results = run_graph(graph, feeds)
        for gradient in results[1:]:
            gradient[place] += 1e-4
        return results

    x = draw(7, 7)
    check("Exp", x)
    monkeypatch.setattr(gradient_checks, "run_graph", nearly)
    with pytest.raises(AssertionError, match="x0"):
        check("Exp", x)
