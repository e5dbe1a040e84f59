"""Constant folding, dead code, and what becomes of steps by channel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from opbuild.backend.host.evaluate import evaluate
from opbuild.errors import RunError, UnsupportedOperatorError
from opbuild.graph import factors
from opbuild.graph.elementwise import elementwise_of
from opbuild.graph.passes.batchnorm import fold_batchnorm
from opbuild.graph.passes.cleanup import eliminate_dead, remove_identities
from opbuild.graph.passes.composite import decompose
from opbuild.graph.passes.fold import fold
from opbuild.graph.passes.infer import infer
from opbuild.graph.passes.patterns import fuse_gelu, fuse_layer_normalization
from opbuild.graph.passes.pipeline import simplify
from opbuild.graph.types import Array, Graph, Node, TensorType
from opbuild.operations.evaluation import evaluate_expression
from opbuild.operations.expression import operations
from support.graph_runner import run_graph

RNG = np.random.default_rng(11)


def drawn(*shape: int) -> Array:
    """Return normally distributed float32."""
    return RNG.standard_normal(shape).astype(np.float32)


def graph(nodes: Sequence[Node], x: tuple[int, ...], *outputs: str, **constants: Array) -> Graph:
    """Return a typed graph of one float32 input x."""
    named = tuple(node.with_(name=f"n{index}") for index, node in enumerate(nodes))
    return infer(Graph("g", named, ("x",), outputs or ("y",), {"x": TensorType("float32", x)}, constants, 21))


def node(op_type: str, inputs: str, output: str = "y", **attrs: object) -> Node:
    """Return a node; inputs are separated by spaces."""
    return Node(op_type, tuple(inputs.split()), (output,), attrs)


def kinds(of: Graph) -> list[str]:
    """Return the operator types of a graph."""
    return [each.op_type for each in of.nodes]


def same(before: Graph, after: Graph, x: Array, rtol: float = 1e-5) -> None:
    """Assert that two graphs compute the same."""
    for a, b in zip(run_graph(before, {"x": x}), run_graph(after, {"x": x}), strict=True):
        np.testing.assert_allclose(b, a, rtol=rtol, atol=1e-5)


def test_what_is_known_is_computed() -> None:
    """A chain of constants, through a Shape, becomes one constant."""
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s zero", "n"),
        node("Concat", "n rest", "shape", axis=0),
        node("Reshape", "x shape"),
    ]
    before = graph([], (2, 6), "x", zero=np.array([0]), rest=np.array([3, -1]))
    types = dict(before.types)
    types.update(s=TensorType("int64", (2,)), n=TensorType("int64", (1,)), shape=TensorType("int64", (3,)))
    types["y"] = TensorType("float32", (2, 3, 2))
    after = fold(before.with_(nodes=tuple(nodes), outputs=("y",), types=types), evaluate)
    assert kinds(after) == ["Reshape"]
    assert after.constants["shape"].tolist() == [2, 3, -1]
    assert set(after.constants) == {"shape"}


def test_a_folded_output_is_a_constant() -> None:
    """Lowering copies it into the output, and whatever else reads it finds its value: that was a ``KeyError``."""
    nodes = [node("Add", "a b", "c"), node("Mul", "x c", "y")]
    before = graph(nodes, (1,), "y", a=drawn(1), b=drawn(1))
    types = {**before.types, "c": TensorType("float32", (1,))}
    after = fold(before.with_(outputs=("c", "y"), types=types), evaluate)
    assert kinds(after) == ["Mul"]
    assert "c" in after.constants


def test_random_numbers_are_not_folded() -> None:
    """They differ at each run."""
    nodes = [Node("RandomNormal", (), ("r",), {"shape": (3,), "dtype": 1}), node("Add", "x r")]
    assert kinds(fold(graph(nodes, (3,)), evaluate)) == ["RandomNormal", "Add"]


def test_a_node_that_cannot_be_evaluated_stays() -> None:
    """Folding saves work; a failure belongs to the run."""

    def fails(each: Node, inputs: Sequence[Array | None], opset: int) -> list[Array]:
        raise RunError("no")

    assert kinds(fold(graph([node("Add", "a b")], (1,), a=drawn(1), b=drawn(1)), fails)) == ["Add"]


def test_dead_nodes_and_their_constants_go() -> None:
    """Only what outputs need stays; inputs stay always."""
    after = eliminate_dead(graph([node("Relu", "x"), node("Add", "x unused", "z")], (2,), "y", unused=drawn(2)))
    assert kinds(after) == ["Relu"]
    assert not after.constants
    assert set(after.types) == {"x", "y"}


def test_identities_go_and_outputs_keep_their_names() -> None:
    """The producer assigns the output itself; an output that is an input keeps its copy."""
    nodes = [node("Relu", "x", "a"), node("Identity", "a", "b"), node("Dropout", "b"), node("Identity", "x", "z")]
    after = remove_identities(graph(nodes, (2,), "y", "z"))
    assert [(each.op_type, each.outputs) for each in after.nodes] == [("Relu", ("y",)), ("Identity", ("z",))]
    same(graph(nodes, (2,), "y", "z"), after, drawn(2))


def test_dropout_in_training_is_left_alone() -> None:
    """Only inference passes everything through; what would be random is refused when it is typed."""
    constants = {"ratio": np.array(0, np.float32), "training": np.array(True)}
    assert kinds(remove_identities(graph([node("Dropout", "x ratio training")], (2,), **constants))) == ["Dropout"]
    constants["ratio"] = np.array(0.5, np.float32)
    with pytest.raises(UnsupportedOperatorError, match="random"):
        graph([node("Dropout", "x ratio training")], (2,), **constants)


BN = {part: RNG.uniform(0.5, 1.5, 4).astype(np.float32) for part in ("scale", "bias", "mean", "var")}


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", ["Conv", "ConvTranspose", "Gemm", "transposed"])
def test_steps_by_channel_go_into_the_weights(kind: str, bias: bool) -> None:
    """BatchNormalization, Mul, Add, Sub and Div after weights are folded, with the result of the chain."""
    attrs: dict[str, object] = {}
    if kind in ("Gemm", "transposed"):
        shape, weight, attrs = (3, 6), drawn(6, 4), {"alpha": 0.5, "beta": 2.0}
        if kind == "transposed":
            weight, attrs = weight.T.copy(), {**attrs, "transB": 1}
        op_type, channel = "Gemm", (4,)
    else:
        op_type, shape, channel = ("Conv" if kind == "Conv" else "ConvTranspose"), (1, 6, 5, 5), (1, 4, 1, 1)
        weight = drawn(4, 6, 3, 3) if kind == "Conv" else drawn(6, 4, 3, 3)
    nodes = [
        node(op_type, "x w b" if bias else "x w", "a", **attrs),
        node("BatchNormalization", "a scale bias mean var", "c"),
        node("Mul", "m c", "d"),
        node("Sub", "d s", "e"),
        node("Div", "e m", "f"),
        node("Add", "f s"),
    ]
    constants = {**BN, "w": weight, "b": drawn(4), "m": drawn(*channel) + 2, "s": drawn(*channel)}
    before = graph(nodes, shape, **constants)
    after = fold_batchnorm(before)
    assert kinds(after) == [op_type]
    same(before, after, drawn(*shape), 1e-4)


def test_scales_of_a_grouped_transposed_convolution_follow_its_groups() -> None:
    """Its weights hold the output channels of one group only: channel ``g * 2 + j`` is column j of group g's rows."""
    weight = drawn(6, 2, 3, 3)
    nodes = [node("ConvTranspose", "x w", "a", group=2), node("Mul", "a m")]
    factors = np.array([1, 2, 3, 4], np.float32)
    after = fold_batchnorm(graph(nodes, (1, 6, 5, 5), w=weight, m=factors.reshape(4, 1, 1)))
    wanted = weight * factors.reshape(2, 1, 2).repeat(3, 1).reshape(6, 2, 1, 1)
    np.testing.assert_array_equal(after.constants[after.nodes[0].inputs[1]], wanted)


