"""GraphBuilder: the means by which functions of a front end, a pass or a gradient write operators of a graph.

``of("Add", x, y)`` writes an operator and returns its output, a ``Value``: the output's name, which knows its type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, Protocol

import numpy as np

from opbuild.dtypes import numpy_dtype
from opbuild.errors import InvalidModelError, UnsupportedOperatorError
from opbuild.graph.extents import is_open
from opbuild.graph.indices import DOMAIN
from opbuild.graph.types import IN_RANGE, Array, Node, TensorType


class Value(str):
    """A tensor of the graph that is written: its name, which knows its type or how to tell it; it may be empty."""

    __slots__ = ("_type",)

    _type: TensorType | Callable[[str], TensorType]

    def __new__(cls, name: str, type_: TensorType | Callable[[str], TensorType]) -> Value:
        """Return a name that knows its type."""
        value = str.__new__(cls, name)
        value._type = type_
        return value

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the name alone."""
        return str, (str(self),)

    @property
    def name(self) -> str:
        """The name alone."""
        return str(self)

    @property
    def type(self) -> TensorType:
        """The type."""
        if not isinstance(self._type, TensorType):
            self._type = self._type(self)
        return self._type

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape."""
        return self.type.shape

    @property
    def dtype(self) -> str:
        """The element type, a numpy name."""
        return self.type.dtype


class Scope(Protocol):
    """The graph that is written, as far as a ``GraphBuilder`` needs it."""

    def constant(self, value: Array) -> str:
        """Add a constant and return its name."""

    def type_of(self, name: str) -> TensorType:
        """Return the type of a value."""

    def append(self, node: Node) -> None:
        """Add a node; its outputs get their types."""

    def fresh(self, name: str) -> str:
        """Return an unused name that begins with ``name``."""

    def producer(self, name: str) -> Node | None:
        """Return the node that assigns a value; None for inputs and constants."""

    def value_of(self, name: str) -> Array | None:
        """Return a value if it is known when the network is built."""


class GraphBuilder:
    """Writes operators into a graph, named after ``name``."""

    def __init__(self, name: str, scope: Scope) -> None:
        self.name = name
        self.scope = scope
        self._count = 0

    def __call__(self, op_type: str, *inputs: str | None, output: str = "", domain: str = "", **attrs: Any) -> Value:
        """Write an operator with one output, which gets a name unless ``output`` is one."""
        return self.write(op_type, inputs, (output or None,), attrs, domain)[0]

    def several(
        self, op_type: str, count: int, *inputs: str | None, domain: str = "", **attrs: Any
    ) -> tuple[Value, ...]:
        """Write an operator with several outputs."""
        return self.write(op_type, inputs, (None,) * count, attrs, domain)

    def write(
        self,
        op_type: str,
        inputs: Sequence[str | None],
        outputs: Sequence[str | None],
        attrs: Mapping[str, Any],
        domain: str = "",
    ) -> tuple[Value, ...]:
        """Write an operator whose outputs have these names; None: one that is to be made."""
        label, made = self._labels(op_type)
        self._count += 1
        fresh = [made] if len(outputs) == 1 else [f"{made}.{index}" for index in range(len(outputs))]
        names = [self.scope.fresh(new) if name is None else str(name) for name, new in zip(outputs, fresh, strict=True)]
        read = tuple([str(each) if each else "" for each in inputs])
        self.append(Node(op_type, read, tuple(names), self._attributes(inputs, attrs), label, domain))
        return tuple([self.value(name) for name in names if name])

    def _labels(self, op_type: str) -> tuple[str, str]:
        """Return the name of the next operator, and the prefix of its outputs' names."""
        label = f"{self.name}/{op_type}_{self._count}" if self._count else self.name
        return label, label

    def _attributes(self, inputs: Sequence[str | None], attrs: Mapping[str, Any]) -> dict[str, Any]:
        """Return attributes, numbers rounded to float32, as ONNX's files hold them, unless tensors are of float64.

        The same operators have the same descriptors then.
        """
        if any(isinstance(each, Value) and each.dtype == "float64" for each in inputs):
            return dict(attrs)
        return {name: float(np.float32(v)) if isinstance(v, float) else v for name, v in attrs.items()}

    def append(self, node: Node) -> None:
        """Add a node that has its names."""
        self.scope.append(node)

    def value(self, name: str) -> Value:
        """Return a value by its name."""
        return Value(name, self.scope.type_of(name))

    def in_range(self, indices: str, *counts: int, negative: bool = False) -> Value:
        """Refuse indices of one of so many elements that are too large, or negative but for ``negative``."""
        return self(IN_RANGE, indices, domain=DOMAIN, counts=counts, negative=negative)

    # Constants

    def constant(self, value: Any, dtype: str = "") -> Value:
        """Return a constant, an array or a number, of an element type."""
        return self.value(self.scope.constant(np.asarray(value, numpy_dtype(dtype) if dtype else None)))

    def ints(self, *numbers: Any) -> Value:
        """Return a constant of int64 with one dimension; numbers may be open extents."""
        return self.constant(integers(numbers))

    def known(self, value: str) -> Array | None:
        """Return a value that is known when the network is built, else None."""
        return self.scope.value_of(value)

    # Movement

    def cast(self, value: Value, dtype: str) -> Value:
        """Return a tensor in another element type; itself if it has it."""
        return value if value.dtype == dtype else self("Cast", value, to=dtype)

    def reshape(self, value: Value, shape: Sequence[Any]) -> Value:
        """Return a tensor in another shape, without -1; a shape that is taken back leaves nothing behind."""
        value = self.reshaped_from(value)
        if tuple(shape) == value.shape:
            return value
        return self("Reshape", value, self.ints(*shape), allowzero=1)

    def reshaped_from(self, value: Value) -> Value:
        """Return the tensor that a tensor is another shape of; itself if it is none."""
        node = self.scope.producer(value)
        return value if node is None or node.op_type != "Reshape" else self.value(node.inputs[0])

    def transpose(self, value: Value, order: Sequence[int], output: str = "") -> Value:
        """Return a tensor with its dimensions in another order, under the name ``output`` if there is one."""
        if tuple(order) == tuple(range(len(order))) and not output:
            return value
        return self("Transpose", value, output=output, perm=tuple(order))

    def part(self, value: Value, axis: int, begin: int, end: int) -> Value:
        """Return the positions of an axis from ``begin`` on, before ``end``; the tensor itself if these are all."""
        if (begin, end) == (0, value.shape[axis]):
            return value
        return self("Slice", value, self.ints(begin), self.ints(end), self.ints(axis), self.ints(1))

    def expand(self, value: Value, shape: Sequence[Any]) -> Value:
        """Return a tensor broadcast to a shape; itself if it has it."""
        return value if value.shape == tuple(shape) else self("Expand", value, self.ints(*shape))

    def filled(self, number: Any, dtype: str, shape: Sequence[Any]) -> Value:
        """Return a tensor of one number."""
        return self.expand(self.constant(number, dtype), shape)

    def zeros(self, like: Value) -> Value:
        """Return zeros of a tensor's type."""
        return self.filled(0.0, like.dtype, like.shape)

    # Sums

    def sum(self, value: Value, axes: Sequence[int], keepdims: bool = False) -> Value:
        """Return a sum over some axes, none of them if ``axes`` is empty."""
        return self("ReduceSum", value, self.ints(*axes), keepdims=int(keepdims)) if axes else value

    def mean(self, value: Value, axes: Sequence[int]) -> Value:
        """Return a mean over some axes, which keep an extent of 1."""
        return self("ReduceMean", value, self.ints(*axes), keepdims=1) if axes else value

    def slice(self, value: str, axis: int, begin: Any, end: Any, step: int = 1) -> Value:
        """Return every ``step``-th position of an axis from ``begin`` on, before ``end``."""
        steps = () if step == 1 else (self.ints(step),)
        return self("Slice", value, self.ints(begin), self.ints(end), self.ints(axis), *steps)


