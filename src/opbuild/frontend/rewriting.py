"""Nodes that take the place of one, as they are written down: the shared parts of rewrites of single operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from itertools import accumulate, count, pairwise
from typing import Any, NoReturn, Protocol

import numpy as np

from opbuild.errors import InvalidModelError
from opbuild.frontend.rewritten import MICROSOFT, REWRITES, Rewrite
from opbuild.graph import graph_builder
from opbuild.graph.extents import is_open
from opbuild.graph.graph_builder import NodeBuilder, Value
from opbuild.graph.indices import DOMAIN
from opbuild.graph.shape_rules import ONNX_NUMBERS, ShapeCall, UnknownValueError
from opbuild.graph.types import Array, Node


class RewriteScope(graph_builder.Scope, Protocol):
    """The graph around a node, as far as its rewrite may ask."""

    def is_known(self, name: str) -> bool:
        """Return whether a value is a constant."""

    def bounded_value(self, name: str, least: int) -> int | None:
        """Return the greater of a value and an extent, if that is known alone; see ``GraphBreak.least``."""


class Rewriting(NodeBuilder):
    """The nodes that are written in place of one.

    Args:
        node: The node that they replace; what they are called begins with its name.
        scope: The graph around it, which gets them when all are there: types of new values are not known before.

    Attributes:
        nodes: What was written so far, in order.
    """

    scope: RewriteScope

    def __init__(self, node: Node, scope: RewriteScope) -> None:
        super().__init__(node, scope)
        self.nodes: list[Node] = []

    def append(self, node: Node) -> None:
        """Take note of an operator."""
        self.nodes.append(node)

    def value(self, name: str) -> Value:
        """Return a value by its name."""
        return Value(name, self.scope.type_of)

    def _labels(self, op_type: str) -> tuple[str, str]:
        label = f"{self.node.name}/{op_type}_{len(self.nodes)}"
        return label, label

    def _attributes(self, inputs: Sequence[str | None], attrs: Mapping[str, Any]) -> dict[str, Any]:
        return dict(attrs)

    def own(self, op_type: str, *inputs: str, **attrs: Any) -> Value:
        """Write an operator of opbuild's own with one output, and return that output's name."""
        return self(op_type, *inputs, domain=DOMAIN, **attrs)

    def fresh(self, op_type: str) -> str:
        """Return an unused name for an output of the next operator."""
        return self.scope.fresh(self._labels(op_type)[0])

    def itself(self) -> Sequence[Node]:
        """Return the node as it is: kernels or the host serve this form of it."""
        return (self.node,)

    def finish(self, *values: str) -> Sequence[Node]:
        """Give values the names of the node's outputs, in order, and return all nodes; empty: there is no such value.

        Raises:
            UnsupportedOperatorError: If somebody asked for an output that there is not.
        """
        wanted = [name for name in self.node.outputs[len(values) :] if name]
        for value, output in zip(values, self.node.outputs, strict=False):
            if output and not value:
                wanted.append(output)
            elif output != value:
                self._give(value, output)
        if wanted:
            self.refuse(f"its output {wanted[0]!r} is not computed")
        return self.nodes

    def _give(self, value: str, output: str) -> None:
        """Call a value by an output's name."""
        if self.nodes and self.nodes[-1].outputs == (value,):
            self.nodes[-1] = self.nodes[-1].with_(outputs=(output,))
        else:
            self("Identity", value, output=output)

    def refuse_if(self, condition: Any, why: str) -> None:
        """Raise an UnsupportedOperatorError that names the node under a condition."""
        if condition:
            self.refuse(why)

    # What is given

    def shape(self, index: int, *ranks: int) -> tuple[int, ...]:
        """Return the shape of an input, whose rank must be one of ``ranks`` if any are given.

        Raises:
            InvalidModelError: If it is not there, or has another rank.
        """
        shape = self.input(index).shape
        if ranks and len(shape) not in ranks:
            raise InvalidModelError(
                f"{self.node.op_type} node {self.node.name!r}: input {index} has rank {len(shape)}, "
                f"not {' or '.join(map(str, ranks))}",
                "export the model again",
            )
        return shape

    def is_known(self, index: int) -> bool:
        """Return whether an input is a constant."""
        return self.scope.is_known(self.input(index))

    def dtype(self, index: int = 0) -> str:
        """Return the element type of an input."""
        return self.input(index).dtype

    def at_least(self, index: int, other: int, axis: int) -> int:
        """Return the greater of the number in an input, on which shapes depend, and an extent of another input.

        Raises:
            UnknownValueError: If it is known only at run time.
        """
        least = self.shape(other)[axis]
        known = self.scope.bounded_value(self.input(index), least)
        if known is not None:
            return known
        try:
            return max(least, self.ints_in(index)[0])
        except UnknownValueError as error:
            error.least = self.input(other), axis
            raise

    def ints_in(self, index: int) -> tuple[int, ...]:
        """Return the integers in an input on which shapes depend.

        Raises:
            UnknownValueError: If they are known only at run time.
        """
        count = index + 1
        return ShapeCall(self.node, [self.input(index).type] * count, [self.known(self.input(index))] * count).ints(
            index
        )

    def optional(self, *indices: int) -> tuple[str, ...]:
        """Return inputs as far as they are there."""
        return tuple(self.node.inputs[index] for index in indices if self.has(index))

    def attributes(self, names: Sequence[str]) -> dict[str, Any]:
        """Return those of some attributes that the node has."""
        return {name: self.node.attrs[name] for name in names if name in self.node.attrs}

    # What is often written

    def same(self, domain: str = "", attrs: Mapping[str, Any] | None = None) -> Sequence[Node]:
        """Write the operator of another domain with that name, with all that the node has, or with other attributes."""
        attrs = self.node.attrs if attrs is None else attrs
        self.write(self.node.op_type, self.node.inputs, self.node.outputs, attrs, domain)
        return self.nodes

    def plus(self, value: str, index: int) -> Value:
        """Return a value with an input added to it, if that is there."""
        return self("Add", value, self.input(index)) if self.has(index) else self.value(value)

    def silu(self, value: str) -> Value:
        """Return a value times its sigmoid."""
        return self("Mul", value, self("Sigmoid", value))

    def floats(self, value: Any) -> Value:
        """Return a constant of the element type of the first input that has floats."""
        kinds = (self.dtype(index) for index in range(len(self.node.inputs)) if self.has(index))
        return self.constant(value, next(kind for kind in kinds if "float" in kind))

    def number(self, value: int) -> Value:
        """Return a constant of int64 without dimensions; an open extent stays open."""
        return self.constant(np.array(value, object if is_open((value,)) else np.int64))

    def steps(self, count: int, first: int = 0) -> Value:
        """Return so many integers from the first one on; both may be open extents."""
        if not is_open((count, first)):
            return self.constant(np.arange(first, first + count, dtype=np.int64))
        bounds = (np.array(first, object), np.array(first + count, object), np.array(1))
        return self("Range", *map(self.constant, bounds))

    def cast(self, value: str, dtype: str, given: str = "") -> Value:
        """Write a Cast, unless the value is of that type already."""
        return self.value(value) if dtype == given else self("Cast", value, to=ONNX_NUMBERS[dtype])

    def in_float32(self, index: int) -> Value:
        """Return an input in float32."""
        return self.cast(self.input(index), "float32", self.dtype(index))

    def bits(self, value: str, given: str, dtype: str) -> Value:
        """Write a BitCast to a type of the same size, unless the value is of that type already."""
        return self.value(value) if dtype == given else self("BitCast", value, to=ONNX_NUMBERS[dtype])

    def scalar(self, index: int) -> Value:
        """Return an input that holds one number as a value without dimensions."""
        return self.reshape(self.input(index), ()) if self.shape(index, 0, 1) else self.input(index)

    def reshape(self, value: str, shape: Sequence[Any]) -> Value:
        """Write a Reshape; one extent may be -1."""
        return self("Reshape", value, self.ints(*shape))

    def parts(self, value: str, axis: int, *sizes: int) -> list[Value]:
        """Write parts of a value, one behind the other along an axis."""
        ends = list(accumulate(sizes, initial=0))
        return [self.slice(value, axis, begin, end) for begin, end in pairwise(ends)]

    def to_front(self, value: str, rank: int) -> Value:
        """Write that channels, which are last, come second."""
        return self("Transpose", value, perm=(0, rank - 1, *range(1, rank - 1)))

    def to_end(self, value: str, rank: int) -> Value:
        """Write that channels, which are second, come last."""
        return self("Transpose", value, perm=(0, *range(2, rank), 1))


