"""From an expression of ``operations.expression`` to a function of Triton, with numpy's and ONNX's semantics.

Every operation is computed in the type of its operands, floats of 16 bits in float32 and then rounded, and no product
is contracted with a sum, so that a fused chain gives bit for bit what the operators one by one give. What the machine
leaves open is defined as for CPUs: integers wrap, ``x / 0`` is 0 for integers, a shift by the width or more gives 0 (-1
for a negative number shifted right), and a float that an integer type cannot hold becomes the least number of 32 or 64
bits, of which a narrower type has the low ones.

A value of 16 bits is a float32 that has one of the type's values; ``narrow`` says of which type. A truth value has one
bit, and is a byte of 0 or 1 in memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

from opbuild.backend.triton import floats, integers
from opbuild.backend.triton.source import jit_function
from opbuild.backend.triton.values import Scalar, Text
from opbuild.dtypes import is_float
from opbuild.errors import CompileError
from opbuild.operations.expression import Expression, children
from opbuild.operations.record import evaluate
from opbuild.operations.table import OPERATIONS


def expression_function(expression: Expression, dtypes: Sequence[str], out: str, acc: str | None = None) -> Any:
    """Return an expression as a function of Triton.

    Its parameters are the operands as they are loaded, scalars or blocks that broadcast together, and behind them the
    accumulator, if there is one; its result is to be stored.

    Args:
        expression: What to compute.
        dtypes: Element types of the operands.
        out: Element type of the result, to which it is converted if it has another one.
        acc: Element type of what ``("acc",)`` stands for; None: there is none.

    Raises:
        CompileError: If the expression has what there is no code for.
    """
    return jit_function(function_text(expression, dtypes, out, acc), "expression")


def function_text(expression: Expression, dtypes: Sequence[str], out: str, acc: str | None = None) -> str:
    """Return the source of ``expression_function``."""
    text = Text()
    names = [f"a{number}" for number in range(len(dtypes))] + (["acc"] if acc else [])
    given = [floats.loaded(Scalar(text, name, dtype)) for name, dtype in zip(names, dtypes, strict=False)]
    total = floats.loaded(Scalar(text, "acc", acc)) if acc else None
    value = _Translation(text, given, total).value(expression)
    text.finish(floats.stored(floats.convert(value, out)))
    return f"def expression({', '.join(names)}):\n{text}"


class _Translation:
    """The operands and the parts that are computed."""

    def __init__(self, text: Text, given: Sequence[Scalar], acc: Scalar | None) -> None:
        self._text, self._given, self._acc = text, given, acc
        self._values: dict[Expression, Scalar] = {}

    def value(self, e: Expression) -> Scalar:
        """Return a part of the expression."""
        if e not in self._values:
            self._values[e] = self._compute(e)
        return self._values[e]

    def _compute(self, e: Expression) -> Scalar:
        head = e[0]
        if head == "arg":
            return self._given[e[1]]
        if head == "acc":
            if self._acc is None:
                raise CompileError("an expression refers to an accumulator where there is none")
            return self._acc
        if head == "const":
            return floats.constant(self._text, e[1], e[2])
        if head == "cast":
            return floats.convert(self.value(e[2]), e[1])
        if head not in OPERATIONS:
            raise CompileError(f"there is no code in Triton for {head}")
        operands = [self.value(child) for child in children(e)]
        if head == "pow" and e[2][0] == "const":
            return _power_of_constant(operands[0], float(e[2][2]), operands[1])
        return apply(head, operands)


def apply(name: str, operands: Sequence[Scalar]) -> Scalar:
    """Return one of ``operations.table`` applied to operands.

    Raises:
        CompileError: If the operation is not defined for the operands' types.
    """
    operation = OPERATIONS[name]
    if operation.kinds == "truth":
        truth: Scalar = evaluate(operation.formula, floats, operands)
        return truth
    count = operation.conditions
    operands = [*operands[:count], *_same_type(operands[count:])]
    kind, narrow = operands[-1].dtype, operands[-1].narrow
    has_kind = operation.has_floats if is_float(kind) else operation.has_integers or operation.kinds == "any"
    if not has_kind or (kind == "float64" and not operation.float64):
        raise CompileError(f"operation {name} is not defined for {kind}")
    if kind == "bool" and operation.kinds != "any":
        bits: Scalar = evaluate(operation.formula, integers, [floats.stored(each) for each in operands])
        return bits if operation.predicate else floats.truth(bits)
    library: Any = floats if is_float(kind) or operation.kinds == "any" else integers
    value: Scalar = evaluate(operation.formula, library, operands)
    if operation.predicate or not narrow:
        return value
    return value.as_narrow(narrow) if operation.exact else floats.rounded(value, narrow)


def _same_type(operands: Sequence[Scalar]) -> list[Scalar]:
    """Return operands of one type: a truth value meets a byte as one."""
    if len({each.dtype for each in operands}) == 1:
        return list(operands)
    stored = [floats.stored(each) if each.dtype == "bool" else each for each in operands]
    if len({each.dtype for each in stored}) > 1:
        raise CompileError(f"operands of different types: {', '.join(each.dtype for each in stored)}")
    return stored


def _power_of_constant(x: Scalar, exponent: float, y: Scalar) -> Scalar:
    """Return a power whose exponent is known; small whole exponents and one half need no logarithm."""
    if exponent in (2.0, 3.0, 4.0):
        square = apply("mul", [x, x])
        factors = {2.0: [square], 3.0: [square, x], 4.0: [square, square]}[exponent]
        return reduce(lambda a, b: apply("mul", [a, b]), factors)
    if is_float(x.dtype) and exponent == -1.0:
        return apply("reciprocal", [x])
    if is_float(x.dtype) and exponent == 0.5:
        # The power of -0 is 0 and that of -inf is inf, unlike the square root.
        root = floats.sqrt(x + floats.zero(x))
        value = floats.select(x == floats.literal(x, -math.inf), floats.literal(x, math.inf), root)
        return floats.rounded(value, x.narrow) if x.narrow else value
    return apply("pow", [x, y])
