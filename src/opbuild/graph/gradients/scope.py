"""The graph that gradients are written into."""

from __future__ import annotations

from opbuild.graph.passes.infer import infer_node
from opbuild.graph.passes.rewriter import Rewriter
from opbuild.graph.types import Array, Graph, Node, TensorType
from opbuild.graph.writing import Value


class GraphScope:
    """A graph to whose end operators are written.

    Args:
        graph: The graph.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._written = Rewriter(graph)
        self._written.nodes.extend(graph.nodes)
        self._producers = graph.producers()
        self._numbers: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def constant(self, value: Array) -> str:
        """Add a constant and return its name; equal small ones are one."""
        if value.dtype == object or value.nbytes > 256:
            return self._written.constant("gradient/constant", value)
        key = (value.dtype.name, value.shape, value.tobytes())
        if key not in self._numbers:
            self._numbers[key] = self._written.constant("gradient/constant", value)
        return self._numbers[key]

    def type_of(self, name: str) -> TensorType:
        """Return the type of a value."""
        return self._written.types[name]

    def value(self, name: str) -> Value:
        """Return a value by its name."""
        return Value(name, self.type_of(name))

    def append(self, node: Node) -> None:
        """Add a node; its outputs get their types."""
        types = [self.type_of(name) if name else None for name in node.inputs]
        found = infer_node(node, types, [self.value_of(name) for name in node.inputs])
        self._written.types.update(zip(node.outputs, found, strict=True))
        self._written.nodes.append(node)
        self._producers.update(dict.fromkeys(node.outputs, node))

    def fresh(self, name: str) -> str:
        """Return an unused name that begins with ``name``."""
        return self._written.fresh(name)

    def producer(self, name: str) -> Node | None:
        """Return the node that assigns a value; None for inputs and constants."""
        return self._producers.get(name)

    def value_of(self, name: str) -> Array | None:
        """Return a value if it is known when the network is built."""
        return self._written.constants.get(name)

    def graph(self, outputs: tuple[str, ...]) -> Graph:
        """Return the graph with what was written, and other outputs."""
        return self._written.graph(self._graph).with_(outputs=outputs)
