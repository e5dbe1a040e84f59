"""Writing: what a function is given that writes operators of a graph: rules of front ends, rules of gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from opbuild.dtypes import numpy_dtype
from opbuild.graph.extents import is_open
from opbuild.graph.indices import DOMAIN
from opbuild.graph.types import IN_RANGE, Array, Node, TensorType
from opbuild.platform.records import dataclass


@dataclass(frozen=True)
class Value:
    """A tensor of the graph that is written.

    Attributes:
        name: Its name in the graph.
        type: Its type; extents may be open.
    """

    name: str
    type: TensorType

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return self.type.shape

    @property
    def dtype(self) -> str:
        """Its element type, a numpy name."""
        return self.type.dtype


class Scope(Protocol):
    """The graph that is written, as far as ``Writing`` needs it."""

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


class Writing:
    """Writes operators into a graph.

    Args:
        name: What they are named after.
        scope: The graph.
    """

    def __init__(self, name: str, scope: Scope) -> None:
        self.name = name
        self._scope = scope
        self._count = 0

    def __call__(self, op_type: str, *inputs: Value | None, **attrs: Any) -> Value:
        """Write an operator with one output."""
        return self.several(op_type, inputs, 1, **attrs)[0]

    def several(
        self, op_type: str, inputs: Sequence[Value | None], count: int, domain: str = "", **attrs: Any
    ) -> tuple[Value, ...]:
        """Write an operator with several outputs.

        Numbers among the attributes are rounded to float32, as ONNX's files hold them: the same operators have the same
        descriptors then. Those beside tensors of float64 are not.
        """
        if not any(each is not None and each.dtype == "float64" for each in inputs):
            attrs = {name: float(np.float32(v)) if isinstance(v, float) else v for name, v in attrs.items()}
        label = f"{self.name}/{op_type}_{self._count}" if self._count else self.name
        self._count += 1
        names = list[str]()
        for _ in range(count):
            names.append(self._scope.fresh(f"{label}.{len(names)}" if count > 1 else label))
        read = tuple("" if each is None else each.name for each in inputs)
        self._scope.append(Node(op_type, read, tuple(names), attrs, label, domain))
        return tuple(Value(name, self._scope.type_of(name)) for name in names)

    def in_range(self, indices: Value, count: int) -> Value:
        """Refuse indices of one of ``count`` elements that are negative or too large."""
        return self(IN_RANGE, indices, domain=DOMAIN, counts=(count,), negative=False)

    # Constants

    def constant(self, value: Any, dtype: str = "") -> Value:
        """Return a constant, an array or a number, of an element type."""
        array = np.asarray(value, numpy_dtype(dtype) if dtype else None)
        name = self._scope.constant(array)
        return Value(name, self._scope.type_of(name))

    def ints(self, *numbers: Any) -> Value:
        """Return a constant of int64 with one dimension; numbers may be open extents."""
        if not is_open(numbers):
            return self.constant(np.array(numbers, np.int64))
        array = np.empty(len(numbers), object)
        array[:] = numbers
        return self.constant(array)

    def known(self, value: Value) -> Array | None:
        """Return a value that is known when the network is built, else None."""
        return self._scope.value_of(value.name)

    def cast(self, value: Value, dtype: str) -> Value:
        """Return a tensor in another element type; itself if it has it."""
        return value if value.dtype == dtype else self("Cast", value, to=dtype)

    # Movement

    def reshape(self, value: Value, shape: Sequence[Any]) -> Value:
        """Return a tensor in another shape, without -1; a shape that is taken back leaves nothing behind."""
        value = self.reshaped_from(value)
        if tuple(shape) == value.shape:
            return value
        return self("Reshape", value, self.ints(*shape), allowzero=1)

    def reshaped_from(self, value: Value) -> Value:
        """Return the tensor that a tensor is another shape of; itself if it is none."""
        node = self._scope.producer(value.name)
        if node is None or node.op_type != "Reshape":
            return value
        return Value(node.inputs[0], self._scope.type_of(node.inputs[0]))

    def transpose(self, value: Value, order: Sequence[int]) -> Value:
        """Return a tensor with its dimensions in another order."""
        if tuple(order) == tuple(range(len(order))):
            return value
        return self("Transpose", value, perm=tuple(order))
