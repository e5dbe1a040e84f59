"""Terms: values with Python's operators, with which formulas of derivatives are written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opbuild.graph.graph_builder import GraphBuilder, Value
from opbuild.operations.record import op_type
from opbuild.operations.table import OPERATIONS
from opbuild.platform.records import dataclass


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
        return self._with("Add", self, other)

    def __radd__(self, other: float) -> Term:
        return self._with("Add", other, self)

    def __sub__(self, other: Any) -> Term:
        return self._with("Sub", self, other)

    def __rsub__(self, other: float) -> Term:
        return self._with("Sub", other, self)

    def __mul__(self, other: Any) -> Term:
        return self._with("Mul", self, other)

    def __rmul__(self, other: float) -> Term:
        return self._with("Mul", other, self)

    def __truediv__(self, other: Any) -> Term:
        return self._with("Div", self, other)

    def __neg__(self) -> Term:
        return self._with("Neg", self)

    def _with(self, name: str, *operands: Any) -> Term:
        return Term(self.of, self.of(name, *(self.operand(each) for each in operands)))

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