def test_a_result_that_is_used_elsewhere_is_not_folded() -> None:
    """The convolution's own output is read by another node too, or is an output."""
    nodes = [node("Conv", "x w", "a"), node("BatchNormalization", "a scale bias mean var", "c"), node("Add", "a c")]
    constants = {**BN, "w": drawn(4, 3, 1, 1)}
    before = graph(nodes, (1, 3, 2, 2), **constants)
    assert kinds(fold_batchnorm(before)) == ["Conv", "BatchNormalization", "Add"]
    same(before, fold_batchnorm(before), drawn(1, 3, 2, 2))
    shown = graph(nodes[:2], (1, 3, 2, 2), "a", "c", **constants)
    assert kinds(fold_batchnorm(shown)) == ["Conv", "BatchNormalization"]


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_values_that_are_not_finite_are_not_folded_into_weights(value: float) -> None:
    """Zero times infinity in a weight is not what the network computes."""
    constants = {**BN, "scale": np.array([1, value, 0, 1], np.float32), "w": drawn(4, 3, 1, 1)}
    nodes = [node("Conv", "x w", "a"), node("BatchNormalization", "a scale bias mean var")]
    before = graph(nodes, (1, 3, 2, 2), **constants)
    assert kinds(fold_batchnorm(before)) == ["Conv", "BatchNormalization"]
    weights = np.full((4, 3, 1, 1), 3e38, np.float32)
    large = graph(nodes, (1, 3, 2, 2), **{**constants, "scale": np.full(4, 100, np.float32), "w": weights})
    assert kinds(fold_batchnorm(large)) == ["Conv", "BatchNormalization"]


