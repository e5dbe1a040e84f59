"""Checks gradients of one operator: against numerical differences of the host's numbers in float64, and torch's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from graph_runner import run_graph
from opbuild.graph.gradients.reverse import differentiate
from opbuild.graph.passes.infer import infer, type_of
from opbuild.graph.types import Array, Graph, Node

STEP = 1e-6

CHECKED: list[tuple[str, float]] = []
"""The operator of each gradient that was checked so far, and its greatest error, of 1 and the gradient's size."""


@pytest.fixture(scope="module", autouse=True)
def told() -> Iterator[None]:
    """Print at the end, with ``-s``, what was checked in this process."""
    yield
    apart, where = max(((error, name) for name, error in CHECKED), default=(0.0, ""))
    operators = len({name for name, _ in CHECKED})
    print(f"\n{len(CHECKED)} gradients of {operators} operators; at most {apart:.1e} from differences ({where})")


def draw(*shape: int, low: float = -2.0, high: float = 2.0, seed: int = 0) -> Array:
    """Return random numbers."""
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
        constants[f"w_{name}"] = draw(*kind.shape, seed=7)
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


def check(
    op_type: str,
    *arrays: Array | None,
    outputs: int = 1,
    domain: str = "",
    only: Sequence[int] | None = None,
    **attrs: Any,
) -> None:
    """Compare the gradients of an operator by all inputs of float64, or ``only`` some; ``CHECKED`` notes the errors."""
    graph = _network(op_type, list(arrays), attrs, outputs, domain)
    feeds = {f"x{i}": array for i, array in enumerate(arrays) if array is not None and array.dtype == np.float64}
    wanted = list(feeds) if only is None else [f"x{index}" for index in only]
    _, *found = run_graph(differentiate(graph, wanted), feeds)
    for name, gradient in zip(wanted, found, strict=True):
        differences = _differences(graph, feeds, name)
        np.testing.assert_allclose(gradient, differences, rtol=1e-6, atol=1e-7, err_msg=name)
        apart = float(np.max(np.abs(gradient - differences) / (1 + np.abs(differences)), initial=0))
        CHECKED.append((f"{domain}:{op_type}".lstrip(":"), apart))


def ints(*numbers: int) -> Array:
    """Return a list of int64."""
    return np.array(numbers, np.int64)


def torchs(function: Callable[..., Any], *arrays: Array) -> list[Array]:
    """Return the gradients of the sum of what a function of torch gives."""
    leaves = [torch.tensor(each, requires_grad=True) for each in arrays]
    return [each.numpy() for each in torch.autograd.grad(function(*leaves).sum(), leaves)]


def ours(op_type: str, *arrays: Array | None, domain: str = "", **attrs: Any) -> list[Array]:
    """Return the gradients of the sum of an operator's first output, by its inputs of float64."""
    names = tuple("" if array is None else f"x{index}" for index, array in enumerate(arrays))
    types = {name: type_of(each) for name, each in zip(names, arrays, strict=True) if each is not None}
    floats = tuple(name for name in types if types[name].dtype == "float64")
    feeds = {name: each for name, each in zip(names, arrays, strict=True) if each is not None}
    constants = {name: each for name, each in feeds.items() if name not in floats}
    node = Node(op_type, names, ("y",), attrs, op_type, domain)
    graph = infer(Graph("one", (node,), floats, ("y",), types, constants))
    return run_graph(differentiate(graph, floats), {name: feeds[name] for name in floats})[1:]
