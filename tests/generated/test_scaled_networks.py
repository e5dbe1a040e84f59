"""Networks of linear operators with factors of any exponent against float64, as models and as torch's modules.

``OPBUILD_FUZZ=5000`` tries so many.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import opbuild
from generated.random_scaled import Array, Scaled, draw
from generated.ways import every_way, outputs_of
from support.fuzzing import CAMPAIGN, check_seeds
from support.tiers import halved, spans

MODULES = CAMPAIGN // 10 or 1
MOST = 1e-5
"""Relative errors are below: sums of some hundred products of positive numbers."""

pytestmark = pytest.mark.timeout(14400 if CAMPAIGN else 300)


def fault(got: Array, of: Scaled) -> str:
    """Return how a result is wrong, or nothing."""
    off = np.abs(got.astype("f8") / of.value - 1)
    if got.shape == of.value.shape and (off < MOST).all():
        return ""
    said = ", ".join(f"{node.op_type}" for node in of.nodes)
    exponents = {name: f"{float(np.log10(np.abs(value).max() or 1)):.1f}" for name, value in of.constants.items()}
    return f"{said}: off by {np.nanmax(off):.2e} (NaN: {np.isnan(off).sum()}); constants about {exponents}"


def try_network(seed: int, folder: Path) -> tuple[str, str]:
    """Return the outcome of a seed."""
    of, x = draw(seed)
    network = opbuild.compile(of.model(x).SerializeToString(), cache_path=folder, num_threads=1)
    said = fault(outputs_of(network, {"x": x})[0], of)
    return ("wrong", f"x about {np.log10(x.max()):.1f}: {said}") if said else ("right", "")


@pytest.mark.slow
@pytest.mark.parametrize("seeds", spans(18, 5))
def test_factors_of_any_exponent_leave_all_digits(seeds: range, tmp_path: Path) -> None:
    """Whatever is folded into weights, or changes places with a product, is no denormal there and no infinity."""
    check_seeds("scaled networks", lambda seed: try_network(seed, tmp_path), seeds)


def test_torch_modules_of_any_exponent_keep_all_digits(tmp_path: Path) -> None:
    """The same networks as modules whose factors are buffers, by the back end of torch.compile."""
    torch = pytest.importorskip("torch", reason="the back end of torch.compile needs torch")
    from generated.scaled_modules import Scaling

    def one(seed: int) -> None:
        of, x = draw(seed)
        torch.compiler.reset()
        options = {"cache_path": str(tmp_path), "num_threads": 1}
        module = torch.compile(Scaling(of), backend="opbuild", options=options)
        with torch.no_grad():
            said = fault(module(torch.from_numpy(x)).numpy(), of)
        assert not said, said

    check_seeds("scaled modules of torch", one, MODULES, processes=0)


def node_of(op_type: str, *names: str, to: str = "y", **attrs: Any) -> onnx.NodeProto:
    """Return a node of some inputs and one output."""
    return helper.make_node(op_type, list(names), [to], **attrs)


FOLDED: dict[str, tuple[onnx.NodeProto, tuple[int, ...], tuple[int, ...]]] = {
    "Conv": (node_of("Conv", "x", "w", to="a"), (1, 3, 4, 4), (2, 3, 1, 1)),
    "ConvTranspose": (node_of("ConvTranspose", "x", "w", to="a"), (1, 3, 4, 4), (3, 2, 1, 1)),
    "Gemm": (node_of("Gemm", "x", "w", to="a"), (2, 3), (3, 5)),
    "transposed": (node_of("Gemm", "x", "w", to="a", transB=1), (2, 3), (5, 3)),
    "MatMul": (node_of("MatMul", "x", "w", to="a"), (2, 3), (3, 5)),
}
"""Products, the shapes of their inputs and of their weights."""


@halved
@pytest.mark.parametrize("kind", FOLDED)
@pytest.mark.parametrize(("x", "weight", "factor"), [(1e38, 1e-25, 1e-20), (1e-38, 1e25, 1e20), (1e30, 1e-10, 1e-30)])
def test_a_factor_behind_weights_leaves_all_digits(
    x: float, weight: float, factor: float, kind: str, tmp_path: Path
) -> None:
    """With weights of 1e-25, a factor of 1e-20 and x of 1e38 the folded weights were denormal, and 18 to 37% off."""
    product, shape, weights = FOLDED[kind]
    nodes = [product, node_of("Mul", "a", "f")]
    arrays = {"w": np.full(weights, weight, np.float32), "f": np.full((1, 1), factor, np.float32)}
    wanted = 3 * np.prod([float(np.float32(each)) for each in (x, weight, factor)])
    feeds = {"x": np.full(shape, x, np.float32)}
    for way, (got,) in every_way(linear(nodes, shape, arrays), feeds, tmp_path).items():
        np.testing.assert_allclose(got, wanted, rtol=1e-6, err_msg=way)


def linear(nodes: list[onnx.NodeProto], x: tuple[int, ...], arrays: dict[str, Array]) -> onnx.ModelProto:
    """Return a model of one input x and an output y of the same rank."""
    kind = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "folded",
        [helper.make_tensor_value_info("x", kind, x)],
        [helper.make_tensor_value_info("y", kind, [None] * len(x))],
        [numpy_helper.from_array(value, name) for name, value in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def test_a_normalisation_behind_weights_leaves_all_digits(tmp_path: Path) -> None:
    """Its factor is a quotient of ordinary numbers."""
    nodes = [node_of("Conv", "x", "w", to="a"), node_of("BatchNormalization", "a", "s", "b", "b", "v", epsilon=0.0)]
    ends = {"s": 1e-10, "b": 0, "v": 1e20}
    arrays = {name: np.full(2, value, np.float32) for name, value in ends.items()}
    arrays["w"] = np.full((2, 3, 1, 1), 1e-25, np.float32)
    feeds = {"x": np.full((1, 3, 4, 4), 1e38, np.float32)}
    for way, (got,) in every_way(linear(nodes, (1, 3, 4, 4), arrays), feeds, tmp_path).items():
        np.testing.assert_allclose(got, 3e38 * 1e-45, rtol=1e-6, err_msg=way)


def test_small_weights_of_a_convolution_take_inputs_near_the_greatest_number(tmp_path: Path) -> None:
    """Winograd's transform of the inputs overflows at a hundredth of it: the result was NaN."""
    feeds = {"x": np.full((1, 64, 20, 20), 1e38, np.float32)}
    arrays = {"w": np.full((64, 64, 3, 3), 1e-25, np.float32)}
    (got,) = every_way(linear([node_of("Conv", "x", "w")], (1, 64, 20, 20), arrays), feeds, tmp_path)["cold"]
    np.testing.assert_allclose(got, 576e38 * 1e-25, rtol=1e-5)


