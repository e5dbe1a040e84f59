"""The registry of shape rules, and a rule's view of the node it types.

A rule is a function from a :class:`Call` to the types of the node's outputs. Rules are grouped by kind in the modules
``shape_rules_*``; ``graph/passes/infer.py`` looks them up. None of this imports onnx, so a tracer may call it at
every step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from opbuild.errors import DTypeError, ShapeError, UnsupportedOperatorError
from opbuild.graph.extents import as_extent
from opbuild.graph.types import DTYPES, Array, Node, TensorType, broadcast_shapes
from opbuild.platform.records import dataclass
from opbuild.platform.registry import Registry

Shape = tuple[int, ...]
Types = tuple[TensorType, ...]


class UnknownTypeError(UnsupportedOperatorError):
    """The types of a node's outputs cannot be told before it is evaluated.

    Attributes:
        stopped: The node, as one of the newest operator set; set where nodes of older sets are taken.
        nodes: It and what follows it of the nodes of the newest operator set that the model's node became.
    """

    stopped: Node | None = None
    nodes: tuple[Node, ...] = ()


class NoTensorError(UnknownTypeError):
    """A node reads or makes a value that is no tensor, whatever the values of its inputs are."""


class UnknownValueError(UnknownTypeError):
    """The types of a node's outputs depend on the value of an input that is not known.

    Attributes:
        index: The input's position.
        least: If only how far the value is above an extent decides: which value has that, and in which dimension.
    """

    index: int = 0
    least: tuple[str, int] | None = None


@dataclass(frozen=True, eq=False)
class ShapeCall:
    """One node, with the types and known values of its inputs.

    Attributes:
        node: The operator.
        types: The type of each input, None for an absent one.
        constants: The value of each input that is known when the network is built, else None.
    """

    node: Node
    types: Sequence[TensorType | None]
    constants: Sequence[Array | None]

    def has(self, index: int) -> bool:
        """Return whether input ``index`` is present."""
        return index < len(self.types) and self.types[index] is not None

    def type(self, index: int) -> TensorType:
        """Return the type of an input that must be present."""
        found = self.types[index] if index < len(self.types) else None
        if found is None:
            self.fail(f"input {index} is missing")
        return found

    def shape(self, index: int) -> Shape:
        """Return the shape of an input that must be present."""
        return self.type(index).shape

    def dtype(self, index: int) -> str:
        """Return the element type of an input that must be present."""
        return self.type(index).dtype

    def attr(self, name: str, default: Any) -> Any:
        """Return an attribute, or ``default`` if the node does not have it."""
        return self.node.attrs.get(name, default)

    def value(self, index: int) -> Array:
        """Return the value of an input on which the output's type depends.

        Raises:
            UnknownValueError: If the value is not known when the network is built.
        """
        found = self.constants[index] if index < len(self.constants) else None
        if found is None:
            error = UnknownValueError(
                f"{self.node.op_type} node {self.node.name!r}: the shape of its output depends on the values of input "
                f"{self.node.inputs[index]!r}, which are known only at run time",
                "make that input a constant; only static shapes are supported",
            )
            error.index = index
            raise error
        return found

    def is_known(self, index: int) -> bool:
        """Return whether the value of an input is known when the network is built."""
        return index < len(self.constants) and self.constants[index] is not None

    def ints(self, index: int) -> tuple[int, ...]:
        """Return the integers in an input on which the output's type depends, flattened."""
        return tuple(as_extent(item) for item in np.asarray(self.value(index)).reshape(-1))

    def axis(self, axis: int, rank: int) -> int:
        """Return ``axis`` counted from the front.

        Raises:
            ShapeError: If it is outside ``[-rank, rank)``.
        """
        if not -rank <= axis < rank:
            self.fail(f"axis {axis} is outside a value of rank {rank}")
        return axis % rank if rank else 0

    def axes(self, axes: Sequence[int], rank: int) -> tuple[int, ...]:
        """Return ``axes`` counted from the front, in the given order.

        Raises:
            ShapeError: If one is out of range or stands twice.
        """
        found = tuple(self.axis(int(axis), rank) for axis in axes)
        if len(set(found)) != len(found):
            self.fail(f"axes {list(axes)} name one dimension twice")
        return found

    def rank(self, index: int, *allowed: int, least: int = 0) -> Shape:
        """Return the shape of an input whose rank must be one of ``allowed``, or at least ``least``."""
        shape = self.shape(index)
        if (allowed and len(shape) not in allowed) or len(shape) < least:
            wanted = " or ".join(map(str, allowed)) if allowed else f"at least {least}"
            self.fail(f"input {index} has rank {len(shape)}, not {wanted}")
        return shape

    def expect(self, index: int, shape: Shape) -> None:
        """Check that an input, if it is present, has this shape."""
        if self.has(index) and self.shape(index) != shape:
            self.fail(f"input {index} has shape {list(self.shape(index))}, not {list(shape)}")

    def fail(self, problem: str, hint: str = "") -> NoReturn:
        """Raise a ShapeError that names the node and the types of its inputs."""
        raise ShapeError(self._where(problem), hint or "give this node inputs whose shapes fit")

    def fail_dtype(self, problem: str) -> NoReturn:
        """Raise a DTypeError that names the node and the types of its inputs."""
        raise DTypeError(self._where(problem), "cast the inputs with Cast")

    def _where(self, problem: str) -> str:
        shown = ", ".join("absent" if item is None else str(item) for item in self.types)
        return f"{self.node.op_type} node {self.node.name!r}: {problem}; its inputs are {shown or 'none'}"


