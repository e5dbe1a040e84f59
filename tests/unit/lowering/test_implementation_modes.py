"""op_select_implmode and optypelist_for_implmode: which descriptors state the mode, and for which operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from opbuild.backend.host.evaluate import evaluate
from opbuild.config import Config
from opbuild.errors import OptionError
from opbuild.graph.passes.infer import check_types, infer_node, known_types
from opbuild.graph.passes.pipeline import optimize
from opbuild.graph.types import Array, Graph, Node, TensorType
from opbuild.kernel.opdesc import OpDesc
from opbuild.lowering.context import Options
from opbuild.lowering.lower import lower
from opbuild.pipeline.setup import set_up
from opbuild.pipeline.steps import lowering_options
from opbuild.pipeline.stores import Stores
from opbuild.target.host import host_level

CONV = {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}
IMAGE = np.zeros((1, 32, 20, 20), np.float32)
WEIGHTS = np.ones((32, 32, 3, 3), np.float32)
CHANNEL = np.ones((1, 32, 1, 1), np.float32)

Step = tuple[str, str, dict[str, Any]]


def graph_of(steps: Sequence[Step], x: Array = IMAGE, constants: Mapping[str, Array] | None = None) -> Graph:
    """Return a graph of ``(operator, inputs, attributes)``, whose results are t0, t1, ..."""
    known = dict(constants or {})
    types = {name: TensorType(str(array.dtype), array.shape) for name, array in {"x": x, **known}.items()}
    nodes = []
    for number, (op_type, inputs, attrs) in enumerate(steps):
        node = Node(op_type, tuple(inputs.split()), (f"t{number}",), attrs, f"n{number}")
        found = infer_node(node, [types[n] for n in node.inputs], [known.get(n) for n in node.inputs])
        types[f"t{number}"] = found[0]
        nodes.append(node)
    return Graph("g", tuple(nodes), ("x",), (nodes[-1].outputs[0],), types, known)


def descriptors(graph: Graph, mode: str = "high_precision", types: tuple[str, ...] = ()) -> list[OpDesc]:
    """Return the descriptors that a graph needs, in order."""
    options = Options(impl_mode=mode, impl_types=types)
    return list(lower(optimize(graph, evaluate), host_level(), options).descriptors())


def modes(graph: Graph, types: tuple[str, ...] = ()) -> dict[str, bool]:
    """Return whether each kernel, by its operator types, is compiled in the mode ``high_precision``."""
    return {desc.op_type: desc.is_precise for desc in descriptors(graph, types=types)}


AXES = {"axes": np.array([1], np.int64)}

SAME: dict[str, tuple[Step, Array, Mapping[str, Array]]] = {
    "relu": (("Relu", "x", {}), IMAGE, {}),
    "arithmetic": (("Add", "x x", {}), IMAGE, {}),
    "power": (("Pow", "x e", {}), IMAGE, {"e": np.array(2.7, np.float32)}),
    "exp of float64": (("Exp", "x", {}), IMAGE.astype(np.float64), {}),
    "exp of float16": (("Exp", "x", {}), IMAGE.astype(np.float16), {}),
    "maximum": (("ReduceMax", "x axes", {}), IMAGE, AXES),
    "integer sum": (("ReduceSum", "x axes", {}), IMAGE.astype(np.int32), AXES),
    "float64 sum": (("ReduceSum", "x axes", {}), IMAGE.astype(np.float64), AXES),
    "position of the maximum": (("ArgMax", "x", {"axis": 1}), IMAGE, {}),
    "maximum pool": (("MaxPool", "x", {"kernel_shape": (2, 2)}), IMAGE, {}),
    "global maximum pool": (("GlobalMaxPool", "x", {}), IMAGE, {}),
    "transpose": (("Transpose", "x", {"perm": (0, 2, 3, 1)}), IMAGE, {}),
    "pointwise convolution": (
        ("Conv", "x w", {"kernel_shape": (1, 1)}), IMAGE, {"w": np.zeros((32, 32, 1, 1), np.float32)},
    ),
}  # fmt: skip
"""Operators that both modes compute alike."""


@pytest.mark.parametrize("case", SAME)
def test_what_the_mode_does_not_change_has_one_key(case: str) -> None:
    """An operator for which both modes give the same code has the same descriptor in both: it is built once."""
    step, x, constants = SAME[case]
    graph = graph_of([step], x, constants)
    assert descriptors(graph) == descriptors(graph, "high_performance")


DIFFERENT: dict[str, tuple[Step, Mapping[str, Array]]] = {
    "function": (("Tanh", "x", {}), {}),
    "softmax": (("Softmax", "x", {"axis": 1}), {}),
    "layer normalization": (
        ("LayerNormalization", "x s", {"axis": -1}), {"s": np.ones(20, np.float32)},
    ),
    "mean": (("ReduceMean", "x axes", {}), AXES),
    "product": (("MatMul", "x w", {}), {"w": np.zeros((20, 24), np.float32)}),
    "dot product": (("MatMul", "x w", {}), {"w": np.zeros((20, 1), np.float32)}),
    "average pool": (("AveragePool", "x", {"kernel_shape": (2, 2)}), {}),
    "global average pool": (("GlobalAveragePool", "x", {}), {}),
    "response normalization": (("LRN", "x", {"size": 5}), {}),
}  # fmt: skip
"""Operators that the modes compute differently."""


@pytest.mark.parametrize("case", DIFFERENT)
def test_what_the_mode_changes_has_a_key_for_each(case: str) -> None:
    """The descriptors differ, and in nothing but the mode."""
    step, constants = DIFFERENT[case]
    graph = graph_of([step], constants=constants)
    changed = set(descriptors(graph)) - set(descriptors(graph, "high_performance"))
    assert len(changed) == 1
    parts = changed.pop().components()
    assert parts["impl_mode"] == "high_precision"
    same = OpDesc.from_components({**parts, "impl_mode": "high_performance"})
    assert same in descriptors(graph, "high_performance")


def test_a_convolution_states_the_mode_only_for_its_epilogue() -> None:
    """F(2x2) is the same kernel in both modes; a Tanh behind it is not."""
    plain = graph_of([("Conv", "x w", CONV), ("Relu", "t0", {})], constants={"w": WEIGHTS})
    found = next(desc for desc in descriptors(plain) if desc.family == "winograd")
    assert (found.variant["tile"], found.is_precise) == (2, False)
    curved = graph_of([("Conv", "x w", CONV), ("Tanh", "t0", {})], constants={"w": WEIGHTS})
    assert next(desc for desc in descriptors(curved) if desc.family == "winograd").is_precise


def test_listed_types_alone_are_computed_precisely() -> None:
    """The others keep the fast kernels."""
    graph = graph_of([("Softmax", "x", {"axis": 1}), ("LRN", "t0", {"size": 5})])
    assert modes(graph, ("LRN",)) | modes(graph) == {**modes(graph)}
    assert (modes(graph, ("LRN",))["lrn"], modes(graph, ("LRN",))["softmax"]) == (True, False)
    assert not any(modes(graph, ("Conv",)).values())


FUSED: dict[str, tuple[list[Step], str, Sequence[str]]] = {
    "chain": ([("Exp", "x", {}), ("Add", "t0 x", {}), ("Sqrt", "t1", {})], "exp_add_sqrt", ("Exp", "Add", "Sqrt")),
    "epilogue": ([("Conv", "x w", CONV), ("Tanh", "t0", {})], "conv_tanh", ("Conv", "Tanh")),
    "folded scale": (
        [("Conv", "x w", CONV), ("Mul", "t0 c", {}), ("Sigmoid", "t1", {})], "conv_sigmoid", ("Conv", "Mul", "Sigmoid"),
    ),
    "gelu found": (
        [("Div", "x r", {}), ("Erf", "t0", {}), ("Add", "t1 one", {}), ("Mul", "x t2", {}), ("Mul", "t3 half", {})],
        "gelu", ("Erf", "Div", "Gelu"),
    ),
    "swish": ([("Swish", "x", {})], "silu", ("Swish",)),
}  # fmt: skip
"""The model's operators, the kernel that they become, and types that it contains."""

