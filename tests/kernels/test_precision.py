"""The implementation modes: what ``high_precision`` computes is the nearest float32 where it promises that.

Errors are counted in ulp: the distance of neighbouring float32 numbers at the true value. A campaign tries
four times as many arguments, and also shows for each sum that the fast mode is worse.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import halide as hl
import numpy as np
import numpy.typing as npt
import pytest

from kernels.combinations import crossed
from kernels.harness import run_program
from kernels.lowered import program_of, random, run_node, variants
from opbuild.backend.halide.expression import compile_expression
from opbuild.backend.host.evaluate import evaluate
from opbuild.graph.passes.narrow import force_float32
from opbuild.graph.passes.pipeline import optimize
from opbuild.graph.types import Graph, Node, TensorType
from opbuild.lowering.lower import lower
from opbuild.operations.expression import Expression, arg, const
from opbuild.operations.table import OPERATIONS
from opbuild.target.host import host_level
from support.fuzzing import CAMPAIGN
from support.tiers import halved

Array = npt.NDArray[Any]
MODES = ("high_performance", "high_precision")

erfc, erf = (np.vectorize(function, otypes=[float]) for function in (math.erfc, math.erf))


def _sigmoid(x: Array) -> Any:
    return np.where(x < 0, np.exp(-np.abs(x)), 1.0) / (1 + np.exp(-np.abs(x)))


def _softplus(x: Array) -> Any:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


FUNCTIONS: dict[str, tuple[tuple[float, ...], Callable[[Array], Any]]] = {
    "exp": ((), np.exp), "expm1": ((), np.expm1), "log": ((), np.log), "log1p": ((), np.log1p), "erf": ((), erf),
    "sin": ((), np.sin), "cos": ((), np.cos), "tan": ((), np.tan), "asin": ((), np.arcsin), "acos": ((), np.arccos),
    "atan": ((), np.arctan), "sinh": ((), np.sinh), "cosh": ((), np.cosh), "tanh": ((), np.tanh),
    "asinh": ((), np.arcsinh), "acosh": ((), np.arccosh), "atanh": ((), np.arctanh), "sigmoid": ((), _sigmoid),
    "softplus": ((), _softplus), "mish": ((), lambda x: x * np.tanh(_softplus(x))),
    "gelu": ((), lambda x: x * 0.5 * erfc(-x / math.sqrt(2))), "silu": ((), lambda x: x * _sigmoid(x)),
    "gelu_tanh": ((), lambda x: x * _sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "elu": ((0.7,), lambda x: np.where(x < 0, np.float32(0.7) * np.expm1(x), x)),
    "celu": ((1.3,), lambda x: np.where(x < 0, np.float32(1.3) * np.expm1(x / float(np.float32(1.3))), x)),
    "swiglu": ((1.5, 0.75), lambda x: x * _sigmoid(0.75 * x) * 1.5),
    "selu": (
        (1.5, 1.25),
        lambda x: 1.25 * np.where(x > 0, x, 1.5 * np.expm1(x)),
    ),
}  # fmt: skip
"""Every refined operation: its parameters and its value, from a float64 to a float64."""

LIMITS = (
    math.inf, -math.inf, math.nan, 0.0, 1.0, -1.0, 1e-45, -1e-45, 1.2e-38, 3.4e38, -3.4e38, 88.72283, 88.72284, -103.97,
    -104.1, 0.5, -0.5, 0.99999994, -0.99999994, 9.0, 20.0, -20.0, 89.41598, 89.41599, -14.4, -14.6, 100.0, -120.0,
)  # fmt: skip


def _arguments(name: str) -> Array:
    rng = np.random.default_rng(7)
    count = 20000 if CAMPAIGN else 5000
    wide = rng.integers(0, 2**32, count, dtype=np.uint64).astype(np.uint32).view(np.float32)
    parts = (LIMITS, 4 * rng.standard_normal(count), rng.uniform(-1, 1, count), rng.uniform(-105, 105, count), wide)
    x = np.concatenate([np.asarray(part, np.float32) for part in parts])
    # Angles beyond this lose digits when they are reduced, in both modes.
    return x[~np.isfinite(x) | (np.abs(x) < 1e5)] if name in ("sin", "cos", "tan") else x


def ulps(actual: Array, expected: Array) -> Array:
    """Return the errors of float32 numbers in ulp of the true values, which are finite there; 0 elsewhere."""
    with np.errstate(all="ignore"):
        nearest = expected.astype(np.float32)
        spacing = np.spacing(np.abs(nearest)).astype(np.float64)
        found = np.abs(actual.astype(np.float64) - expected) / spacing
    return np.where(np.isfinite(nearest), found, 0.0)


def _evaluate(expression: Expression, x: Array, refined: bool) -> Array:
    i = hl.Var("i")
    parameter = hl.ImageParam(hl.Float(32), 1, "x")
    parameter.set(hl.Buffer(x))
    function = hl.Func("f")
    function[i] = compile_expression(expression, [parameter[i]], [i], refined=refined)
    function.vectorize(i, 16, hl.TailStrategy.GuardWithIf)
    result = np.zeros(x.shape, np.float32)
    hl.Pipeline([function]).realize([hl.Buffer(result)], hl.Target("host-no_asserts-no_bounds_query"))
    return result


@pytest.mark.parametrize("name", [each.name for each in OPERATIONS.values() if each.precise])
def test_refined_functions_give_the_nearest_float(name: str) -> None:
    """Each is within 0.501 ulp everywhere, denormals included, where the fast one is not; NaN and infinities fit."""
    parameters, function = FUNCTIONS[name]
    x = _arguments(name)
    with np.errstate(all="ignore"):
        expected = np.asarray(function(x.astype(np.float64)))
        rounded = expected.astype(np.float32)
    fast, refined = (_evaluate((name, arg(0), *map(const, parameters)), x, mode) for mode in (False, True))
    assert ulps(refined, expected).max() < 0.501
    assert ulps(fast, expected).max() > 0.7
    special = ~np.isfinite(rounded)
    np.testing.assert_array_equal(refined[special], rounded[special])


def _softmax(x: Array, axis: int) -> Any:
    powers = np.exp(x - x.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


def _layer_norm(x: Array) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + float(np.float32(1e-5)))


def _pooled(x: Array) -> Any:
    return sum(x[:, :, i : i + 6, j : j + 6] for i in range(3) for j in range(3)) / 9


def _lrn(x: Array, beta: float) -> Any:
    squares = np.pad(x * x, ((0, 0), (2, 2), (0, 0), (0, 0)))
    total = sum(squares[:, i : i + x.shape[1]] for i in range(5))
    return x / (1.0 + 0.02 / 5 * total) ** beta


ONES = {"scale": np.ones(1000, np.float32)}
POSITIONS = {"axes": np.array([-1], np.int64)}
ROWS = {"axes": np.array([1], np.int64)}

CASES: dict[str, tuple[str, dict[str, Any], Sequence[int], dict[str, Array], Callable[[Array], Any]]] = {
    "softmax": ("Softmax", {"axis": -1}, (7, 1000), {}, lambda x: _softmax(x, -1)),
    "long softmax": ("Softmax", {"axis": -1}, (2, 5001), {}, lambda x: _softmax(x, -1)),
    "outer softmax": ("Softmax", {"axis": 1}, (2, 90, 33), {}, lambda x: _softmax(x, 1)),
    "log softmax": ("LogSoftmax", {"axis": -1}, (7, 999), {}, lambda x: np.log(_softmax(x, -1))),
    "outer log softmax": ("LogSoftmax", {"axis": 1}, (2, 90, 33), {}, lambda x: np.log(_softmax(x, 1))),
    "layer normalization": ("LayerNormalization", {"axis": -1}, (5, 1000), ONES, _layer_norm),
    "sum": ("ReduceSum", {"keepdims": 0}, (40, 5003), POSITIONS, lambda x: x.sum(-1)),
    "outer sum": ("ReduceSum", {"keepdims": 0}, (3, 5003, 21), ROWS, lambda x: x.sum(1)),
    "mean": ("ReduceMean", {"keepdims": 0}, (40, 5003), POSITIONS, lambda x: x.mean(-1)),
    "norm": ("ReduceL2", {"keepdims": 0}, (40, 5003), POSITIONS, lambda x: np.sqrt((x * x).sum(-1))),
    "sum of magnitudes": ("ReduceL1", {"keepdims": 0}, (40, 5003), POSITIONS, lambda x: abs(x).sum(-1)),
    "product": ("ReduceProd", {"keepdims": 0}, (40, 37), POSITIONS, lambda x: x.prod(-1)),
    "log of a sum": ("ReduceLogSum", {"keepdims": 0}, (40, 503), POSITIONS, lambda x: np.log(x.sum(-1))),
    "log of a sum of powers": (
        "ReduceLogSumExp", {"keepdims": 0}, (40, 503), POSITIONS, lambda x: np.log(np.exp(x).sum(-1)),
    ),
    "average pool": ("AveragePool", {"kernel_shape": (3, 3)}, (1, 20, 8, 8), {}, _pooled),
    "global average pool": (
        "GlobalAveragePool", {}, (2, 20, 33, 35), {}, lambda x: x.mean((2, 3), keepdims=True),
    ),
    "response normalization": (
        "LRN", {"size": 5, "alpha": 0.02, "beta": 0.75}, (1, 20, 5, 5), {}, lambda x: _lrn(x, 0.75),
    ),
    "response normalization to any power": (
        "LRN", {"size": 5, "alpha": 0.02, "beta": 0.7}, (1, 20, 5, 5), {}, lambda x: _lrn(x, 0.7),
    ),
}  # fmt: skip
"""Operator, attributes, the input's shape, constants, the definition in float64."""


