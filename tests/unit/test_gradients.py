"""Each operator's gradient against numerical differences and torch's: odd shapes, broadcasts, ties, empty tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from graph_runner import run_graph
from opbuild.errors import UnsupportedOperatorError
from opbuild.graph.gradients.reverse import differentiate
from opbuild.graph.passes.infer import infer, type_of
from opbuild.graph.types import Array, Graph, Node
from opbuild.operations.derivatives import CONSTANT, DERIVATIVES
from opbuild.operations.table import OPERATIONS

STEP = 1e-6

CHECKED: list[tuple[str, float]] = []
"""The operator of each gradient that was checked so far, and its greatest error, of 1 and the gradient's size."""


@pytest.fixture(scope="module", autouse=True)
def _told() -> Iterator[None]:
    """Print at the end, with ``-s``, what was checked."""
    yield
    apart, where = max(((error, name) for name, error in CHECKED), default=(0.0, ""))
    operators = len({name for name, _ in CHECKED})
    print(f"\n{len(CHECKED)} gradients of {operators} operators; at most {apart:.1e} from differences ({where})")


def _draw(*shape: int, low: float = -2.0, high: float = 2.0, seed: int = 0) -> Array:
    return np.random.default_rng(seed).uniform(low, high, shape)


def _network(op_type: str, arrays: list[Array | None], attrs: dict[str, Any], outputs: int, domain: str) -> Graph:
    """Return a network of one operator: floats are inputs, other arrays constants, its results are weighted sums."""
    names = ["" if array is None else f"x{index}" for index, array in enumerate(arrays)]
    given = [(name, array) for name, array in zip(names, arrays, strict=True) if array is not None]
    floats = tuple(name for name, array in given if array.dtype == np.float64)
    constants = {name: array for name, array in given if name not in floats}
    made = tuple(f"y{number}" for number in range(outputs))
    node = Node(op_type, tuple(names), made, attrs, op_type, domain)
    types = {name: type_of(array) for name, array in given}
    first = infer(Graph("one", (node,), floats, made, types, constants))
    nodes, sums = [node], []
    for name in made:
        kind = first.types[name]
        if kind.dtype != "float64":
            continue
        constants[f"w_{name}"] = _draw(*kind.shape, seed=7)
        nodes += [
            Node("Mul", (name, f"w_{name}"), (f"m_{name}",), {}, "weigh"),
            Node("ReduceSum", (f"m_{name}",), (f"s_{name}",), {"keepdims": 0}, "sum"),
        ]
        sums.append(f"s_{name}")
    nodes.append(Node("Sum", tuple(sums), ("loss",), {}, "loss"))
    return infer(Graph("one", tuple(nodes), floats, ("loss",), types, constants))


def _differences(graph: Graph, feeds: dict[str, Array], name: str) -> Array:
    """Return the central differences of a network's output by each element of an input."""
    found = np.zeros_like(feeds[name])
    for place in np.ndindex(found.shape):
        values = []
        for sign in (1, -1):
            moved = feeds[name].copy()
            moved[place] += sign * STEP
            values.append(float(run_graph(graph, {**feeds, name: moved})[0]))
        found[place] = (values[0] - values[1]) / (2 * STEP)
    return found


def _check(op_type: str, *arrays: Array | None, outputs: int = 1, domain: str = "", **attrs: Any) -> None:
    """Compare the gradients of an operator; ``CHECKED`` notes the error of each."""
    graph = _network(op_type, list(arrays), attrs, outputs, domain)
    feeds = {f"x{i}": array for i, array in enumerate(arrays) if array is not None and array.dtype == np.float64}
    wanted = list(feeds)
    _, *found = run_graph(differentiate(graph, wanted), feeds)
    for name, gradient in zip(wanted, found, strict=True):
        differences = _differences(graph, feeds, name)
        np.testing.assert_allclose(gradient, differences, rtol=1e-6, atol=1e-7, err_msg=name)
        apart = float(np.max(np.abs(gradient - differences) / (1 + np.abs(differences)), initial=0))
        CHECKED.append((f"{domain}:{op_type}".lstrip(":"), apart))