def writes(*op_types: str, domain: str = MICROSOFT) -> Callable[[Rewrite], Rewrite]:
    """Register the decorated function as one that writes operators with others; ``rewritten`` names its module."""
    return REWRITES.register(*op_types, domain=domain)


def rewrite(node: Node, scope: RewriteScope) -> Sequence[Node]:
    """Return nodes of ONNX's newest operator set that compute a node.

    Raises:
        UnsupportedOperatorError: If this form of it cannot be written with ONNX's operators.
        InvalidModelError: If an input is missing or has a wrong rank.
    """
    return REWRITES[node.domain, node.op_type](Rewriting(node, scope))


class Untyped:
    """Names and constants of a graph."""

    def __init__(self, name: str, tensors: MutableMapping[str, Callable[[], Array]]) -> None:
        self._name, self._tensors, self._numbers = name, tensors, count()

    def fresh(self, name: str) -> str:
        """Return an unused name that begins with ``name``."""
        return f"{name}#{next(self._numbers)}"

    def constant(self, value: Array) -> str:
        """Add a constant and return its name."""
        name = self.fresh(f"{self._name}/constant")
        self._tensors[name] = lambda: value
        return name

    def value_of(self, name: str) -> Array | None:
        """Return a constant of the graph."""
        return self._tensors[name]() if name in self._tensors else None

    def is_known(self, name: str) -> bool:
        """Return whether a value is a constant of the graph."""
        return name in self._tensors

    def producer(self, name: str) -> Node | None:
        """Return None: nodes are collected elsewhere."""
        return None

    def type_of(self, name: Any, *_: Any) -> NoReturn:
        """Raise: nothing is known of types and extents."""
        problem = f"node {self._name!r}, which reads {name!r}, has a graph that its operator does not take"
        raise InvalidModelError(problem, "export the model again")

    append = bounded_value = type_of