@pytest.mark.parametrize("place", [0, 6, 11])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_a_weight_that_is_not_finite_is_found_wherever_it_is(
    value: float, place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights are looked at in pieces; one number throughout is looked at once."""
    monkeypatch.setattr(factors, "_PIECE", 5)
    nodes = [node("Conv", "x w", "a"), node("BatchNormalization", "a scale bias mean var")]
    weights = drawn(4, 3, 1, 1)
    before = graph(nodes, (1, 3, 2, 2), **BN, w=weights.copy())
    assert kinds(fold_batchnorm(before)) == ["Conv"]
    weights.reshape(-1)[place] = value
    for w in (weights, np.broadcast_to(np.float32(value), weights.shape)):
        after = fold_batchnorm(graph(nodes, (1, 3, 2, 2), **BN, w=w))
        assert kinds(after) == ["Conv", "BatchNormalization"]


def test_composed_steps_are_rounded_once() -> None:
    """Folded weights are the float64 product, not a product of rounded factors."""
    constants = {**BN, "w": drawn(4, 3, 1, 1), "m": drawn(4, 1, 1)}
    nodes = [node("Conv", "x w", "a"), node("BatchNormalization", "a scale bias mean var", "c"), node("Mul", "c m")]
    after = fold_batchnorm(graph(nodes, (1, 3, 2, 2), **constants))
    wide = {name: value.astype(np.float64) for name, value in constants.items()}
    factor = wide["scale"] / np.sqrt(wide["var"] + 1e-5) * wide["m"].reshape(-1)
    wanted = (wide["w"] * factor[:, None, None, None]).astype(np.float32)
    np.testing.assert_array_equal(after.constants[after.nodes[0].inputs[1]], wanted)


def test_a_lone_normalization_becomes_scale_and_shift() -> None:
    """What follows no weights keeps its type with mean 0, variance 1 and epsilon 0."""
    before = graph([node("BatchNormalization", "x scale bias mean var", "a"), node("Relu", "a")], (2, 4, 3), **BN)
    after = fold_batchnorm(before)
    first = after.nodes[0]
    assert first.attrs["epsilon"] == 0.0
    assert after.constants[first.inputs[3]].tolist() == [0] * 4
    assert after.constants[first.inputs[4]].tolist() == [1] * 4
    same(before, after, drawn(2, 4, 3))


@pytest.mark.parametrize("op_type", ["Sum", "Mean", "Max", "Min"])
def test_many_operands_become_pairs(op_type: str) -> None:
    """Variadic operators are chains of binary ones."""
    before = graph([node(op_type, "x a b")], (3, 4), a=drawn(4), b=drawn(3, 1))
    after = decompose(before)
    assert all(len(each.inputs) == 2 for each in after.nodes)
    same(before, after, drawn(3, 4))


def test_one_operand_is_passed_on() -> None:
    """A sum of one is an identity."""
    assert kinds(simplify(graph([node("Sum", "x", "a"), node("Relu", "a")], (3,)), evaluate)) == ["Relu"]


@pytest.mark.parametrize("alpha", [1.0, 1.5])
def test_swish_is_a_product_with_a_sigmoid(alpha: float) -> None:
    """With alpha 1 it is opbuild's Silu."""
    before = graph([node("Swish", "x", alpha=alpha)], (5,))
    found = elementwise_of(before.nodes[0], before.types, before.constants)
    assert found is not None
    assert operations(found.expression) == (("Silu",) if alpha == 1.0 else ("Mul", "Sigmoid", "Mul"))
    x = drawn(5)
    np.testing.assert_allclose(evaluate_expression(found.expression, [x]), x / (1 + np.exp(-alpha * x)), 1e-5)


def test_mean_variance_normalization_is_written_out() -> None:
    """It runs on reductions and elementwise kernels."""
    before = graph([node("MeanVarianceNormalization", "x")], (2, 3, 4, 5))
    after = decompose(before)
    assert "MeanVarianceNormalization" not in kinds(after)
    same(before, after, drawn(2, 3, 4, 5), 1e-4)


ROOT, HALF, ONE = (np.array(value, np.float32) for value in (np.sqrt(2), 0.5, 1.0))
GELUS = [
    [node("Div", "x root", "a"), node("Erf", "a", "b"), node("Add", "b one", "c"), node("Mul", "x c", "d"),
     node("Mul", "d half")],
    [node("Mul", "x inverse", "a"), node("Erf", "a", "b"), node("Add", "one b", "c"), node("Mul", "half x", "d"),
     node("Mul", "c d")],
    [node("Div", "x root", "a"), node("Erf", "a", "b"), node("Add", "b one", "c"), node("Mul", "c half", "d"),
     node("Mul", "x d")],
]  # fmt: skip
TANH = [
    node("Mul", "x x", "a"), node("Mul", "a x", "b"), node("Mul", "b cubic", "c"), node("Add", "x c", "d"),
    node("Mul", "d slope", "e"), node("Tanh", "e", "f"), node("Add", "f one", "g"), node("Mul", "x half", "h"),
    node("Mul", "h g"),
]  # fmt: skip
NUMBERS = {
    "root": ROOT, "inverse": 1 / ROOT, "half": HALF, "one": ONE, "cubic": np.array(0.044715, np.float32),
    "slope": np.array(np.sqrt(2 / np.pi), np.float32), "three": np.array(3, np.float32),
}  # fmt: skip


@pytest.mark.parametrize("nodes", GELUS)
def test_gelu_is_found_in_any_order(nodes: list[Node]) -> None:
    """Exporters multiply by a half first or last, and divide by a root or multiply by its inverse."""
    before = graph(nodes, (7,), **NUMBERS)
    after = fuse_gelu(before)
    assert kinds(after) == ["Gelu"]
    assert after.nodes[0].attrs["approximate"] == "none"
    same(before, after, drawn(7))


def test_gelu_by_tanh_is_found() -> None:
    """The approximation keeps its own name, because its results differ."""
    before = graph(TANH, (7,), **NUMBERS)
    after = fuse_gelu(before)
    assert [(each.op_type, each.attrs["approximate"]) for each in after.nodes] == [("Gelu", "tanh")]
    same(before, after, drawn(7))


def test_what_only_looks_like_gelu_is_left_alone() -> None:
    """Another constant, or erf of another value, is another function."""
    other = graph(GELUS[0], (7,), **{**NUMBERS, "half": np.array(0.7, np.float32)})
    assert "Gelu" not in kinds(fuse_gelu(other))


NORM = [
    node("ReduceMean", "x axes", "m"), node("Sub", "x m", "d"), node("Pow", "d two", "p"),
    node("ReduceMean", "p axes", "v"),
    node("Add", "v eps", "s"), node("Sqrt", "s", "r"), node("Div", "d r", "n"), node("Mul", "n scale", "t"),
    node("Add", "t bias"),
]  # fmt: skip
NORM_CONSTANTS = {
    "axes": np.array([-1]), "two": np.array(2, np.float32), "eps": np.array(1e-5, np.float32), "scale": drawn(8),
    "bias": drawn(8),
}  # fmt: skip


@pytest.mark.parametrize("count", [7, 8, 9])
def test_a_layer_normalization_is_found_with_and_without_scale_and_bias(count: int) -> None:
    """The pattern may end after the division, the product or the sum."""
    nodes = [*NORM[: count - 1], NORM[count - 1].with_(outputs=("y",))]
    before = graph(nodes, (2, 3, 8), **NORM_CONSTANTS)
    after = fuse_layer_normalization(before)
    assert kinds(after) == ["LayerNormalization"]
    same(before, after, drawn(2, 3, 8), 1e-4)


def test_a_normalization_over_leading_dimensions_is_left_alone() -> None:
    """LayerNormalization is over trailing dimensions only."""
    before = graph(NORM, (2, 3, 8), **{**NORM_CONSTANTS, "axes": np.array([0])})
    assert "LayerNormalization" not in kinds(fuse_layer_normalization(before))
