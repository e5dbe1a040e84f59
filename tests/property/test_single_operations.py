"""Random expressions as single operations: the same bits, by few kernels."""

from __future__ import annotations

import numpy as np

from opbuild.graph.single_operations import split_operations
from opbuild.graph.types import Graph, Node, TensorType
from opbuild.operations.evaluation import evaluate_expression
from opbuild.operations.expression import children, const, dtype_of, from_json
from support.exact_arithmetic import Array
from support.expression_trees import LENGTH, Tree, differences, tree
from support.fuzzing import CAMPAIGN, SEED

COUNT = CAMPAIGN or 150


def fused(one: Tree) -> tuple[Graph, dict[str, Array]]:
    """Return a tree as a graph of one fused node, and its inputs."""
    feeds = {f"x{number}": array for number, array in enumerate(one.args)}
    node = Node("Elementwise", tuple(feeds), ("y",), {"expression": one.expression}, "fused", "opbuild")
    types = {name: TensorType(str(array.dtype), array.shape) for name, array in feeds.items()}
    types["y"] = TensorType(one.dtype(one.expression), (LENGTH,))
    return Graph("tree", (node,), tuple(feeds), ("y",), types, {}, 21), feeds


def value_of(node: Node, values: dict[str, Array]) -> Array:
    """Return the value of a node with an expression."""
    with np.errstate(all="ignore"):
        return evaluate_expression(from_json(node.attrs["expression"]), [values[name] for name in node.inputs])


def test_an_expression_and_its_single_operations_give_the_same_bits() -> None:
    """Of all types, floats of 16 bits too; each operation reads operands, and none is computed twice."""
    failures = []
    for seed in range(SEED, SEED + COUNT):
        one = tree(seed)
        graph, feeds = fused(one)
        (node,) = graph.nodes
        split = split_operations(node, graph)
        if split is None:
            continue
        values: dict[str, Array] = {**feeds, **split.constants}
        for part in split.nodes:
            expression = from_json(part.attrs["expression"])
            assert all(each[0] == "arg" for each in children(expression)), expression
            values[part.outputs[0]] = value_of(part, values)
            told = (split.types | dict(graph.types))[part.outputs[0]]
            assert told.dtype == dtype_of(expression, [str(values[name].dtype) for name in part.inputs]), expression
        assert len({(str(each.attrs), each.inputs) for each in split.nodes}) == len(split.nodes)
        assert [each.name for each in split.nodes][-1] == node.name
        wanted = value_of(node, values)
        got = np.broadcast_to(values[node.outputs[0]], wanted.shape)
        wrong = differences(got, wanted)
        if wrong.size:
            failures.append(f"seed {seed}: {one.expression}: {got[wrong[0]]!r}, not {wanted[wrong[0]]!r}")
    assert not failures, "\n".join(failures)


def test_an_expression_of_literals_is_not_split() -> None:
    """It has no operation that reads anything."""
    node = Node("Elementwise", (), ("y",), {"expression": ("exp", const(2.0))}, "fused", "opbuild")
    graph = Graph("literals", (node,), (), ("y",), {"y": TensorType("float32", (3,))}, {}, 21)
    assert split_operations(node, graph) is None


def test_a_single_operation_is_not_split() -> None:
    """Else nothing would end."""
    graph, _ = fused(tree(3))
    (node,) = graph.nodes
    split = split_operations(node, graph)
    assert split is not None
    inner = graph.with_(
        nodes=tuple(split.nodes), types={**graph.types, **split.types}, constants={**graph.constants, **split.constants}
    )
    assert all(split_operations(each, inner) is None for each in split.nodes)