Rule = Callable[[ShapeCall], Types]
RULES: Registry[Rule] = Registry(
    "shape rule",
    __package__,
    others=[f"shape_rules_{kind}" for kind in ("elementwise", "movement", "reduction", "window", "other_domains")],
)
"""Every rule by domain and operator type."""

rule = RULES.register


def broadcast(call: ShapeCall, shapes: Sequence[Shape]) -> Shape:
    """Return the shape that ``shapes`` have together under numpy's broadcasting.

    Raises:
        ShapeError: If they do not fit each other.
    """
    result = broadcast_shapes(shapes)
    if result is None:
        call.fail(f"shapes {' and '.join(str(list(item)) for item in shapes)} do not broadcast")
    return result


def same_dtype(call: ShapeCall, first: int = 0, last: int | None = None) -> str:
    """Return the one element type that the inputs ``first`` to ``last`` have.

    Raises:
        DTypeError: If they differ.
    """
    dtypes = [item.dtype for item in call.types[first:last] if item is not None]
    if not dtypes:
        call.fail("it has no inputs")
    if any(dtype != dtypes[0] for dtype in dtypes):
        call.fail_dtype(f"element types {', '.join(dict.fromkeys(dtypes))} differ")
    return dtypes[0]


ONNX_DTYPES: dict[int, str] = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 9: "bool", 10: "float16",
    11: "float64", 12: "uint32", 13: "uint64", 16: "bfloat16", 17: "float8_e4m3fn", 18: "float8_e4m3fnuz",
    19: "float8_e5m2", 20: "float8_e5m2fnuz", 21: "uint4", 22: "int4", 23: "float4_e2m1fn", 24: "float8_e8m0fnu",
    25: "uint2", 26: "int2",
}  # fmt: skip
"""ONNX's numbers of the element types that opbuild supports."""

ONNX_NUMBERS = {name: number for number, name in ONNX_DTYPES.items()}
"""ONNX's number of each of these element types."""


def named_dtype(call: ShapeCall, number: Any) -> str:
    """Return the element type that an attribute gives as ONNX's number or as numpy's name.

    Raises:
        DTypeError: If opbuild does not support it.
    """
    name = number if isinstance(number, str) else ONNX_DTYPES.get(int(number))
    if name not in DTYPES:
        call.fail_dtype(f"element type {number} is not supported")
    return name


def like_first(call: ShapeCall) -> Types:
    """Return the first input's type."""
    return (call.type(0),)


def broadcast_of(*indices: int, dtype: int = 0) -> Rule:
    """Return the rule of inputs that broadcast together, with the element type of one."""
    return lambda call: (TensorType(call.dtype(dtype), broadcast(call, [call.shape(index) for index in indices])),)
