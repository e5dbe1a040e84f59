"""Writes backward operators into a graph of their own and runs it on the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from opbuild.graph.gradients.scope import GraphScope
from opbuild.graph.passes.cleanup import eliminate_dead
from opbuild.graph.passes.infer import type_of
from opbuild.graph.types import Graph
from opbuild.graph.writing import Value, Writing
from support.graph_runner import run_graph

Array = npt.NDArray[np.generic]
Write = Callable[..., Value | Sequence[Value]]


def written(write: Write, *arrays: Array) -> list[Array]:
    """Return what operators compute that ``write`` writes, which gets a ``Writing`` and a value for each array."""
    names = tuple(f"x{number}" for number in range(len(arrays)))
    types = {name: type_of(array) for name, array in zip(names, arrays, strict=True)}
    scope = GraphScope(Graph("backward", (), names, (), types, {}))
    found = write(Writing("backward", scope), *map(scope.value, names))
    values = [found] if isinstance(found, Value) else list(found)
    graph = eliminate_dead(scope.graph(tuple(each.name for each in values)))
    return run_graph(graph, dict(zip(names, arrays, strict=True)))
