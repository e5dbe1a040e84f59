"""Rules of gradients: one function an operator, by its domain and type; and helpers to write them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NoReturn

from opbuild.errors import UnsupportedOperatorError
from opbuild.graph.graph_builder import GraphBuilder, NodeBuilder, Scope, Value
from opbuild.graph.shape_rules import ShapeCall
from opbuild.graph.types import Array, Node
from opbuild.operations.record import op_type
from opbuild.operations.table import OPERATIONS
from opbuild.platform.records import dataclass
from opbuild.platform.registry import Registry


class Backward(NodeBuilder):
    """Writes the gradients of a node's inputs.

    Attributes:
        gradients: The gradient of each output, None where nothing flows back.
        wanted: Whether each input's gradient is asked for.
        inputs: The values that it read, None for an absent one.
        outputs: The values that it assigned, None for one that nobody asked for.
    """

    _labels = GraphBuilder._labels

    def __init__(
        self, name: str, scope: Scope, node: Node, gradients: Sequence[Value | None], wanted: Sequence[bool]
    ) -> None:
        super().__init__(node, scope)
        self.name, self.gradients, self.wanted = name, gradients, wanted
        self.inputs, self.outputs = (
            tuple(self.value(each) if each else None for each in names) for names in (node.inputs, node.outputs)
        )

    def input(self, index: int) -> Value:
        """Return an input that must be there."""
        found = self.optional(index)
        if found is None:
            self.refuse(f"input {index} is missing")
        return found

    def optional(self, index: int) -> Value | None:
        """Return an input, None if it is absent."""
        return self.inputs[index] if index < len(self.inputs) else None

    def wants(self, index: int) -> bool:
        """Return whether an input's gradient is asked for."""
        return index < len(self.wanted) and self.wanted[index]

    def output(self, index: int = 0) -> Value:
        """Return an output that must be there."""
        found = self.outputs[index]
        if found is None:
            self.refuse(f"output {index} is missing")
        return found

    def gradient(self, index: int = 0) -> Value:
        """Return the gradient of an output, zeros where nothing flows back."""
        found = self.gradients[index]
        return self.zeros(self.output(index)) if found is None else found

    def listed(self, name: str, default: Sequence[int]) -> tuple[int, ...]:
        """Return an attribute that is a list of integers."""
        return tuple(int(each) for each in self.node.attrs.get(name, ()) or default)

    def number(self, name: str, default: float) -> float:
        """Return an attribute that is a number."""
        return float(self.node.attrs.get(name, default))

    def flag(self, name: str, default: int = 0) -> bool:
        """Return an attribute that is 0 or 1."""
        return bool(self.node.attrs.get(name, default))

    def axis(self, default: int, rank: int) -> int:
        """Return the attribute ``axis``, counted from the front."""
        return int(self.node.attrs.get("axis", default)) % max(rank, 1)

    def known_input(self, index: int) -> Array:
        """Return the value of an input that must be known when the network is built."""
        found = self.known(self.input(index))
        if found is None:
            self.refuse(f"input {self.node.inputs[index]!r} is known only at run time")
        return found

    def shapes(self) -> ShapeCall:
        """Return the node as rules of shapes are given it."""
        types = [None if each is None else each.type for each in self.inputs]
        return ShapeCall(self.node, types, [None if each is None else self.known(each) for each in self.inputs])

    def refuse(self, why: str) -> NoReturn:
        """Say that this form of the operator has no gradient.

        Raises:
            UnsupportedOperatorError: Always; it names the operator and the node.
        """
        raise UnsupportedOperatorError(
            f"{self.node.op_type} node {self.node.name!r} has no gradient here: {why}",
            "stop the gradient before it (stop_gradient), or write it with other operators",
        ).at(self.node.name)


Parts = Sequence[Value | None]
"""The gradient of each input, None where nothing flows back; absent ones at the end may be left out."""

Gradient = Callable[[Backward], Parts]

RULES: Registry[Gradient] = Registry(
    "gradient", __package__, others=("elementwise", "movement", "reduction", "recurrent", "sampling", "window")
)
"""Rules of gradients; who only runs networks never loads them."""

gradient = RULES.register

