"""Runs a graph node by node on the host backend, checking every value's type on the way."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from opbuild.backend.host.evaluate import evaluate
from opbuild.graph.types import COLLECTIVES, Graph
from opbuild.ranks.world import evaluate_collective

Array = npt.NDArray[np.generic]


def run_graph(graph: Graph, feeds: Mapping[str, Array]) -> list[Array]:
    """Return a graph's outputs; a value whose shape or element type is not the graph's fails the test."""
    values: dict[str, Array] = {**graph.constants, **feeds}
    for node in graph.nodes:
        inputs = [values[name] if name else None for name in node.inputs]
        together = node.domain == COLLECTIVES
        found = evaluate_collective(node, inputs) if together else evaluate(node, inputs, graph.opset)
        for name, value in zip(node.outputs, found, strict=True):
            if name:
                kind = graph.types[name]
                assert (str(value.dtype), value.shape) == (kind.dtype, kind.shape), (node.op_type, node.name, name)
                values[name] = value
    return [values[name] for name in graph.outputs]