def integers(numbers: Sequence[Any]) -> Array:
    """Return an array of integers, one-dimensional; of objects if some are open extents."""
    if not is_open(numbers):
        return np.array(numbers, np.int64)
    array = np.empty(len(numbers), object)
    array[:] = numbers
    return array


class NodeBuilder(GraphBuilder):
    """Writes the nodes that take the place of a node, and have its name."""

    def __init__(self, node: Node, scope: Scope) -> None:
        super().__init__(node.name, scope)
        self.node = node

    def _labels(self, op_type: str) -> tuple[str, str]:
        return self.name, f"{self.name}/{op_type}"

    def has(self, index: int) -> bool:
        """Return whether an input is there."""
        return index < len(self.node.inputs) and bool(self.node.inputs[index])

    def input(self, index: int) -> Value:
        """Return an input.

        Raises:
            InvalidModelError: If it is not there.
        """
        if not self.has(index):
            raise InvalidModelError(
                f"{self.node.op_type} node {self.node.name!r} lacks input {index}", "export the model again"
            )
        return self.value(self.node.inputs[index])

    def attr(self, name: str, default: Any) -> Any:
        """Return an attribute, or ``default`` if the node does not have it."""
        return self.node.attrs.get(name, default)

    def refuse(self, why: str) -> NoReturn:
        """Raise an UnsupportedOperatorError that names the node."""
        raise UnsupportedOperatorError(
            f"{self.node.op_type} node {self.node.name!r}: {why}", "export the model without this form of it"
        )
