"""The graph that a pass writes, and the builder of the operators that take the place of a node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from opbuild.dtypes import numpy_dtype
from opbuild.graph.constants import ConstantValues, Deferred
from opbuild.graph.extents import is_open
from opbuild.graph.graph_builder import NodeBuilder, Value
from opbuild.graph.passes.infer import infer_node, node_error_context, type_of
from opbuild.graph.tables import table_slice
from opbuild.graph.types import Array, Graph, Node, TensorType
from opbuild.operations.expression import Expression


class NewGraph:
    """Collects the nodes, constants and types of the graph that a pass returns."""

    def __init__(self, graph: Graph) -> None:
        self.types = dict(graph.types)
        self.constants = ConstantValues(graph.constants)
        self.nodes: list[Node] = []
        self.producers: dict[str, Node] = {}
        self._numbers: dict[str, int] = {}

    def constant(self, value: Array | Deferred, name: str = "constant") -> str:
        """Add a constant and return its name, which begins with ``name``."""
        name = self.fresh(name)
        self.constants[name], self.types[name] = value, value.type if isinstance(value, Deferred) else type_of(value)
        return name

    def type_of(self, name: str) -> TensorType:
        """Return the type of a value."""
        return self.types[name]

    def value_of(self, name: str) -> Array | None:
        """Return a value if it is known when the network is built."""
        return self.constants.get(name)

    def producer(self, name: str) -> Node | None:
        """Return the node that was appended and assigns a value."""
        return self.producers.get(name)

    def append(self, node: Node) -> None:
        """Add a node; its outputs get their types."""
        types = [self.types[name] if name else None for name in node.inputs]
        found = infer_node(node, types, [self.constants.get(name) for name in node.inputs])
        self.types.update(zip(node.outputs, found, strict=True))
        self.nodes.append(node)
        self.producers.update(dict.fromkeys(node.outputs, node))

    def fresh(self, name: str) -> str:
        """Return ``name``, numbered if it is taken."""
        found, index = name, self._numbers.get(name, 0)
        while found in self.types:
            index += 1
            found = f"{name}#{index}"
        self._numbers[name] = index
        return found

    def is_zero(self, name: str) -> bool:
        """Return whether a value is absent, or known to be 0 everywhere."""
        return not name or (name in self.constants and not self.constants[name].astype(np.float32).any())

    def at(self, node: Node) -> PassBuilder:
        """Return the builder that writes operators in the place of a node."""
        return PassBuilder(node, self)

    def graph(self, source: Graph) -> Graph:
        """Return ``source`` with the nodes, constants and types collected here."""
        return source.with_(nodes=tuple(self.nodes), types=self.types, constants=self.constants)


class KeptError(Exception):
    """Raised by a rewrite: the node stays as it is."""


def rewritten(to: NewGraph, graph: Graph, rewrite_of: Callable[[Node], Callable[[Any], object] | None]) -> Graph:
    """Return a graph, written to ``to``, in which rewrites took the places of the nodes that have one."""
    for node in graph.nodes:
        rewrite = rewrite_of(node)
        if rewrite is None:
            to.nodes.append(node)
            continue
        try:
            with node_error_context(node):
                rewrite(to.at(node))
        except KeptError:
            to.nodes.append(node)
    return to.graph(graph)


class PassBuilder(NodeBuilder):
    """Writes the nodes that take part in computing a node, and have its origins."""

    scope: NewGraph

    def __init__(self, node: Node, scope: NewGraph) -> None:
        super().__init__(node, scope)
        self.types, self.constants = scope.types, scope.constants
        self.inputs, self.outputs = node.inputs, node.outputs

    def append(self, node: Node) -> None:
        """Append an operator that takes part in computing the node."""
        self.scope.append(node.with_(made_of=self.node.origins))

    def _attributes(self, inputs: Sequence[str | None], attrs: Mapping[str, Any]) -> dict[str, Any]:
        return dict(attrs)

    def elementwise(self, inputs: Sequence[str], expression: Expression, output: str = "") -> Value:
        """Append an elementwise expression."""
        return self("Elementwise", *inputs, output=output, domain="opbuild", expression=expression)

    # Constants

    def constant(self, value: Any, dtype: str = "", name: str = "") -> Value:
        """Return a constant, perhaps of an element type; its name begins with the node's unless one is given."""
        array = value if isinstance(value, Deferred) else np.asarray(value, numpy_dtype(dtype) if dtype else None)
        return self.value(self.scope.constant(array, name or f"{self.name}/constant"))

    def integers(self, values: Any) -> Value:
        """Return a constant of int64; a sequence may hold open extents, if only a shape is made of it."""
        if isinstance(values, Sequence) and is_open(values):
            return self.ints(*values)
        return self.constant(values, "int64")

    def counted(self, start: int, stop: int) -> Value:
        """Return the numbers of int64 from ``start`` on, below ``stop``; both may be open extents."""
        if not is_open((start, stop)):
            return self.constant(np.arange(start, stop))
        table = table_slice((start, stop, 1), "int64")
        if table is None:
            return self.constant(np.arange(int(start), int(stop)))
        return self.slice(self.integers(table), 0, start, stop)

    def number(self, value: int) -> Value:
        """Return one number of int64, as a list; it may be an open extent."""
        return self.counted(value, value + 1)

    def known_integers(self, index: int) -> tuple[int, ...] | None:
        """Return the integers of an input, None if it is absent.

        Raises:
            KeptError: If they are known only at run time.
        """
        if not self.has(index):
            return None
        value = self.constants.get(self.inputs[index])
        if value is None:
            raise KeptError
        return tuple(int(item) for item in np.asarray(value).reshape(-1))

    # Movement

    def reshape(self, value: str, shape: Sequence[Any], output: str = "") -> Value:
        """Append a Reshape; one extent may be -1."""
        return self("Reshape", value, self.integers(shape), output=output, allowzero=1)

    def reshaped(self, value: str, shape: tuple[int, ...], output: str = "") -> Value:
        """Return a value in another shape, ``output`` if that is given; a constant is changed now."""
        if self.types[value].shape == shape and not output:
            return self.value(value)
        if value in self.constants and not output:
            return self.constant(self.constants[value].reshape(shape), name=f"{value}/reshaped")
        return self("Reshape", value, self.integers(shape), output=output)

    def transpose(self, value: str, order: Sequence[int], output: str = "") -> Value:
        """Append a Transpose."""
        return self("Transpose", value, output=output, perm=tuple(order))


Rewrite = Callable[[PassBuilder], object]
"""Appends what computes a node, or raises ``KeptError`` before it has appended anything: the node stays as it is."""
