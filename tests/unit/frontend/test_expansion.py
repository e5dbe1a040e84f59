"""Operators that ONNX defines by others are replaced by them where that leaves less to the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, parser

from opbuild.backend.evaluate import evaluate
from opbuild.errors import ModelError
from opbuild.frontend.expansion import DECISIONS, has_body
from opbuild.frontend.onnx_model import load_model
from opbuild.frontend.operator_examples import examples, operator_types
from opbuild.graph.types import Graph, Node
from support.graph_runner import run_graph
from support.lowered_decision import INEXACT, NO_CALLS, host_calls

RNG = np.random.default_rng(86)
NEWEST = onnx.defs.onnx_opset_version()


def bound(text: str) -> Graph:
    """Return the graph of a model in ONNX's own text form."""
    return load_model(parser.parse_model(f'<ir_version: 10, opset_import: ["" : 24]> {text}')).bind({}, evaluate)


@pytest.fixture
def decide(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that decides for operator types, whatever else does, whether functions take their places."""

    def decided(takes: bool, *op_types: str) -> None:
        for op_type in op_types:
            for domain in ("", "ai.onnx.preview"):
                monkeypatch.setitem(DECISIONS, (domain, op_type), lambda *_: takes)  # type: ignore[arg-type]

    return decided


def types_in(graph: Graph) -> set[str]:
    """Return the types of a graph's operators."""
    return {node.op_type for node in graph.nodes}


ROTARY = """
g (float[1,2,3,4] x, float[1,3,2] cosine, float[1,3,2] sine) => (float[1,2,3,4] y) {
    [turn] y = RotaryEmbedding (x, cosine, sine)
}"""


def test_an_operator_without_a_kernel_becomes_the_operators_that_define_it(decide: Any) -> None:
    """RotaryEmbedding has no kernel of its own, and its function needs no call of the host; both compute the same."""
    expanded = bound(ROTARY)
    decide(False, "RotaryEmbedding")
    whole = bound(ROTARY)
    assert types_in(whole) == {"RotaryEmbedding"}
    assert host_calls(whole).calls == 1
    assert "RotaryEmbedding" not in types_in(expanded)
    assert host_calls(expanded) == NO_CALLS
    feeds = {name: RNG.standard_normal(whole.types[name].shape).astype("f") for name in whole.inputs}
    np.testing.assert_allclose(run_graph(expanded, feeds)[0], run_graph(whole, feeds)[0], rtol=1e-5, atol=1e-6)


def test_the_nodes_of_a_function_are_named_after_the_node_that_they_replace(decide: Any) -> None:
    """Reports and messages name a node of the model; two nodes of one operator stay apart."""
    text = """
    g (float[2,3] x) => (float[2,3] z) {
        [first] y = Celu (x)
        [second] z = Celu <alpha: float = 2.0> (y)
    }"""
    decide(True, "Celu")
    graph = bound(text)
    names = [node.name for node in graph.nodes]
    assert len(set(names)) == len(names)
    assert {name.partition("/")[0] for name in names} >= {"first", "second"}
    inner = [name for node in graph.nodes for name in node.outputs if name not in ("y", "z")]
    assert all(name.startswith(("first/", "second/")) for name in inner)


def test_an_operator_that_a_kernel_serves_is_not_replaced() -> None:
    """Celu has a function, and a kernel that is better than its function's five."""
    text = "g (float[2,3] x) => (float[2,3] y) { y = Celu (x) }"
    assert types_in(bound(text)) == {"Celu"}


def test_an_operator_stays_whole_if_its_function_needs_the_host_and_numpy_computes_it() -> None:
    """One call of our own implementation is better than kernels between calls of the host."""
    assert types_in(bound("g (float[2,3] x) => (float[2,3] y) { y = Bernoulli (x) }")) == {"Bernoulli"}


@pytest.mark.parametrize(
    ("call", "wrong"),
    [
        ("Softmax <axis: int = 7> (x)", "axis 7 is outside"),
        ("RMSNormalization <axis: int = -9> (x, x)", "is outside"),
        ("SoftmaxCrossEntropyLoss (x, i)", "input 0 has rank 2"),
    ],
)
def test_an_error_names_the_node_whose_function_is_taken(call: str, wrong: str) -> None:
    """Not only a node of the function, which nobody has written."""
    with pytest.raises(ModelError, match=wrong) as caught:
        bound(f"g (double[2,3] x, int32[2,3,4] i) => (double[2,3] y) {{ [mine] y = {call} }}")
    assert str(caught.value).startswith(f"{call.partition(' ')[0]} node 'mine': ")
    assert caught.value.node == "mine"


def test_functions_inside_functions_are_replaced_too(decide: Any) -> None:
    """SoftmaxCrossEntropyLoss is defined by NegativeLogLikelihoodLoss, which is defined by simple operators."""
    text = """
    g (float[3,5] x, int64[3] labels, float[5] w) => (float loss) {
        loss = SoftmaxCrossEntropyLoss <reduction: string = "mean"> (x, labels, w)
    }"""
    expanded = bound(text)
    decide(False, "SoftmaxCrossEntropyLoss")
    whole = bound(text)
    assert not types_in(expanded) & {"SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"}
    feeds = {
        "x": RNG.standard_normal((3, 5)).astype("f"),
        "labels": np.array([4, 0, 2]),
        "w": np.linspace(1, 2, 5, dtype="f"),
    }
    np.testing.assert_allclose(run_graph(expanded, feeds)[0], run_graph(whole, feeds)[0], rtol=1e-5)


def test_a_function_reads_what_the_graphs_of_its_node_capture() -> None:
    """The graph in an attribute of FlexAttention becomes part of its function, and reads values of the model."""
    shape = (1, 2, 3, 4)
    score = helper.make_tensor_value_info("score", TensorProto.FLOAT, [1, 2, 3, 3])
    changed = helper.make_tensor_value_info("changed", TensorProto.FLOAT, [1, 2, 3, 3])
    change = helper.make_graph([helper.make_node("Add", ["score", "bias"], ["changed"])], "change", [score], [changed])
    node = helper.make_node(
        "FlexAttention", ["q", "k", "v"], ["y"], "attend", domain="ai.onnx.preview", score_mod=change
    )
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "qkv"]
    inputs.append(helper.make_tensor_value_info("bias", TensorProto.FLOAT, [3, 3]))
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)
    opsets = [helper.make_opsetid("", 26), helper.make_opsetid("ai.onnx.preview", 1)]
    graph = helper.make_graph([node], "g", inputs, [output])
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    expanded = load_model(model).bind({}, evaluate)
    q, k, v = (RNG.standard_normal(shape).astype("f") for _ in range(3))
    bias = RNG.standard_normal((3, 3)).astype("f")
    scores = np.exp(q @ k.swapaxes(2, 3) / 2 + bias)
    wanted = scores / scores.sum(-1, keepdims=True) @ v
    found = run_graph(expanded, {"q": q, "k": k, "v": v, "bias": bias})[0]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def _feeds(graph: Graph) -> dict[str, Any]:
    def values(name: str) -> Any:
        kind = graph.types[name]
        integer = np.issubdtype(np.dtype(kind.dtype), np.integer)
        return (RNG.integers(0, 3, kind.shape) if integer else RNG.random(kind.shape)).astype(kind.dtype)

    return {name: values(name) for name in graph.inputs}


