"""Pattern: a graph that passes ask backwards for operators that exporters write as several nodes."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from opbuild.graph.passes.cleanup import eliminate_dead
from opbuild.graph.types import Graph, Node
from opbuild.platform.locks import lazy_property

TOLERANCE = 1e-3
"""Constants of a pattern are written with as few as four digits."""


class Pattern:
    """A graph, asked backwards: which node assigns a value, which number it is."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.types, self.constants = graph, graph.types, graph.constants
        self.outputs, self.producers = frozenset(graph.outputs), graph.producers()

    @lazy_property
    def readers(self) -> dict[str, list[Node]]:
        """The nodes that read each value."""
        return self.graph.consumers()

    def node(self, name: str, *op_types: str, domain: str = "") -> Node | None:
        """Return the node of one of these types that assigns a value, if it is one."""
        found = self.producers.get(name)
        return found if found is not None and found.domain == domain and found.op_type in op_types else None

    def step(self, name: str, *op_types: str, domain: str = "") -> Node | None:
        """Return such a node if one node alone reads the value."""
        return self.node(name, *op_types, domain=domain) if self.is_step(name) else None

    def is_step(self, name: str) -> bool:
        """Return whether one node alone reads a value."""
        return name not in self.outputs and len(self.readers.get(name, ())) == 1

    def number(self, name: str) -> float | None:
        """Return the one number that a constant holds, or None."""
        value = self.constants.get(name)
        if value is None or value.size != 1 or not np.issubdtype(value.dtype, np.number):
            return None
        return float(value.reshape(-1)[0])

    def is_number(self, name: str, wanted: float) -> bool:
        """Return whether a value is (nearly) this number."""
        found = self.number(name)
        return found is not None and math.isclose(found, wanted, rel_tol=TOLERANCE)

    def product(self, name: str) -> tuple[float, list[str]]:
        """Return a value as a number times other values: products and quotients by a number, opened up."""
        number = self.number(name)
        if number is not None:
            return number, []
        node = self.node(name, "Mul", "Div")
        if node is None:
            return 1.0, [name]
        factor, names = self.product(node.inputs[0])
        if node.op_type == "Mul":
            other, more = self.product(node.inputs[1])
            return factor * other, names + more
        divisor = self.number(node.inputs[1])
        return (factor / divisor, names) if divisor else (1.0, [name])

    def plus(self, name: str, wanted: float) -> str | None:
        """Return ``a`` where a value is ``a + wanted``."""
        node = self.node(name, "Add")
        for position in (0, 1):
            if node is not None and self.is_number(node.inputs[position], wanted):
                return node.inputs[1 - position]
        return None


def replaced(graph: Graph, find: Callable[[Node], Node | None]) -> Graph:
    """Return a graph in which others took the places of nodes for which ``find`` returns one."""
    return eliminate_dead(graph.with_(nodes=tuple(find(node) or node for node in graph.nodes)))
