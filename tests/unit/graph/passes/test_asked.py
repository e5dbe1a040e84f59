"""Layers that gradients ask for more of what they compute are one layer."""

from __future__ import annotations

from typing import Any

from opbuild.backend.evaluate import evaluate
from opbuild.graph.gradients.reverse import differentiate
from opbuild.graph.passes.cleanup import merge_duplicates
from opbuild.graph.passes.infer import infer
from opbuild.graph.passes.pipeline import optimize
from opbuild.graph.types import Graph, Node, TensorType

ATTRS: dict[str, Any] = {"hidden_size": 3}


def layers(*nodes: Node, outputs: tuple[str, ...]) -> Graph:
    """Return a graph of layers of the same inputs."""
    shapes = {"x": (4, 2, 5), "w": (1, 12, 5), "r": (1, 12, 3), "v": (1, 12, 5)}
    types = {name: TensorType("float32", shape) for name, shape in shapes.items()}
    return infer(Graph("layers", nodes, tuple(shapes), outputs, types, {}))


def layer(w: str, *outputs: str, **attrs: Any) -> Node:
    """Return an LSTM."""
    return Node("LSTM", ("x", w, "r"), outputs, {**ATTRS, **attrs}, outputs[-1])


def test_one_layer_gives_what_both_gave() -> None:
    """For what both have there is the first one's name."""
    more = Node("Neg", ("again",), ("z",), {}, "z"), Node("Neg", ("kept",), ("s",), {}, "s")
    joined = merge_duplicates(
        layers(layer("w", "y"), layer("w", "again", "", "", "kept"), *more, outputs=("y", "z", "s"))
    )
    assert [node.outputs for node in joined.nodes] == [("y", "", "", "kept"), ("z",), ("s",)]
    assert joined.nodes[1].inputs == ("y",)
    assert "again" not in joined.types


def test_layers_of_other_weights_or_attributes_stay() -> None:
    """So does one whose output is one of the graph: it keeps its name."""
    others = (layer("v", "a"), layer("w", "b", clip=2.0), layer("w", "c"))
    graph = layers(layer("w", "y"), *others, outputs=("y", "a", "b", "c"))
    assert merge_duplicates(graph) is graph


def test_a_gradient_needs_one_layer() -> None:
    """What the gates got is kept, not computed again: the only products are the chain's and those of weights."""
    loss = Node("ReduceSum", ("y",), ("loss",), {"keepdims": 0}, "loss")
    graph = optimize(differentiate(layers(layer("w", "y"), loss, outputs=("loss",)), ("w", "r")), evaluate)
    kinds = [node.op_type for node in graph.nodes]
    assert kinds.count("LSTM") == 1
    assert kinds.count("MatMul") == 3 + 2