@pytest.mark.parametrize("case", CASES)
def test_sums_and_what_is_made_of_them_round_once(case: str) -> None:
    """Softmax, normalisations, reductions and averages are within 0.51 ulp; a campaign sees worse in the fast mode."""
    op_type, attrs, shape, constants, function = CASES[case]
    x = random(*shape) * 3 + (2 if op_type == "LayerNormalization" else 0)
    if op_type in ("ReduceProd", "ReduceLogSum"):
        x = abs(x) + np.float32(0.5)
    expected = np.asarray(function(x.astype(np.float64)))
    node = Node(op_type, ("x", *constants), ("y",), attrs, "node")
    *fast, accurate = (
        ulps(run_node(node, {"x": x}, "float32", expected.shape, constants, impl_mode=mode), expected).max()
        for mode in (MODES if CAMPAIGN else MODES[-1:])
    )
    assert accurate < 0.51
    assert all(error > 0.51 for error in fast)


@halved
@pytest.mark.parametrize("op_type", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("axis", [0, 1])
def test_precise_softmax_keeps_special_values(op_type: str, axis: int) -> None:
    """NaN or +inf make a row NaN, -inf alone too; a single -inf is a probability of exactly 0."""
    x = random(7, 90)
    x[0, 80], x[1, 5], x[2, :], x[3, 7], x[4, 3:6] = np.nan, np.inf, -np.inf, -np.inf, (np.inf, -np.inf, np.nan)
    x[5, 0] = 3e38
    with np.errstate(all="ignore"):
        expected = _softmax(x.astype(np.float64), 1)
        expected = (np.log(expected) if op_type == "LogSoftmax" else expected).astype(np.float32)
    if op_type == "LogSoftmax":
        expected[5, 1:] = x[5, 1:] - x[5, 0]
    given, wanted = (x, expected) if axis else (np.ascontiguousarray(x.T), np.ascontiguousarray(expected.T))
    node = Node(op_type, ("x",), ("y",), {"axis": axis}, "node")
    actual = run_node(node, {"x": given}, "float32", given.shape, impl_mode="high_precision")
    np.testing.assert_allclose(actual, wanted, rtol=2e-7)


@pytest.mark.parametrize("op_type", ["ReduceSum", "ReduceMean", "ReduceProd", "ReduceL2", "ReduceLogSumExp"])
def test_precise_reductions_keep_special_values(op_type: str) -> None:
    """NaN and infinities pass through sums in float64, and sums beyond float32 become infinite."""
    x = abs(random(6, 70)) + np.float32(0.5)
    x[0, 3], x[1, 66], x[2, 5], x[3, :] = np.nan, np.inf, -np.inf, 3e38
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        definitions = {
            "ReduceSum": wide.sum(1), "ReduceMean": wide.mean(1), "ReduceProd": wide.prod(1),
            "ReduceL2": np.sqrt((wide**2).sum(1)), "ReduceLogSumExp": np.logaddexp.reduce(wide, 1),
        }  # fmt: skip
        expected = definitions[op_type].astype(np.float32)
    node = Node(op_type, ("x", "axes"), ("y",), {"keepdims": 0}, "node")
    actual = run_node(node, {"x": x}, "float32", (6,), {"axes": np.array([1])}, impl_mode="high_precision")
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


def _convolved(x: Array, w: Array) -> Any:
    n, _, h, width = x.shape
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    out = np.zeros((n, w.shape[0], h, width))
    for i in range(3):
        for j in range(3):
            out += np.einsum("nchw,oc->nohw", padded[:, :, i : i + h, j : j + width], w[:, :, i, j], optimize=True)
    return out


def _error(actual: Array, expected: Array) -> float:
    return float(np.sqrt(((actual - expected) ** 2).mean() / (expected**2).mean()))


def test_precise_convolutions_are_as_accurate_as_direct_ones() -> None:
    """No F(4x4): F(2x2) has at most twice a direct convolution's error, which is far below that of F(4x4)."""
    x, w = np.maximum(random(1, 64, 24, 24), 0), random(64, 64, 3, 3, seed=1) * np.float32(0.06)
    expected = _convolved(x.astype(np.float64), w.astype(np.float64))
    node = Node("Conv", ("x", "w"), ("y",), {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}, "conv")
    strided = node.with_(attrs={**node.attrs, "strides": (2, 2)})  # has no Winograd: half of the outputs, directly
    errors, tiles = [], []
    for mode in MODES:
        program = program_of([node], {"x": x}, {"y": ("float32", expected.shape)}, {"w": w}, impl_mode=mode)
        tiles.append([v["tile"] for family, v in variants(program) if family == "winograd"])
        errors.append(_error(run_program(program, {"x": x})["y"], expected))
    half = expected[:, :, ::2, ::2]
    direct = _error(run_node(strided, {"x": x}, "float32", half.shape, {"w": w}), half)
    assert tiles == [[4], [2]]
    assert errors[1] < 2 * direct
    assert errors[1] < errors[0] / 4


def test_precise_convolutions_of_many_channels_are_direct() -> None:
    """Where F(2x2) would have more than twice the error of the direct convolution, that is taken."""
    x, w = random(1, 256, 16, 16), random(32, 256, 3, 3, seed=1)
    node = Node("Conv", ("x", "w"), ("y",), {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}, "conv")
    families = [
        [f for f, _ in variants(program_of([node], {"x": x}, {"y": ("float32", (1, 32, 16, 16))}, {"w": w},
                                           impl_mode=mode))]
        for mode in MODES
    ]  # fmt: skip
    assert "winograd" in families[0]
    assert "winograd" not in families[1]


@pytest.mark.slow
def test_a_chain_of_convolutions_is_more_accurate_in_high_precision() -> None:
    """A chain of residual blocks as in ResNet-50 ends with less than half of the error."""
    shape, blocks = (1, 64, 20, 20), 4
    x = random(*shape)
    weights = {f"w{i}": random(64, 64, 3, 3, seed=i + 1) * np.float32(0.05) for i in range(blocks)}
    nodes, outputs, name, value = [], {}, "x", x.astype(np.float64)
    for i in range(blocks):
        attrs = {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}
        nodes += [
            Node("Conv", (name, f"w{i}"), (f"c{i}",), attrs, f"conv{i}"),
            Node("Add", (f"c{i}", name), (f"s{i}",), {}, f"add{i}"),
            Node("Relu", (f"s{i}",), (f"r{i}",), {}, f"relu{i}"),
        ]
        outputs |= {f"{kind}{i}": ("float32", shape) for kind in "csr"}
        value = np.maximum(_convolved(value, weights[f"w{i}"].astype(np.float64)) + value, 0)
        name = f"r{i}"
    fast, accurate = (
        _error(run_program(program_of(nodes, {"x": x}, outputs, weights, impl_mode=mode), {"x": x})[name], value)
        for mode in MODES
    )
    assert accurate < fast / 2


PRODUCTS = ((1, 50, 2050), (5, 40, 31), (70, 300, 1001), (13, 1, 1500), (9, 7, 640))


@pytest.mark.parametrize(("shape", "constant"), crossed(2, PRODUCTS, (True, False)))
def test_precise_products_add_up_in_chunks(shape: tuple[int, int, int], constant: bool) -> None:
    """Long sums lose less, for right operands that are packed, computed, staged, or a vector; K may have any rest."""
    m, n, k = shape
    lhs, rhs = np.abs(random(m, k)), random(k, n, seed=1)
    expected = lhs.astype(np.float64) @ rhs.astype(np.float64)
    node = Node("MatMul", ("lhs", "rhs"), ("y",), {}, "product")
    inputs, constants = ({"lhs": lhs}, {"rhs": rhs}) if constant else ({"lhs": lhs, "rhs": rhs}, {})
    fast, accurate = (
        _error(run_node(node, inputs, "float32", (m, n), constants, impl_mode=mode), expected) for mode in MODES
    )
    assert accurate < 4e-7
    assert accurate < fast / 2 or k < 1000 or n == 1


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_forced_float32_networks_have_kernels(dtype: str) -> None:
    """A product of float16 or float64 numbers has no kernel here; with force_fp32 no node is left to the host."""
    x, w = random(5, 32).astype(dtype), random(32, 24, seed=1).astype(dtype)
    kinds = {"x": x, "w": w, "p": np.zeros((5, 24), dtype), "y": np.zeros((5, 24), dtype)}
    types = {name: TensorType(dtype, array.shape) for name, array in kinds.items()}
    nodes = (Node("MatMul", ("x", "w"), ("p",), {}, "product"), Node("Tanh", ("p",), ("y",), {}, "tanh"))
    graph = force_float32(Graph("g", nodes, ("x",), ("y",), types, {"w": w}))
    actual = run_program(lower(optimize(graph, evaluate), host_level()), {"x": x})["y"]
    assert actual.dtype == np.dtype(dtype)
    expected = np.tanh(x.astype(np.float64) @ w.astype(np.float64))
    np.testing.assert_allclose(actual, expected, rtol=1e-3 if dtype == "float16" else 1e-5, atol=1e-6)