NUMBERS = {
    "w": WEIGHTS, "c": CHANNEL, "r": np.array(np.sqrt(2), np.float32), "one": np.array(1, np.float32),
    "half": np.array(0.5, np.float32),
}  # fmt: skip


@pytest.mark.parametrize("case", FUSED)
def test_a_fused_kernel_that_contains_a_listed_type_is_precise(case: str) -> None:
    """Types are those of the model, whatever passes made of its operators."""
    steps, kernel, types = FUSED[case]
    graph = graph_of(steps, constants=NUMBERS)
    for op_type in types:
        assert modes(graph, (op_type,))[kernel], op_type
    assert not modes(graph, ("Softmax",))[kernel]


def test_a_layer_normalization_found_contains_its_mean() -> None:
    """One that the model writes out is precise if ReduceMean is listed, one of the model's own is not."""
    axes, two, small = np.array([-1], np.int64), np.array(2, np.float32), np.array(1e-5, np.float32)
    written = graph_of(
        [
            ("ReduceMean", "x axes", {"keepdims": 1}), ("Sub", "x t0", {}), ("Pow", "t1 two", {}),
            ("ReduceMean", "t2 axes", {"keepdims": 1}), ("Add", "t3 small", {}), ("Sqrt", "t4", {}),
            ("Div", "t1 t5", {}),
        ],
        constants={"axes": axes, "two": two, "small": small},
    )  # fmt: skip
    step, constants = DIFFERENT["layer normalization"]
    assert modes(written, ("ReduceMean",)) == {"layernormalization": True}
    assert modes(graph_of([step], constants=constants), ("ReduceMean",)) == {"layernormalization": False}


