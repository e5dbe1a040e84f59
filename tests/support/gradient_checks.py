"""Checks gradients of one operator: against numerical differences of the host's numbers in float64, and torch's."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from opbuild.backend.evaluate import evaluate
from opbuild.graph.gradients.reverse import ExtendedGraph, differentiate
from opbuild.graph.graph_builder import GraphBuilder
from opbuild.graph.passes.infer import type_of
from opbuild.graph.types import Array, Graph, Node
from support.fuzzing import CAMPAIGN
from support.graph_runner import run_graph

STEP = 1e-6
FEW = 3

CHECKED: list[tuple[str, float]] = []
"""The operator of each gradient that was checked so far, and its greatest error, of 1 and the gradient's size."""


@pytest.fixture(scope="module", autouse=True)
def told() -> Iterator[None]:
    """Print at the end, with ``-s``, the checks of this process."""
    yield
    apart, where = max(((error, name) for name, error in CHECKED), default=(0.0, ""))
    operators = len({name for name, _ in CHECKED})
    print(f"\n{len(CHECKED)} gradients of {operators} operators; at most {apart:.1e} from differences ({where})")


def draw(*shape: int, low: float = -2.0, high: float = 2.0, seed: int = 0) -> Array:
    """Return random numbers."""
    return np.random.default_rng(seed).uniform(low, high, shape)


def one_node(
    op_type: str, arrays: Sequence[Array | None], attrs: dict[str, Any], outputs: int = 1, domain: str = ""
) -> tuple[Graph, dict[str, Array]]:
    """Return a graph of one operator, and its feeds: floats are its inputs, other arrays constants.

    The types of its results are those that it computes: not all operators have a rule of shapes.
    """
    names = tuple("" if array is None else f"x{index}" for index, array in enumerate(arrays))
    given = {name: array for name, array in zip(names, arrays, strict=True) if array is not None}
    feeds = {name: array for name, array in given.items() if array.dtype.kind == "f" and array.dtype != np.float16}
    widest = max((each.dtype for each in feeds.values()), default=np.dtype("f8"))
    feeds = {name: array for name, array in feeds.items() if array.dtype == widest}
    constants = {name: array for name, array in given.items() if name not in feeds}
    made = tuple(f"y{number}" for number in range(outputs))
    node = Node(op_type, names, made, attrs, op_type, domain)
    found = evaluate(node, list(arrays), Graph.opset)
    types = {name: type_of(np.asarray(array)) for name, array in (*given.items(), *zip(made, found, strict=False))}
    return Graph("one", (node,), tuple(feeds), made, types, constants), feeds


def _weighed(graph: Graph) -> Graph:
    """Return a graph whose result is the sum of all floats that another one gives, times numbers of their own."""
    scope = ExtendedGraph(graph)
    of = GraphBuilder("loss", scope)
    results = [of.value(name) for name in graph.outputs]
    floats = [each for each in results if each.dtype == "float64"]
    parts = [of("Mul", each, of.constant(draw(*each.shape, seed=7))) for each in floats]
    loss = of("Sum", *(of("ReduceSum", each, keepdims=0) for each in parts))
    return scope.graph(graph).with_(outputs=(loss.name,))


def _directions(shape: tuple[int, ...]) -> Array:
    """Return directions in which to go: few in which all elements move, each element's own in a campaign.

    Whichever element of a gradient is wrong, what is expected in each of the few is: no element of them is near 0.
    """
    size = math.prod(shape)
    if CAMPAIGN or size <= FEW:
        return np.eye(size).reshape(size, *shape)
    return draw(FEW, *shape, low=0.5, high=1.5, seed=8) * np.sign(draw(FEW, *shape, seed=9))


def _differences(graph: Graph, feeds: dict[str, Array], name: str, directions: Array) -> Array:
    """Return the central differences of a network's output where an input goes in directions."""
    found = []
    for direction in directions:
        there, back = (
            float(run_graph(graph, {**feeds, name: feeds[name] + step * direction})[0]) for step in (STEP, -STEP)
        )
        found.append((there - back) / (2 * STEP))
    return np.array(found)


def check(
    op_type: str,
    *arrays: Array | None,
    outputs: int = 1,
    domain: str = "",
    only: Sequence[int] | None = None,
    **attrs: Any,
) -> None:
    """Compare the gradients of an operator by all inputs of float64, or ``only`` some; ``CHECKED`` notes the errors."""
    one, feeds = one_node(op_type, arrays, attrs, outputs, domain)
    graph = _weighed(one)
    wanted = list(feeds) if only is None else [f"x{index}" for index in only]
    _, *found = run_graph(differentiate(graph, wanted), feeds)
    for name, gradient in zip(wanted, found, strict=True):
        directions = _directions(feeds[name].shape)
        differences = _differences(graph, feeds, name, directions)
        assert gradient.shape == feeds[name].shape
        slopes = np.array([np.vdot(direction, gradient) for direction in directions])
        np.testing.assert_allclose(slopes, differences, rtol=1e-6, atol=1e-7, err_msg=name)
        apart = float(np.max(np.abs(slopes - differences) / (1 + np.abs(differences)), initial=0))
        CHECKED.append((f"{domain}:{op_type}".lstrip(":"), apart))


def ints(*numbers: int) -> Array:
    """Return a list of int64."""
    return np.array(numbers, np.int64)


def torchs(function: Callable[..., Any], *arrays: Array) -> list[Array]:
    """Return the gradients of the sum of a torch function's results."""
    leaves = [torch.tensor(each, requires_grad=True) for each in arrays]
    return [each.numpy() for each in torch.autograd.grad(function(*leaves).sum(), leaves)]


def ours(op_type: str, *arrays: Array | None, domain: str = "", **attrs: Any) -> list[Array]:
    """Return the gradients of the sum of an operator's first output, by its inputs of floats."""
    graph, feeds = one_node(op_type, arrays, attrs, domain=domain)
    return run_graph(differentiate(graph, tuple(feeds)), feeds)[1:]
