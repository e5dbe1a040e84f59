"""Random networks whose outputs replace inputs: the caller's arrays hold what the same network returns elsewhere.

``OPBUILD_FUZZ=500`` tries so many.
"""

from __future__ import annotations

import numpy as np
import pytest

import opbuild
from opbuild.config import Config
from opbuild.graph.types import Array, Graph, Node, TensorType
from support.fuzzing import check_seeds
from support.tiers import spans

SIZES = ((64,), (10,), (3, 7), (4, 16, 3), (5000,), (16411,), (0, 3), ())
"""Whole vectors, rows with an end, one element, none; some long enough to be divided among tasks."""


def random_updates(seed: int) -> Graph:
    """Return a network of sums, products, norms and swaps, of which some outputs replace inputs."""
    random = np.random.default_rng(seed)
    shape = SIZES[random.integers(len(SIZES))]
    whole, single = TensorType("float32", shape), TensorType("float32", (1,) * len(shape))
    types = {f"x{index}": whole for index in range(4)}
    nodes, values, inputs = list[Node](), [*types], tuple(types)
    for number in range(int(random.integers(2, 9))):
        name = f"v{number}"
        one, other = (values[index] for index in random.integers(len(values), size=2))
        if random.random() < 0.15 and shape and types[one] == whole:
            nodes.append(Node("ReduceSum", (one,), (name,), {"keepdims": 1}, name))
            types[name] = single
        elif random.random() < 0.15:
            nodes.append(Node("Identity", (one,), (name,), name=name))
            types[name] = types[one]
        else:
            nodes.append(Node(("Add", "Sub", "Mul")[random.integers(3)], (one, other), (name,), name=name))
            types[name] = whole if whole in (types[one], types[other]) else single
        values.append(name)
    made = [name for name in values[4:] if types[name] == whole]
    outputs = tuple(random.permutation(made)[: int(random.integers(1, 5))].tolist()) or inputs[:1]
    targets = random.permutation(4)[: int(random.integers(1, len(outputs) + 1))].tolist()
    return Graph("updates", tuple(nodes), inputs, outputs, types, {}, updates=tuple(enumerate(targets)))


def check(graph: Graph, config: Config) -> None:
    """Run a network twice, once with its updates and once without."""
    plain, updating = (opbuild.compile_graph(each, config=config) for each in (graph.with_(updates=()), graph))
    random = np.random.default_rng(0)
    arrays = [np.asarray(random.standard_normal(graph.types[name].shape), np.float32) for name in graph.inputs]
    for _ in range(2):
        before, replaced = [each.copy() for each in arrays], dict(graph.updates)
        wanted, found = _all(plain(*before)), _all(updating(*arrays))
        for place, (one, other) in enumerate(zip(wanted, found, strict=True)):
            np.testing.assert_array_equal(one, other)
            assert place not in replaced or other is arrays[replaced[place]]
        for index, (one, other) in enumerate(zip(before, arrays, strict=True)):
            assert index in replaced.values() or (one == other).all()


def _all(results: Array | tuple[Array, ...]) -> tuple[Array, ...]:
    return results if isinstance(results, tuple) else (results,)


@pytest.mark.parametrize("seeds", spans(12, 3))
def test_outputs_that_replace_inputs_are_those_that_do_not(seeds, config):
    """The same bits; what is not replaced stays; the array that is returned is the caller's own."""
    check_seeds("outputs in place of inputs", lambda seed: check(random_updates(seed), config), seeds)
