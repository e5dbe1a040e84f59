"""MindSpore's face without a compiler: what it traces is evaluated by the host backend."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest

from opbuild.graph.types import Graph
from opbuild.mindspore import context, execution
from support.graph_runner import run_graph

Array = npt.NDArray[np.generic]


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[Graph]:
    """Evaluate networks on the host and list the graphs that were built; context and caches are fresh."""
    built: list[Graph] = []

    def build(graph: Graph) -> execution.Call:
        built.append(graph)

        def call(arrays: Sequence[Array]) -> Sequence[Array]:
            return run_graph(graph, dict(zip(graph.inputs, arrays, strict=True)))

        return call

    monkeypatch.setattr(execution, "build", build)
    monkeypatch.setattr(execution, "_EAGER", execution._EagerNetworks())
    monkeypatch.setattr(context, "_CONTEXT", context._Context())
    context.set_context(mode=context.GRAPH_MODE)
    return built
