"""Writes backward operators into a graph of their own and runs it on the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from opbuild.graph.gradients.reverse import ExtendedGraph
from opbuild.graph.graph_builder import GraphBuilder, Value
from opbuild.graph.passes.cleanup import eliminate_dead
from opbuild.graph.passes.infer import type_of
from opbuild.graph.types import Graph
from support.graph_runner import run_graph

Array = npt.NDArray[np.generic]
Write = Callable[..., Value | Sequence[Value]]


def written(write: Write, *arrays: Array) -> list[Array]:
    """Return the results of the operators of ``write``, given a ``GraphBuilder`` and a value for each array."""
    names = tuple(f"x{number}" for number in range(len(arrays)))
    types = {name: type_of(array) for name, array in zip(names, arrays, strict=True)}
    empty = Graph("backward", (), names, (), types, {})
    of = GraphBuilder("backward", scope := ExtendedGraph(empty))
    found = write(of, *map(of.value, names))
    values = [found] if isinstance(found, Value) else list(found)
    graph = eliminate_dead(scope.graph(empty).with_(outputs=tuple(each.name for each in values)))
    return run_graph(graph, dict(zip(names, arrays, strict=True)))