def test_every_onnx_operator_may_be_listed() -> None:
    """All that the installed onnx package knows, in any operator set."""
    schemas = onnx.defs.get_all_schemas_with_history()
    assert {schema.name for schema in schemas if schema.domain == ""} <= known_types()


def test_an_unknown_type_is_named_with_what_may_be_meant() -> None:
    """The error names the option, the type and its neighbours."""
    with pytest.raises(OptionError, match="optypelist_for_implmode names 'SoftmaxV2', which is no") as caught:
        check_types(("Conv", "SoftmaxV2"))
    assert "Softmax" in caught.value.hint


def test_a_setup_refuses_unknown_types() -> None:
    """Whatever the way in: opbuild.compile, a cell, the command line."""
    with pytest.raises(OptionError, match="names 'Pooling'"):
        set_up(Config(optypelist_for_implmode=("Pooling",)), None, None)


def test_settings_reach_lowering_and_the_key_of_networks(tmp_path: Path) -> None:
    """Settings that mean the same give one key, whatever the order and the repetition of types."""

    def key(**settings: Any) -> Any:
        stores = Stores(set_up(Config(cache_path=tmp_path, **settings), None, None))
        return stores.networks.key("network", "digest", {}).components["precision"]

    precise = {"op_select_implmode": "high_precision"}
    options = lowering_options(Config(**precise, optypelist_for_implmode=("Tanh",)))
    assert (options.impl_mode, options.impl_types) == ("high_precision", ("Tanh",))
    assert key() == key(optypelist_for_implmode=("Tanh",)) == key(op_select_implmode="high_performance")
    two = key(**precise, optypelist_for_implmode=("Tanh", "Exp"))
    assert two == key(**precise, optypelist_for_implmode=("Exp", "Tanh"))
    keys = [key(), key(**precise), two, key(precision_mode="force_fp32")]
    assert all(keys.count(each) == 1 for each in keys)
