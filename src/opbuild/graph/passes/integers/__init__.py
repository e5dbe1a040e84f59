"""Operators on quantised numbers, and patterns of them, rewritten for kernels on integers.

The modules add rewrites to ``REWRITES``: ``products`` those of matrix products, ``convolutions`` those of what slides
over images, ``requantization`` those of what is quantised again, which keeps bytes through what only moves them, and of
operators that compute one element at a time.
"""

from __future__ import annotations

from collections.abc import Callable

from opbuild.graph.passes.cleanup import eliminate_dead
from opbuild.graph.passes.rewriter import NewGraph, PassBuilder, rewritten
from opbuild.graph.types import Graph, Node
from opbuild.platform.records import dataclass
from opbuild.platform.registry import Registry

BYTES = ("uint8", "int8")

MICROSOFT = "com.microsoft"


@dataclass(frozen=True)
class Quantized:
    """A value that a DequantizeLinear makes.

    Attributes:
        value: The quantised value.
        scale: Its scale.
        zero_point: Its zero point; ``""`` if there is none.
        axis: The axis along which scale and zero point lie, counted from the front; None if they are one number.
    """

    value: str
    scale: str
    zero_point: str
    axis: int | None


class IntegerGraph(NewGraph):
    """A new graph that knows the node of a value: nodes are in topological order, that one was rewritten before."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.producers.update(graph.producers())
        self.readers = graph.consumers()
        self.outputs = frozenset(graph.outputs)
        self.derived: dict[tuple[str, str], str] = {}  # what was made of a value before, by the value and what it is

    def at(self, node: Node) -> IntegerBuilder:
        """Return the builder that writes operators in the place of a node."""
        return IntegerBuilder(node, self)

    def quantized(self, name: str) -> Quantized | None:
        """Return a value as quantised bytes, their scale and zero point, if it was made of them.

        None too for scales of blocks: a sum of products has one scale.
        """
        node = self.producers.get(name)
        if node is None or node.domain not in ("", MICROSOFT) or node.op_type != "DequantizeLinear":
            return None
        value, scale, zero, *_ = *node.inputs, ""
        shape, kind = self.types[value].shape, self.types[scale]
        if self.types[value].dtype not in BYTES or kind.dtype != "float32" or self.types[name].dtype != "float32":
            return None
        if kind.size == 1:
            return Quantized(value, scale, zero, None)
        if len(kind.shape) > 1:
            return None
        return Quantized(value, scale, zero, int(node.attrs.get("axis", 1)) % len(shape))


class IntegerBuilder(PassBuilder):
    """Writes the nodes that take part in computing a node on quantised numbers."""

    scope: IntegerGraph


Rewrite = Callable[[IntegerBuilder], object]
"""Appends what computes a node, or raises ``KeptError`` before it has appended anything."""

REWRITES: Registry[Rewrite] = Registry("rewrite", __name__, others=("convolutions", "products", "requantization"))
"""What is written in the place of operators on quantised numbers, and of patterns of them."""

rewrites = REWRITES.register


def rewrite_integers(graph: Graph) -> Graph:
    """Return a graph, no DequantizeLinear of which was folded, with products of bytes for quantised numbers."""
    found = rewritten(IntegerGraph(graph), graph, lambda node: REWRITES.get((node.domain, node.op_type)))
    return eliminate_dead(found)