NOT_COMPARED = {
    **dict.fromkeys(("BlackmanWindow", "HammingWindow", "HannWindow", "Range"), "known when the network is built"),
    "Bernoulli": "random",
    "DynamicQuantizeLinear": "the scale of zeros is left open",
    "SequenceMap": "has no example: its inputs are sequences",
    "AffineGrid": "its size is an input",
    "Attention": "it is written by heads, of the types compared here",
    "LinearAttention": "its function is a Scan",
    **dict.fromkeys(INEXACT, "the function loses digits"),
}
"""Operators with a function that the test below leaves out, each with the reason."""


def _with_functions() -> list[str]:
    found = (name for name in operator_types() if has_body(Node(name, (), ()), NEWEST))
    return [name for name in found if name not in NOT_COMPARED]


@pytest.mark.parametrize("op_type", _with_functions())
def test_a_function_computes_what_its_operator_does(op_type: str, decide: Any) -> None:
    """Every operator that ONNX defines by others gives the same as its function, for each type that has an example."""
    compared = 0
    for example in examples(op_type):
        if example.model is None or example.dtype not in ("float32", "int64", ""):
            continue
        model = load_model(example.model)
        decide(False, op_type)
        whole = model.bind({}, evaluate)
        decide(True, op_type)
        expanded = model.bind({}, evaluate)
        if not whole.nodes:
            continue
        assert op_type not in types_in(expanded)
        feeds = _feeds(whole)
        with np.errstate(all="ignore"):
            pairs = zip(run_graph(expanded, feeds), run_graph(whole, feeds), strict=True)
        for got, wanted in pairs:
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
        compared += 1
    assert compared