@halved
@pytest.mark.parametrize("op_type", ["LayerNormalization", "RMSNormalization"])
@pytest.mark.parametrize(("x", "scale"), [(1e-17, 1e25), (1e17, 1e-25)])
def test_a_scale_of_rows_that_are_normalised_leaves_all_digits(
    x: float, scale: float, op_type: str, tmp_path: Path
) -> None:
    """The inverse of the deviation and the scale are multiplied first by the kernel: that was infinite, or denormal."""
    row = np.float32([[x, -x], [-x, x]])
    node = node_of(op_type, "x", "s", epsilon=0.0)
    model = linear([node], (2, 2), {"s": np.full(2, scale, np.float32)})
    model.opset_import[0].version = 23
    for way, (got,) in every_way(model, {"x": row}, tmp_path).items():
        np.testing.assert_allclose(got, np.sign(row) * scale, rtol=1e-6, err_msg=way)


def test_scales_of_both_operands_stay_where_the_product_needs_them(tmp_path: Path) -> None:
    """Without them it overflows."""
    nodes = [node_of("Mul", "x", "s", to="a"), node_of("Mul", "x", "s", to="b"), node_of("MatMul", "a", "b")]
    model = linear(nodes, (2, 2), {"s": np.array(1e-18, np.float32)})
    for way, (got,) in every_way(model, {"x": np.full((2, 2), 1e25, np.float32)}, tmp_path).items():
        np.testing.assert_allclose(got, 2e14, rtol=1e-6, err_msg=way)


def test_a_gate_is_left_out_of_weights_that_it_would_sink(tmp_path: Path) -> None:
    """A sigmoid of 1e-20 for each channel, then weights of 1e-25, of values of 1e35."""
    shape = (1, 16, 16, 16)
    nodes = [
        node_of("Conv", "x", "identity", to="a"),
        node_of("GlobalAveragePool", "a", to="p"),
        node_of("Conv", "p", "squeeze", to="q"),
        node_of("Sigmoid", "q", to="gate"),
        node_of("Mul", "a", "gate", to="gated"),
        node_of("Conv", "gated", "w"),
    ]
    arrays = {
        "identity": np.eye(16, dtype=np.float32).reshape(16, 16, 1, 1),
        "squeeze": np.full((16, 16, 1, 1), -46.0 / 16e35, np.float32),
        "w": np.full((16, 16, 1, 1), 1e-25, np.float32),
    }
    wanted = 16e35 * 1e-25 / (1 + np.exp(46.0))
    for way, (got,) in every_way(
        linear(nodes, shape, arrays), {"x": np.full(shape, 1e35, np.float32)}, tmp_path
    ).items():
        np.testing.assert_allclose(got, wanted, rtol=1e-4, err_msg=way)
