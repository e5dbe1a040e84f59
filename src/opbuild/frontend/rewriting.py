"""Nodes that take the place of one, as they are written down: what rewrites of single operators have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, NoReturn, Protocol

import numpy as np

from opbuild.errors import InvalidModelError, UnsupportedOperatorError
from opbuild.frontend.rewritten import MICROSOFT, MODULES
from opbuild.graph.extents import is_open
from opbuild.graph.indices import DOMAIN
from opbuild.graph.shape_rules import ONNX_NUMBERS, Call, UnknownValueError
from opbuild.graph.types import IN_RANGE, Array, Node, TensorType


class Scope(Protocol):
    """The graph around a node, as far as its rewrite may ask."""

    def constant(self, value: Array) -> str:
        """Add a constant and return its name."""

    def fresh(self, name: str) -> str:
        """Return an unused name that begins with ``name``."""

    def type_of(self, name: str) -> TensorType:
        """Return the type of a value."""

    def value_of(self, name: str) -> Array | None:
        """Return a value if it is known when the network is built."""

    def is_known(self, name: str) -> bool:
        """Return whether a value is a constant."""

    def bounded_value(self, name: str, least: int) -> int | None:
        """Return the greater of a value and an extent, if that is known alone; see ``GraphBreak.least``."""


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

    def in_range(self, indices: str, table: str) -> str:
        """Refuse indices of the rows of one of the inputs that are negative or too large."""
        counts = (self.scope.type_of(table).shape[0],)
        return self.own(IN_RANGE, indices, counts=counts, negative=False)

    def own(self, op_type: str, *inputs: str, **attrs: Any) -> str:
        """Write an operator of opbuild's own with one output, and return that output's name."""
        name = self.fresh(op_type)
        self.write(op_type, inputs, (name,), attrs, DOMAIN)
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

    def itself(self) -> Sequence[Node]:
        """Return the node as it is: kernels or the host serve this form of it."""
        return (self.node,)

    def several(self, op_type: str, count: int, *inputs: str, **attrs: Any) -> tuple[str, ...]:
        """Write an operator with several outputs, and return those outputs' names."""
        name = f"{self.node.name}/{op_type}_{len(self.nodes)}"
        outputs = tuple(self.scope.fresh(f"{name}/{number}") for number in range(count))
        self.write(op_type, inputs, outputs, attrs)
        return outputs

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
            self.write("Identity", (value,), (output,), {})

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

    def is_known(self, index: int) -> bool:
        """Return whether an input is a constant."""
        return self.scope.is_known(self.input(index))

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

    def ints_in(self, index: int) -> tuple[int, ...]:
        """Return the integers in an input on which shapes depend.

        Raises:
            UnknownValueError: If they are known only at run time.
        """
        count, value = index + 1, self.scope.value_of(self.input(index))
        return Call(self.node, [self.scope.type_of(self.input(index))] * count, [value] * count).ints(index)

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
        """Return a constant of int64 without dimensions; an open extent stays open."""
        return self.scope.constant(np.array(value, object if is_open((value,)) else np.int64))

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

    def cast(self, value: str, dtype: str, given: str = "") -> str:
        """Write a Cast, unless the value is of that type already."""
        return value if dtype == given else self("Cast", value, to=ONNX_NUMBERS[dtype])

    def bits(self, value: str, given: str, dtype: str) -> str:
        """Write a BitCast to a type of the same size, unless the value is of that type already."""
        return value if dtype == given else self("BitCast", value, to=ONNX_NUMBERS[dtype])

    def scalar(self, index: int) -> str:
        """Return an input that holds one number as a value without dimensions."""
        return self.reshape(self.input(index)) if self.shape(index, 0, 1) else self.input(index)

    def reshape(self, value: str, *shape: int) -> str:
        """Write a Reshape."""
        return self("Reshape", value, self.ints(*shape))

    def slice(self, value: str, axis: int, begin: int, end: int) -> str:
        """Write a Slice along one axis."""
        return self("Slice", value, self.ints(begin), self.ints(end), self.ints(axis))


Rewrite = Callable[[Rewriting], Sequence[Node]]

REWRITES: dict[tuple[str, str], Rewrite] = {}
"""How each operator is written with ONNX's own, by its domain and type."""


def writes(*op_types: str, domain: str = MICROSOFT) -> Callable[[Rewrite], Rewrite]:
    """Register the decorated function as what writes operators with others; ``rewritten.MODULES`` names its module."""

    def register(function: Rewrite) -> Rewrite:
        REWRITES.update(((domain, op_type), function) for op_type in op_types)
        return function

    return register


def rewrite(node: Node, scope: Scope) -> Sequence[Node]:
    """Return nodes of ONNX's newest operator set that compute what a node does.

    Raises:
        UnsupportedOperatorError: If this form of it can not be written with ONNX's operators.
        InvalidModelError: If an input is missing or has a wrong rank.
    """
    import_module(f"{__package__}.{MODULES[node.domain, node.op_type]}")
    return REWRITES[node.domain, node.op_type](Rewriting(node, scope))
