"""Elementwise expressions as single operations, each a node of its own.

A kernel of a single operation serves every network that has it, one of a fused expression few. So that they are few,
literals are operands, and what is computed on floats of 16 bits is converted to float32 before and back after, as
fused kernels do it: the numbers are the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from opbuild.dtypes import NARROW_FLOATS
from opbuild.graph.elementwise import elementwise_of
from opbuild.graph.types import Array, Graph, Node, TensorType, broadcast_shapes
from opbuild.operations.evaluation import evaluate_expression
from opbuild.operations.expression import Expression, arg, children, dtype_of, rebuild
from opbuild.operations.table import OPERATIONS
from opbuild.platform.records import NamedTuple


class SingleOperations(NamedTuple):
    """The nodes that compute what one does.

    Attributes:
        nodes: In order; the last one has the output.
        types: Those of the values between them, and of literals.
        constants: The literals.
    """

    nodes: list[Node]
    types: dict[str, TensorType]
    constants: dict[str, Array]


def split_operations(node: Node, graph: Graph) -> SingleOperations | None:
    """Return the single operations of an elementwise node of a graph; None if it is one already, or none at all."""
    found = elementwise_of(node, graph.types, graph.constants)
    if found is None or not found.inputs:
        return None
    dtypes = [graph.types[name].dtype for name in found.inputs]
    expression = widened(found.expression, dtypes)
    operands = children(expression)
    if not operands or all(part[0] == "arg" for part in operands):
        return None
    splitting = _Splitting(node, found.inputs, graph)
    splitting.value(expression)
    return splitting.last()


def widened(expression: Expression, dtypes: Sequence[str]) -> Expression:
    """Return an expression whose operations and conversions on floats of 16 bits are written with those of float32.

    ``dtypes`` are those of its operands.
    """
    if not children(expression):
        return expression
    parts = tuple(widened(part, dtypes) for part in children(expression))
    head, kinds = expression[0], [dtype_of(part, dtypes) for part in parts]
    narrow = [kind in NARROW_FLOATS for kind in kinds]
    if head == "cast" and kinds[0] != "float32" and (narrow[0] or expression[1] in NARROW_FLOATS):
        wide = ("cast", "float32", *parts)
        return wide if expression[1] == "float32" else ("cast", expression[1], wide)
    if head not in OPERATIONS or not any(narrow):
        return rebuild(expression, parts)
    wide = rebuild(expression, tuple(_wide(part, is_narrow) for part, is_narrow in zip(parts, narrow, strict=True)))
    kind = dtype_of(expression, dtypes)
    return ("cast", kind, wide) if kind in NARROW_FLOATS else wide


def _wide(part: Expression, is_narrow: bool) -> Expression:
    return ("cast", "float32", part) if is_narrow else part


class _Splitting:
    """The nodes of one expression, those of equal parts once."""

    def __init__(self, node: Node, inputs: Sequence[str], graph: Graph) -> None:
        self._found = SingleOperations([], {}, {})
        self._node, self._inputs, self._graph = node, inputs, graph
        self._dtypes = [graph.types[name].dtype for name in inputs]
        self._names: dict[Expression, str] = {}

    def last(self) -> SingleOperations:
        """Return the nodes; the last one computes the node's output, and has its name."""
        nodes, output = self._found.nodes, self._node.outputs
        del self._found.types[nodes[-1].outputs[0]]
        nodes[-1] = nodes[-1].with_(outputs=output, name=self._node.name)
        return self._found

    def value(self, part: Expression) -> str:
        """Return the name of a part's value, having added what computes it."""
        if part[0] == "arg":
            return self._inputs[part[1]]
        if part not in self._names:
            names = [self.value(each) for each in children(part)]
            is_literal = self._found.constants.keys() >= {*names}
            self._names[part] = self._literal(part) if is_literal else self._computed(part, names)
        return self._names[part]

    def _literal(self, part: Expression) -> str:
        name = f"{self._node.outputs[0]}/literal {len(self._found.constants)}"
        self._found.types[name] = TensorType(dtype_of(part), ())
        self._found.constants[name] = evaluate_expression(part, ())
        return name

    def _computed(self, part: Expression, names: Sequence[str]) -> str:
        inputs, number = tuple(dict.fromkeys(names)), len(self._found.nodes)
        output = f"{self._node.outputs[0]}/{number}"
        shape = broadcast_shapes(self._type(each).shape for each in inputs) or ()  # operands fit each other
        self._found.types[output] = TensorType(dtype_of(part, self._dtypes), shape)
        expression = rebuild(part, tuple(arg(inputs.index(each)) for each in names))
        name = f"{self._node.name}/{number}"
        node = Node("Elementwise", inputs, (output,), {"expression": expression}, name, "opbuild")
        self._found.nodes.append(node.with_(made_of=self._node.origins))
        return output

    def _type(self, name: str) -> TensorType:
        return self._found.types[name] if name in self._found.types else self._graph.types[name]