def _ints(*numbers: int) -> Array:
    return np.array(numbers, np.int64)


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
    _check(op_type, _draw(3, 5, low=low, high=high))


@pytest.mark.parametrize("op_type", OWN)
def test_an_own_functions_gradient_is_its_slope(op_type: str) -> None:
    """Those that ONNX has not."""
    low, high = OWN[op_type]
    _check(op_type, _draw(3, 5, low=low, high=high), domain="opbuild")


X, Y, ROW, COLUMN, POSITIVE = _draw(3, 4), _draw(3, 4, seed=1), _draw(4, seed=2), _draw(3, 1, seed=3), _draw(
    3, 4, low=0.5, seed=4
)  # fmt: skip

CASES: dict[str, Callable[[], None]] = {
    "add": lambda: _check("Add", X, ROW),
    "sub": lambda: _check("Sub", COLUMN, ROW),
    "mul": lambda: _check("Mul", X, COLUMN),
    "mul_of_a_scalar": lambda: _check("Mul", X, _draw()),
    "div": lambda: _check("Div", X, POSITIVE[:1]),
    "pow": lambda: _check("Pow", POSITIVE, ROW),
    "pow_of_an_integer": lambda: _check("Pow", X, np.array(3)),
    "mod": lambda: _check("Mod", X, POSITIVE, fmod=1),
    "max": lambda: _check("Max", X, ROW, COLUMN),
    "min": lambda: _check("Min", X, Y),
    "sum": lambda: _check("Sum", X, ROW, COLUMN),
    "mean": lambda: _check("Mean", X, ROW, COLUMN),
    "where": lambda: _check("Where", X > 0, Y, ROW),
    "prelu": lambda: _check("PRelu", X, ROW),
    "clip": lambda: _check("Clip", X, np.array(-0.5), np.array(0.7)),
    "clip_from_below": lambda: _check("Clip", X, np.array(-0.5)),
    "gelu_tanh": lambda: _check("Gelu", X, approximate="tanh"),
    "atan2": lambda: _check("Atan2", X, POSITIVE, domain="opbuild"),
    "squared_difference": lambda: _check("SquaredDifference", X, ROW, domain="opbuild"),
    "swiglu": lambda: _check("Swiglu", X, Y, np.array(0.7), domain="opbuild"),
    "cumsum": lambda: _check("CumSum", X, np.array(1), exclusive=1),
    "trilu": lambda: _check("Trilu", X, upper=0),
    "expand": lambda: _check("Expand", COLUMN, _ints(2, 3, 4)),
    "matmul": lambda: _check("MatMul", X, Y.T),
    "matmul_of_batches": lambda: _check("MatMul", _draw(2, 1, 3, 4), _draw(3, 4, 2, seed=1)),
    "matmul_by_one_matrix": lambda: _check("MatMul", _draw(2, 2, 3, 4), _draw(4, 2, seed=1)),
    "matmul_of_vectors": lambda: _check("MatMul", ROW, _draw(4, seed=5)),
    "matmul_by_a_vector": lambda: _check("MatMul", _draw(2, 3, 4), ROW),
    "matmul_of_a_vector": lambda: _check("MatMul", ROW, _draw(2, 4, 3)),
    "gemm": lambda: _check("Gemm", X, Y.T, _draw(3), alpha=0.5, beta=2.0),
    "gemm_turned": lambda: _check("Gemm", X, Y, _draw(1, 4), transA=1),
    "gemm_both_turned": lambda: _check("Gemm", X, _draw(5, 3), transA=1, transB=1),
    "einsum": lambda: _check("Einsum", _draw(2, 3, 4), _draw(2, 4, 5), equation="bij,bjk->bik"),
    "reduce_sum": lambda: _check("ReduceSum", _draw(2, 3, 4), _ints(0, -1), keepdims=0),
    "reduce_mean": lambda: _check("ReduceMean", _draw(2, 3, 4), _ints(1), keepdims=1),
    "reduce_max": lambda: _check("ReduceMax", _draw(2, 3, 4), _ints(2), keepdims=0),
    "reduce_min": lambda: _check("ReduceMin", _draw(2, 3, 4)),
    "reduce_prod": lambda: _check("ReduceProd", _draw(2, 3, 4), _ints(0, 2), keepdims=0),
    "reduce_l1": lambda: _check("ReduceL1", X, _ints(1)),
    "reduce_l2": lambda: _check("ReduceL2", X, _ints(0), keepdims=0),
    "reduce_square": lambda: _check("ReduceSumSquare", X, _ints(0), keepdims=0),
    "reduce_log_sum": lambda: _check("ReduceLogSum", POSITIVE, _ints(1)),
    "reduce_log_sum_exp": lambda: _check("ReduceLogSumExp", X, _ints(1), keepdims=0),
    "softmax": lambda: _check("Softmax", _draw(2, 3, 4), axis=1),
    "log_softmax": lambda: _check("LogSoftmax", _draw(2, 3, 4)),
    "layer_norm": lambda: _check("LayerNormalization", _draw(2, 3, 4), _draw(3, 4), _draw(3, 4), axis=1),
    "layer_norm_broadcast": lambda: _check("LayerNormalization", _draw(2, 3, 4), _draw(1, 4), axis=1),
    "rms_norm": lambda: _check("RMSNormalization", _draw(2, 3, 4), _draw(4)),
    "batch_norm": lambda: _check("BatchNormalization", _draw(2, 3, 4), _draw(3), _draw(3), _draw(3), _draw(3, low=0.5)),
    "batch_norm_of_one_batch": lambda: _check("BatchNormalization", _draw(2, 3, 4), _draw(3), _draw(3),
                                              np.zeros(3, "f4"), np.ones(3, "f4"), training_mode=1),
    "instance_norm": lambda: _check("InstanceNormalization", _draw(2, 3, 4), _draw(3), _draw(3)),
    "group_norm": lambda: _check("GroupNormalization", _draw(2, 6, 4), _draw(6), _draw(6), num_groups=2),
    "lp_norm": lambda: _check("LpNormalization", X, axis=0, p=2),
    "conv": lambda: _check("Conv", _draw(1, 2, 5, 4), _draw(2, 2, 3, 2), _draw(2), pads=(1, 0, 1, 1), strides=(2, 1)),
    "conv_same": lambda: _check("Conv", _draw(1, 2, 6), _draw(2, 1, 3), group=2, strides=(2,), auto_pad="SAME_UPPER"),
    "conv_transpose": lambda: _check("ConvTranspose", _draw(1, 2, 3), _draw(2, 2, 3), _draw(2), strides=(2,),
                                     output_padding=(1,), pads=(1, 0)),
    "conv_transpose_shaped": lambda: _check("ConvTranspose", _draw(1, 2, 3), _draw(2, 1, 3), group=2, strides=(2,),
                                            output_shape=(8,)),
    "conv_weight_gradient": lambda: _check("ConvWeightGradient", _draw(2, 2, 5, 4), _draw(2, 3, 3, 4, seed=1),
                                           domain="opbuild", kernel_shape=(3, 2), pads=(1, 0, 1, 1), strides=(2, 1)),
    "max_pool": lambda: _check("MaxPool", _draw(1, 2, 5, 4), kernel_shape=(3, 2), strides=(2, 1), pads=(1, 0, 1, 1)),
    "average_pool": lambda: _check("AveragePool", _draw(1, 2, 5, 4), kernel_shape=(3, 2), strides=(2, 1),
                                   pads=(1, 0, 1, 1), ceil_mode=1),
    "average_pool_dilated": lambda: _check("AveragePool", _draw(1, 2, 7), kernel_shape=(3,), dilations=(2,)),
    "lrn": lambda: _check("LRN", _draw(2, 7, 2, 3), size=3, alpha=0.5, beta=0.6, bias=1.5),
    "lrn_of_an_even_size": lambda: _check("LRN", _draw(1, 5, 3), size=4, alpha=2.0),
    "resize_nearest": lambda: _check("Resize", _draw(1, 2, 3, 4), None, np.array([1, 1, 2, 0.5], "f4")),
    "resize_linear": lambda: _check("Resize", _draw(1, 2, 3, 4), None, None, _ints(1, 2, 7, 3), mode="linear"),
    "resize_aligned": lambda: _check("Resize", _draw(2, 3, 5), None, None, _ints(2, 4, 9), mode="linear",
                                     coordinate_transformation_mode="align_corners"),
    "resize_cubic_smoothed": lambda: _check("Resize", _draw(1, 1, 6, 5), None, None, _ints(4, 7), mode="cubic",
                                            antialias=1, axes=(2, 3)),
    "global_average": lambda: _check("GlobalAveragePool", _draw(2, 3, 2, 2)),
    "global_max": lambda: _check("GlobalMaxPool", _draw(2, 3, 2, 2)),
    "reshape": lambda: _check("Reshape", X, _ints(2, -1)),
    "flatten": lambda: _check("Flatten", _draw(2, 3, 2), axis=1),
    "squeeze": lambda: _check("Squeeze", COLUMN, _ints(1)),
    "unsqueeze": lambda: _check("Unsqueeze", X, _ints(0, 3)),
    "transpose": lambda: _check("Transpose", _draw(2, 3, 4), perm=(2, 0, 1)),
    "transpose_all": lambda: _check("Transpose", _draw(2, 3, 4)),
    "concat": lambda: _check("Concat", X, _draw(3, 2), COLUMN, axis=-1),
    "split": lambda: _check("Split", _draw(3, 5), _ints(2, 3), outputs=2, axis=1),
    "slice": lambda: _check("Slice", _draw(4, 7), _ints(1, -1), _ints(4, -7), _ints(0, 1), _ints(1, -3)),
    "slice_strided": lambda: _check("Slice", _draw(4, 7), _ints(1), _ints(100), _ints(1), _ints(2)),
    "pad": lambda: _check("Pad", X, _ints(1, 0, 2, 3)),
    "pad_negative": lambda: _check("Pad", X, _ints(-1, 0, 2, -1)),
    "pad_of_axes": lambda: _check("Pad", X, _ints(1, 2), None, _ints(-1)),
    "tile": lambda: _check("Tile", X, _ints(2, 3)),
    "depth_to_space": lambda: _check("DepthToSpace", _draw(1, 8, 2, 3), blocksize=2),
    "depth_to_space_crd": lambda: _check("DepthToSpace", _draw(1, 8, 2, 3), blocksize=2, mode="CRD"),
    "space_to_depth": lambda: _check("SpaceToDepth", _draw(1, 2, 4, 6), blocksize=2),
    "gather": lambda: _check("Gather", _draw(3, 4, 2), np.array([[0, -1], [3, 3]]), axis=1),
    "gather_one": lambda: _check("Gather", X, np.array(1), axis=0),
    "gather_elements": lambda: _check("GatherElements", X, np.array([[0, 1, 1, 2], [2, 2, 0, 0]]), axis=0),
    "gather_nd": lambda: _check("GatherND", X, np.array([[0, 1], [0, 1], [2, 3]])),
    "top_k": lambda: _check("TopK", X, _ints(2), outputs=2, axis=-1),
    "scatter_add": lambda: _check("ScatterElements", X, np.array([[0, 0, 2, 1]]), _draw(1, 4), reduction="add"),
    "scatter": lambda: _check("ScatterElements", X, np.array([[0, 0, 2, 1]]), _draw(1, 4)),
    "scatter_nd": lambda: _check("ScatterND", X, _ints(2, 0).reshape(2, 1), _draw(2, 4)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_an_operators_gradients_are_its_numerical_differences(name: str) -> None:
    """Every input of floats; broadcast operands, absent inputs, repeated indices, negative steps."""
    CASES[name]()


def _torchs(function: Callable[..., Any], *arrays: Array) -> list[Array]:
    leaves = [torch.tensor(each, requires_grad=True) for each in arrays]
    return [each.numpy() for each in torch.autograd.grad(function(*leaves).sum(), leaves)]


def _ours(op_type: str, *arrays: Array | None, domain: str = "", **attrs: Any) -> list[Array]:
    names = tuple("" if array is None else f"x{index}" for index, array in enumerate(arrays))
    types = {name: type_of(each) for name, each in zip(names, arrays, strict=True) if each is not None}
    floats = tuple(name for name in types if types[name].dtype == "float64")
    feeds = {name: each for name, each in zip(names, arrays, strict=True) if each is not None}
    constants = {name: each for name, each in feeds.items() if name not in floats}
    node = Node(op_type, names, ("y",), attrs, op_type, domain)
    graph = infer(Graph("one", (node,), floats, ("y",), types, constants))
    return run_graph(differentiate(graph, floats), {name: feeds[name] for name in floats})[1:]


SAME = np.array([[-1.0, 0.0, 0.0, 3.0], [2.0, 2.0, -3.0, 2.0]])

TIES: dict[str, tuple[Callable[..., Any], str, tuple[Array, ...], dict[str, Any]]] = {
    "relu": (torch.relu, "Relu", (SAME,), {}),
    "abs": (torch.abs, "Abs", (SAME,), {}),
    "max": (torch.maximum, "Max", (SAME, np.abs(SAME)), {}),
    "min": (torch.minimum, "Min", (SAME, np.abs(SAME)), {}),
    "clip": (lambda x: x.clamp(0.0, 2.0), "Clip", (SAME,), {}),
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
    if op_type == "Clip":
        extra = (np.array(0.0, np.float64), np.array(2.0, np.float64))
    if op_type.startswith("Reduce"):
        extra = (_ints(1),)
    found = _ours(op_type, *arrays, *extra, **attrs)
    for own, wanted in zip(found, _torchs(function, *arrays), strict=False):
        np.testing.assert_allclose(own, wanted, rtol=1e-7, atol=1e-12)


IMAGES = _draw(2, 5, 4, 6)


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
    sizes = (None, None, _ints(2, 5, 7, 3)) if op_type == "Resize" else ()
    (found,) = _ours(op_type, IMAGES, *sizes, **attrs)
    (wanted,) = _torchs(function, IMAGES)
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
    for found, given in zip(_ours(op_type, *arrays), floats, strict=True):
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
    x = _draw(2, 3)
    types = {"x": type_of(x), "z": type_of(x)}
    graph = infer(Graph("twice", nodes, ("x", "z"), ("y",), types, {}))
    _, dx, dz = run_graph(differentiate(graph, ("x", "z")), {"x": x, "z": x})
    np.testing.assert_allclose(dx, 2 * x + 1)
    assert not dz.any()


def test_an_operator_without_a_gradient_is_named_with_its_node() -> None:
    """The error says which operator and which node; nothing is wrong if no gradient passes there."""
    node = Node("GridSample", ("x", "grid"), ("y",), {}, "up/sample")
    x, grid = _draw(1, 1, 2, 2), _draw(1, 3, 3, 2)
    graph = infer(Graph("up", (node,), ("x",), ("y",), {"x": type_of(x)}, {"grid": grid}))
    with pytest.raises(UnsupportedOperatorError, match=r"GridSample.*up/sample.*no gradient"):
        differentiate(graph, ("x",))


def test_nothing_flows_through_integers_and_marks_that_stop_it() -> None:
    """A conversion to integers and back, and an Identity that stops gradients, give zeros."""
    x = _draw(2, 3)
    through = (
        Node("Cast", ("x",), ("i",), {"to": "int64"}, "cast"),
        Node("Cast", ("i",), ("y",), {"to": "float64"}, "back"),
    )
    stopped = (Node("Identity", ("x",), ("y",), {"stop_gradient": 1}, "stop"),)
    for nodes in (through, stopped):
        graph = infer(Graph("none", nodes, ("x",), ("y",), {"x": type_of(x)}, {}))
        assert not run_graph(differentiate(graph, ("x",)), {"x": x})[1].any()
