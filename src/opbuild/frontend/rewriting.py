"""Nodes that take the place of one, as they are written down: what rewrites of single operators have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, Protocol

import numpy as np

from opbuild.errors import InvalidModelError, UnsupportedOperatorError
from opbuild.graph.extents import is_open
from opbuild.graph.shape_rules import Call, UnknownValueError
from opbuild.graph.types import Array, Node, TensorType


class Scope(Protocol):
    """What a rewrite may ask of the graph around its node."""

    def constant(self, value: Array) -> str:
        """Add a constant and return its name."""

    def fresh(self, name: str) -> str:
        """Return an unused name that begins with ``name``."""

    def type_of(self, name: str) -> TensorType:
        """Return the type of a value."""

    def value_of(self, name: str) -> Array | None:
        """Return a value if it is known when the network is built."""

    def bounded_value(self, name: str, least: int) -> int | None:
        """Return the greater of a value and an extent, if that is known alone; see ``Cut.least``."""


class Rewriting:
    """The nodes that are written in place of one.

    Args:
        node: The node that they replace; what they are called begins with its name.
        scope: The graph around it.

    Attributes:
        nodes: What was written so far, in order.
        scope: As given.
    """

    def __init__(self, node: Node, scope: Scope) -> None:
        self.node = node
        self.nodes: list[Node] = []
        self.scope = scope

    def __call__(self, op_type: str, *inputs: str, **attrs: Any) -> str:
        """Write an operator with one output, and return that output's name."""
        name = self.fresh(op_type)
        self.write(op_type, inputs, (name,), attrs)
        return name

    def write(
        self, op_type: str, inputs: Sequence[str], outputs: Sequence[str], attrs: Mapping[str, Any], domain: str = ""
    ) -> None:
        """Write an operator whose outputs have these names."""
        name = f"{self.node.name}/{op_type}_{len(self.nodes)}"
        self.nodes.append(Node(op_type, tuple(inputs), tuple(outputs), dict(attrs), name, domain))

    def fresh(self, op_type: str) -> str:
        """Return an unused name for an output of the next operator."""
        return self.scope.fresh(f"{self.node.name}/{op_type}_{len(self.nodes)}")

    def finish(self, *values: str) -> Sequence[Node]:
        """Give values the names of the node's outputs, in order, and return all nodes; empty: there is no such value.

        Raises:
            UnsupportedOperatorError: If somebody asked for an output that there is not.
        """
        wanted = [name for name in self.node.outputs[len(values) :] if name]
        for value, output in zip(values, self.node.outputs, strict=False):
            if output and not value:
                wanted.append(output)
            elif output:
                self.write("Identity", (value,), (output,), {})
        if wanted:
            self.refuse(f"its output {wanted[0]!r} is not computed")
        return self.nodes

    # What is given

    def has(self, index: int) -> bool:
        """Return whether an input is there."""
        return index < len(self.node.inputs) and bool(self.node.inputs[index])

    def input(self, index: int) -> str:
        """Return the name of an input.

        Raises:
            InvalidModelError: If it is not there.
        """
        if not self.has(index):
            raise InvalidModelError(
                f"{self.node.op_type} node {self.node.name!r} lacks input {index}", "export the model again"
            )
        return self.node.inputs[index]

    def shape(self, index: int, *ranks: int) -> tuple[int, ...]:
        """Return the shape of an input, whose rank must be one of ``ranks`` if any are given.

        Raises:
            InvalidModelError: If it is not there, or has another rank.
        """
        shape = self.scope.type_of(self.input(index)).shape
        if ranks and len(shape) not in ranks:
            raise InvalidModelError(
                f"{self.node.op_type} node {self.node.name!r}: input {index} has rank {len(shape)}, "
                f"not {' or '.join(map(str, ranks))}",
                "export the model again",
            )
        return shape

    def dtype(self, index: int = 0) -> str:
        """Return the element type of an input."""
        return self.scope.type_of(self.input(index)).dtype

    def value(self, index: int) -> Array | None:
        """Return the value of an input if it is known when the network is built."""
        return self.scope.value_of(self.input(index))

    def at_least(self, index: int, other: int, axis: int) -> int:
        """Return the greater of the number in an input, on which shapes depend, and an extent of another input.

        Raises:
            UnknownValueError: If it is known only at run time.
        """
        name, least = self.input(index), self.shape(other)[axis]
        known = self.scope.bounded_value(name, least)
        if known is not None:
            return known
        call = Call(self.node, [self.scope.type_of(name)] * (index + 1), [self.scope.value_of(name)] * (index + 1))
        try:
            return max(least, call.ints(index)[0])
        except UnknownValueError as error:
            error.least = self.input(other), axis
            raise

    def attr(self, name: str, default: Any) -> Any:
        """Return an attribute, or ``default`` if the node does not have it."""
        return self.node.attrs.get(name, default)

    def refuse(self, why: str) -> NoReturn:
        """Raise an UnsupportedOperatorError that names the node."""
        raise UnsupportedOperatorError(
            f"{self.node.op_type} node {self.node.name!r}: {why}", "export the model without this form of it"
        )

    # What is often written

    def floats(self, value: Any) -> str:
        """Return a constant of the element type of the first input that has floats."""
        kinds = (self.dtype(index) for index in range(len(self.node.inputs)) if self.has(index))
        return self.scope.constant(np.asarray(value, next(kind for kind in kinds if "float" in kind)))

    def ints(self, *values: int) -> str:
        """Return a constant of int64, one-dimensional; open extents stay open."""
        return self.scope.constant(np.array(values, object if is_open(values) else np.int64))

    def number(self, value: int) -> str:
        """Return a constant of int64 without dimensions."""
        return self.scope.constant(np.array(value, np.int64))

    def truth(self) -> str:
        """Return a constant that is true."""
        return self.scope.constant(np.array(True))

    def steps(self, count: int, first: int = 0) -> str:
        """Return so many integers from the first one on; both may be open extents."""
        if not is_open((count, first)):
            return self.scope.constant(np.arange(first, first + count, dtype=np.int64))
        bounds = (np.array(first, object), np.array(first + count, object), np.array(1))
        return self("Range", *map(self.scope.constant, bounds))

    def constant(self, value: Array) -> str:
        """Return a constant."""
        return self.scope.constant(value)

    def reshape(self, value: str, *shape: int) -> str:
        """Write a Reshape."""
        return self("Reshape", value, self.ints(*shape))

    def slice(self, value: str, axis: int, begin: int, end: int) -> str:
        """Write a Slice along one axis."""
        return self("Slice", value, self.ints(begin), self.ints(end), self.ints(axis))