CONSTANT = {
    ("", "Shape"), ("", "Size"), ("", "ArgMax"), ("", "ArgMin"), ("", "OneHot"), ("", "EyeLike"), ("", "NonZero"),
    ("", "ConstantOfShape"), ("", "Range"), ("", "RandomNormal"), ("", "RandomUniform"), ("", "RandomNormalLike"),
    ("", "RandomUniformLike"), ("", "Bernoulli"), ("", "IsInf"), ("", "Hardmax"),
    ("opbuild", "Table"),
}  # fmt: skip
"""Operators through which nothing flows back; those that compute one element at a time are not among them."""


def channel_means(of: GraphBuilder, x: Value) -> Value:
    """Return the mean over all axes but that of channels, which keep an extent of 1.

    The mean of each image is taken first: where images lie in channel blocks, they stay there.
    """
    return of.mean(of.mean(x, range(2, len(x.shape))), (0,))


def summed_to(of: GraphBuilder, dy: Value, shape: Sequence[int]) -> Value:
    """Return the gradient of a tensor of ``shape`` that was broadcast to the shape of ``dy``."""
    shape = tuple(shape)
    if shape == dy.shape:
        return dy
    ahead = len(dy.shape) - len(shape)
    aligned = (1,) * ahead + shape
    axes = [axis for axis, (have, want) in enumerate(zip(dy.shape, aligned, strict=True)) if have != want]
    return of.reshape(of.sum(dy, axes, keepdims=True), shape)


def is_empty(*values: Value) -> bool:
    """Return whether one of some tensors has no elements."""
    return any(not prod(each.shape) for each in values)


def channel_sums(of: GraphBuilder, dy: Value) -> Value:
    """Return the gradient of a bias: the sum over all axes but that of channels."""
    return of.sum(dy, [0, *range(2, len(dy.shape))])


def per_channel(of: GraphBuilder, x: Value, rank: int) -> Value:
    """Return a vector so that it is broadcast along the channels of a tensor of ``rank`` dimensions."""
    return of.reshape(x, [1, x.shape[0], *(1,) * (rank - 2)])


@dataclass(frozen=True, eq=False)
class Term:
    """A value in a formula.

    Attributes:
        of: Writes the operators.
        value: The value.
    """

    of: GraphBuilder
    value: Value

    def __add__(self, other: Any) -> Term:
        return self._term("Add", self, other)

    def __radd__(self, other: float) -> Term:
        return self._term("Add", other, self)

    def __sub__(self, other: Any) -> Term:
        return self._term("Sub", self, other)

    def __rsub__(self, other: float) -> Term:
        return self._term("Sub", other, self)

    def __mul__(self, other: Any) -> Term:
        return self._term("Mul", self, other)

    def __rmul__(self, other: float) -> Term:
        return self._term("Mul", other, self)

    def __truediv__(self, other: Any) -> Term:
        return self._term("Div", self, other)

    def __neg__(self) -> Term:
        return self._term("Neg", self)

    def _term(self, name: str, *operands: Any) -> Term:
        return Term(self.of, self.of(name, *(self.operand(each) for each in operands)))

    def __matmul__(self, matrix: Value) -> Term:
        return Term(self.of, self.of("MatMul", self.value, matrix))

    @property
    def shape(self) -> tuple[int, ...]:
        """The value's shape."""
        return self.value.shape

    def reshape(self, shape: Sequence[int]) -> Term:
        """Return the term in another shape."""
        return Term(self.of, self.of.reshape(self.value, shape))

    def part(self, axis: int, begin: int, end: int) -> Term:
        """Return the positions of an axis from ``begin`` on, before ``end``."""
        return Term(self.of, self.of.part(self.value, axis, begin, end))

    def operand(self, other: Any) -> Value:
        """Return a term's value, or a number as a constant of this term's type."""
        return other.value if isinstance(other, Term) else self.of.constant(other, self.value.dtype)


class TermFormulas:
    """The operations by name, as functions of terms and numbers."""

    def __getattr__(self, name: str) -> Callable[..., Term]:
        operation = OPERATIONS[name]
        onnx = operation.as_onnx
        is_plain = onnx is not None and not onnx.parameters and onnx.when is None

        def apply(*operands: Any) -> Term:
            model = next(each for each in operands[operation.conditions :] if isinstance(each, Term))
            values = [each.value if isinstance(each, Term) else model.operand(each) for each in operands]
            if name == "pow":
                return Term(model.of, model.of("Pow", *values))
            if onnx is not None and is_plain:
                return Term(model.of, model.of(onnx.name, *values))
            return Term(model.of, model.of(op_type(name), *values, domain="opbuild"))

        return apply


FORMULAS = TermFormulas()
