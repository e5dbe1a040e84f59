"""The graph that gradients are written into."""

from __future__ import annotations

from opbuild.graph.constants import Deferred
from opbuild.graph.passes.rewriter import NewGraph
from opbuild.graph.types import Array, Graph


class ExtendedGraph(NewGraph):
    """A graph to whose end operators are written.

    Args:
        graph: The graph.
    """

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.nodes.extend(graph.nodes)
        self.producers.update(graph.producers())
        self._shared: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def constant(self, value: Array | Deferred, name: str = "gradient/constant") -> str:
        """Add a constant and return its name; equal small ones are one."""
        if isinstance(value, Deferred) or value.dtype == object or value.nbytes > 256:
            return super().constant(value, name)
        key = (value.dtype.name, value.shape, value.tobytes())
        if key not in self._shared:
            self._shared[key] = super().constant(value, name)
        return self._shared[key]
