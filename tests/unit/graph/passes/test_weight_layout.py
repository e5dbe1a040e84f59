"""States that lie in the blocks which convolutions read: which may, and that nothing else changes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from opbuild.graph import weight_layout
from opbuild.graph.passes.weight_layout import weights_in_blocks
from opbuild.graph.types import Array, Graph, Node, TensorType
from support.graph_runner import run_graph

BLOCK = 4
X, DY = TensorType("float32", (2, 8, 5, 5)), TensorType("float32", (2, 4, 5, 5))
W, NUMBER = TensorType("float32", (4, 8, 3, 3)), TensorType("float32", ())
GEOMETRY = {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}


def step(*more: Node, outputs: Sequence[str] = (), **types: TensorType) -> Graph:
    """Return a step of a convolution: what it gives, what goes back to the data, momentum, and more."""
    nodes = (
        Node("Conv", ("x", "w"), ("y",), GEOMETRY, "conv"),
        Node("ConvTranspose", ("y", "w"), ("dx",), GEOMETRY, "back"),
        Node("ConvWeightGradient", ("x", "y"), ("dw",), GEOMETRY, "gradient", "opbuild"),
        Node("Mul", ("m", "rate"), ("kept",), name="kept"),
        Node("Add", ("kept", "dw"), ("moment",), name="moment"),
        Node("Sub", ("w", "moment"), ("new",), name="new"),
    )
    known = {"x": X, "w": W, "m": W, "rate": NUMBER, "y": DY, "dx": X, "dw": W, "kept": W, "moment": W, "new": W}
    names = ("moment", "new", "y", "dx", *outputs)
    return Graph(
        "step", (*nodes, *more), ("x", "w", "m", "rate"), names, {**known, **types}, {}, updates=((0, 2), (1, 1))
    )


def new(shape: tuple[int, ...]) -> Array:
    """Return an array with any contents."""
    return np.empty(shape, np.float32)


def filled(graph: Graph) -> dict[str, Array]:
    """Return arrays for the inputs of a graph."""
    random = np.random.default_rng(0)
    return {name: random.standard_normal(graph.types[name].shape).astype(np.float32) for name in graph.inputs}


def test_weights_and_moments_lie_in_blocks_and_nothing_else_changes() -> None:
    """They are read by convolutions and changed one element at a time; what the network returns has the same bits."""
    graph = step()
    moved, places = weights_in_blocks(graph, BLOCK, [1, 2])
    assert places == [1, 2]
    assert [moved.types[name].shape for name in ("w", "m", "dw", "new")] == [(1, 2, 3, 3, 4, 4)] * 4
    inputs = filled(graph)
    laid = {**inputs, **{name: weight_layout.in_blocks(inputs[name], BLOCK, new) for name in ("w", "m")}}
    wanted, found = run_graph(graph, inputs), run_graph(moved, laid)
    for place, (one, other) in enumerate(zip(wanted, found, strict=True)):
        np.testing.assert_array_equal(one, weight_layout.plain(np.asarray(other), new) if place < 2 else other)


GROUPS = Node("Conv", ("wide", "w"), ("z",), {**GEOMETRY, "group": 2}, "groups")


@pytest.mark.parametrize(
    ("more", "outputs", "types"),
    [
        ((Node("ReduceSum", ("dw",), ("sum",), {"keepdims": 0}, "sum"),), ("sum",), {"sum": NUMBER}),
        ((Node("Concat", ("x", "x"), ("wide",), {"axis": 1}, "wide"), GROUPS), ("z",),
         {"wide": TensorType("float32", (2, 16, 5, 5)), "z": DY}),
        ((Node("Conv", ("w", "new"), ("z",), GEOMETRY, "itself"),), ("z",), {"z": TensorType("float32", (4, 4, 3, 3))}),
        ((), ("dw",), {}),
        ((Node("Cast", ("dw",), ("half",), {"to": 10}, "half"),), ("half",), {"half": TensorType("float16", W.shape)}),
        ((Node("Mul", ("dw", "row"), ("scaled",), name="scaled"),), ("scaled",),
         {"row": TensorType("float32", (3,)), "scaled": W}),
    ],
    ids=["a sum", "groups", "data", "returned", "of other types", "along an axis"],
)  # fmt: skip
def test_what_is_read_otherwise_stays_plain(
    more: Sequence[Node], outputs: Sequence[str], types: dict[str, TensorType]
) -> None:
    """A sum would be in another order; other readers know no blocks; with one value all that lie like it stay."""
    graph = step(*more, outputs=outputs, **types)
    assert weights_in_blocks(graph, BLOCK, [1, 2]) == (graph, [])


def test_only_states_that_are_free_and_fill_their_blocks_are_moved() -> None:
    """The others stay where they are, with all that is computed from them."""
    graph = step()
    assert weights_in_blocks(graph, 16, [1, 2]) == (graph, [])
    assert weights_in_blocks(graph, BLOCK, [1]) == (graph, [])
    assert weights_in_blocks(graph, BLOCK, []) == (graph, [])