def test_operators_whose_function_loses_digits_keep_their_implementation() -> None:
    """The variance of values near 1,000 is the difference of two numbers near a million in ONNX's function."""
    text = "g (float[4,8,2] x, float[8] s, float[8] b) => (float[4,8,2] y) {"
    text += " y = GroupNormalization <num_groups: int = 2> (x, s, b) }"
    assert types_in(bound(text)) == {"GroupNormalization"}


@pytest.mark.parametrize("bias", ["", ", b"])
@pytest.mark.parametrize("axis", [1, -1])
def test_a_normalization_gives_its_statistics_without_the_host(bias: str, axis: int) -> None:
    """The mean and the deviation have digits even where the mean is large, unlike those of ONNX's function."""
    shape = "5,64" if axis == 1 else "64"
    text = f"""
    g (float[3,5,64] x, float[{shape}] s, float[{shape}] b) => (float[3,5,64] y, float[3,m,n] mean, float[3,m,n] inv) {{
        y, mean, inv = LayerNormalization <axis: int = {axis}> (x, s{bias})
    }}"""
    graph = bound(text)
    assert host_calls(graph) == NO_CALLS
    x = (RNG.standard_normal((3, 5, 64)) + 3000).astype("f")
    axes = (1, 2) if axis == 1 else (2,)
    s, b = (RNG.standard_normal(x.shape[axis:]).astype("f") for _ in range(2))
    mean, inverse = x.mean(axes, keepdims=True, dtype="d"), 1 / np.sqrt(x.var(axes, keepdims=True, dtype="d") + 1e-5)
    y, found_mean, found_inverse = run_graph(graph, {"x": x, "s": s, "b": b})
    np.testing.assert_allclose(found_mean, mean, rtol=1e-6)
    np.testing.assert_allclose(found_inverse, inverse, rtol=1e-3)
    np.testing.assert_allclose(y, (x - mean) * inverse * s + (b if bias else 0), rtol=1e-2, atol=1e-2)


def test_a_function_may_end_a_part_of_the_network() -> None:
    """The function of LinearAttention is a loop over time, whose turns are kernels; what follows it is bound later."""
    text = """
    g (float[1,3,8] q, float[1,3,8] k, float[1,3,8] v) => (float[1,3,8] z, float[1,2,4,4] state) {
        [attend] y, state =
            LinearAttention <q_num_heads: int = 2, kv_num_heads: int = 2, update_rule: string = "linear"> (q, k, v)
        z = Neg (y)
    }"""
    model = load_model(parser.parse_model(f'<ir_version: 10, opset_import: ["" : 27]> {text}'))
    walked = model.walk({}, evaluate)
    assert walked.follows is not None
    assert (walked.follows.kind, walked.follows.op_type) == ("repeat", "Scan")
    assert walked.follows.node.startswith("attend/")
    assert host_calls(walked.graph) == NO_CALLS


def test_outputs_that_nobody_asks_for_may_be_left_out(decide: Any) -> None:
    """Attention has four; the last one is wanted alone with the first. With such a mask it is not written by heads."""
    text = """
    g (float[1,2,3,4] q, float[1,2,5,4] k, float[1,2,5,4] v, float[3,1] m)
        => (float[1,2,3,4] y, float[1,2,3,5] products)
    {
        y, "", "", products = Attention (q, k, v, m)
    }"""
    expanded = bound(text)
    decide(False, "Attention")
    whole = bound(text)
    assert types_in(whole) == {"Attention"}
    assert host_calls(expanded) == NO_CALLS
    feeds = {name: RNG.standard_normal(whole.types[name].shape).astype("f") for name in "qkvm"}
    for got, wanted in zip(run_graph(expanded, feeds), run_graph(whole, feeds), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("given", "slope"), [("", 0.5), ("<alpha: float = 0.25>", 0.25)])
def test_a_function_of_the_model_has_its_own_defaults(given: str, slope: float) -> None:
    """The inliner of onnx forgets them, and the operators inside would take theirs; also inside another function."""
    text = f"""
    <ir_version: 10, opset_import: ["" : 21, "own" : 1]>
    g (float[3] x) => (float[3] y, float[3] z) {{ y = own.leak {given} (x)  z = own.outer (x) }}
    <opset_import: ["" : 21], domain: "own">
    leak <alpha: float = 0.5> (a) => (b) {{ b = LeakyRelu <alpha: float = @alpha> (a) }}
    <opset_import: ["" : 21, "own" : 1], domain: "own"> outer (a) => (b) {{ b = own.leak (a) }}"""
    x = np.float32([1, -2, 4])
    graph = load_model(parser.parse_model(text)).bind({}, evaluate)
    for found, rate in zip(run_graph(graph, {"x": x}), (slope, 0.5), strict=True):
        assert found.tolist() == np.where(x < 0, x * rate, x).tolist()
