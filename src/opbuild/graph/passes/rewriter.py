"""What a pass writes the new graph into."""

from __future__ import annotations

from opbuild.graph.constants import Constants, Deferred
from opbuild.graph.passes.infer import infer_node, type_of
from opbuild.graph.types import Array, Graph, Node, TensorType


class Rewriter:
    """Collects the nodes, constants and types of the graph that a pass returns."""

    def __init__(self, graph: Graph) -> None:
        self.types = dict(graph.types)
        self.constants = Constants(graph.constants)
        self.nodes: list[Node] = []

    def constant(self, name: str, value: Array | Deferred) -> str:
        """Add a constant and return its name, which begins with ``name``."""
        name = self.fresh(name)
        self.constants[name], self.types[name] = value, value.type if isinstance(value, Deferred) else type_of(value)
        return name

    def add(self, node: Node, op_type: str, inputs: tuple[str, ...], output: str = "", **attrs: object) -> str:
        """Append an operator that takes part in computing ``node``; return the name of its output."""
        output = output or self.fresh(f"{node.name}/{op_type}")
        domain = str(attrs.pop("domain", ""))
        new = Node(op_type, inputs, (output,), attrs, node.name, domain, made_of=node.origins)
        types: list[TensorType | None] = [self.types[name] for name in inputs]
        self.types[output] = infer_node(new, types, [self.constants.get(name) for name in inputs])[0]
        self.nodes.append(new)
        return output

    def fresh(self, name: str) -> str:
        """Return ``name``, numbered if it is taken."""
        found, index = name, 0
        while found in self.types:
            index += 1
            found = f"{name}#{index}"
        return found

    def graph(self, source: Graph) -> Graph:
        """Return ``source`` with the nodes, constants and types collected here."""
        return source.with_(nodes=tuple(self.nodes), types=self.types, constants=self.constants)
