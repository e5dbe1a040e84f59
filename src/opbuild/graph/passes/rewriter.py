"""What a pass writes the new graph into."""

from __future__ import annotations

import numpy as np

from opbuild.graph.constants import Constants, Deferred
from opbuild.graph.passes.infer import infer_node, type_of
from opbuild.graph.types import Array, Graph, Node


class Rewriter:
    """Collects the nodes, constants and types of the graph that a pass returns."""

    def __init__(self, graph: Graph) -> None:
        self.types = dict(graph.types)
        self.constants = Constants(graph.constants)
        self.nodes: list[Node] = []
        self._numbers: dict[str, int] = {}

    def constant(self, name: str, value: Array | Deferred) -> str:
        """Add a constant and return its name, which begins with ``name``."""
        name = self.fresh(name)
        self.constants[name], self.types[name] = value, value.type if isinstance(value, Deferred) else type_of(value)
        return name

    def add(
        self, node: Node, op_type: str, inputs: tuple[str, ...], output: str = "", *others: str, **attrs: object
    ) -> str:
        """Append an operator that takes part in computing ``node``; return the name of its first output.

        Args:
            node: The node that it takes part in computing.
            op_type: Its type.
            inputs: The names of its inputs, ``""`` for an absent one.
            output: The name of its first output; one is made if it is empty.
            others: The names of its other outputs.
            attrs: Its attributes, and its ``domain``.
        """
        outputs = (output or self.fresh(f"{node.name}/{op_type}"), *others)
        domain = str(attrs.pop("domain", ""))
        new = Node(op_type, inputs, outputs, attrs, node.name, domain, made_of=node.origins)
        types = [self.types[name] if name else None for name in inputs]
        found = infer_node(new, types, [self.constants.get(name) for name in inputs])
        self.types.update(zip(outputs, found, strict=True))
        self.nodes.append(new)
        return outputs[0]

    def reshaped(self, node: Node, name: str, shape: tuple[int, ...], output: str = "") -> str:
        """Return a value in another shape, ``output`` if that is given; a constant is changed now."""
        if self.types[name].shape == shape and not output:
            return name
        if name in self.constants and not output:
            return self.constant(f"{name}/reshaped", self.constants[name].reshape(shape))
        wanted = self.constant(f"{node.name}/shape", np.array(shape, np.int64))
        return self.add(node, "Reshape", (name, wanted), output)

    def fresh(self, name: str) -> str:
        """Return ``name``, numbered if it is taken."""
        found, index = name, self._numbers.get(name, 0)
        while found in self.types:
            index += 1
            found = f"{name}#{index}"
        self._numbers[name] = index
        return found

    def graph(self, source: Graph) -> Graph:
        """Return ``source`` with the nodes, constants and types collected here."""
        return source.with_(nodes=tuple(self.nodes), types=self.types, constants=self.constants)
