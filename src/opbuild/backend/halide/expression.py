"""From an expression of ``operations.expression`` to a Halide expression, with numpy's and ONNX's semantics.

Every operation is computed in the type of its operands, floats of 16 bits in float32 and then rounded, so that a fused
chain gives bit for bit what the operators one by one give. Where Halide and C leave something open (NaN, overflow of
signed integers, division by zero, shifts by too much, conversions out of range) the result is defined here and never
traps: integers wrap, ``x / 0`` is 0 for integers, a shift by the width or more gives 0 (-1 for a negative number
shifted right), and ``conversions`` says what a float becomes that an integer type cannot hold.

A bool is ``UInt(1)`` inside an expression and a byte of 0 or 1 in a buffer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import halide as hl

from opbuild.backend.halide import codes, floats, integers, precise
from opbuild.backend.halide import mathematics as m
from opbuild.backend.halide.conversions import convert, saturated, saturation
from opbuild.backend.halide.definition import TYPES
from opbuild.dtypes import CODED, NARROW_FLOATS, is_float
from opbuild.errors import CompileError
from opbuild.operations.expression import Expression, children, dtype_of
from opbuild.operations.record import evaluate
from opbuild.operations.table import OPERATIONS

Expr = Any


def compile_expression(
    expression: Expression,
    args: Sequence[Expr],
    index: Sequence[Any],
    acc: Expr | None = None,
    user: Mapping[str, Callable[..., Expr]] | None = None,
    refined: bool = False,
    dtypes: Sequence[str] = (),
) -> Expr:
    """Return an expression as a Halide expression.

    What an operation mentions more than once becomes a function of its own, which Halide inlines: it looks at an
    expression as at a tree, and the tree of a few operations in a row would have millions of nodes.

    Args:
        expression: What to compute.
        args: What ``("arg", i)`` stands for; bools as bytes of 0 or 1.
        index: The variables that ``args`` and ``acc`` depend on.
        acc: What ``("acc",)`` stands for.
        user: The functions that ``("user", name, ...)`` calls.
        refined: Whether functions of a float32 are computed in float64 and rounded once (``Operation.precise``).
        dtypes: Element types of ``args``, where some are codes in bytes (``dtypes.CODED``).

    Returns:
        The value, strict about NaN; a bool as a byte of 0 or 1.

    Raises:
        CompileError: If the expression names something that is not given, or operands do not fit an operation.
    """
    compilation = _Compilation(args, index, acc, user or {}, refined, dtypes)
    return hl.strict_float(floats.stored(compilation.stored(expression)))


@dataclass(frozen=True)
class _Compilation:
    """The arguments of ``compile_expression``, and the parts of the expression that are compiled.

    A part of 16 bits is a float32 that has one of the type's values; ``narrow`` says of which type.
    """

    args: Sequence[Expr]
    index: Sequence[Any]
    acc: Expr | None
    functions: Mapping[str, Callable[..., Expr]]
    refined: bool
    dtypes: Sequence[str]
    values: dict[Expression, Expr] = field(default_factory=dict)
    named: dict[Expression, Expr] = field(default_factory=dict)
    narrow: dict[Expression, Any] = field(default_factory=dict)

    def stored(self, e: Expression) -> Expr:
        """Return a part of the expression in its own type."""
        value = self.value(e)
        return m.narrowed(self.operand(e), self.narrow[e], rounds=False) if e in self.narrow else value

    def value(self, e: Expression) -> Expr:
        """Return a part of the expression."""
        if e not in self.values:
            value, narrow = self._compute(e)
            if m.is_narrow(value.type()):
                value, narrow = m.widened(value), value.type()
            self.values[e] = value
            if narrow is not None:
                self.narrow[e] = narrow
        return self.values[e]

    def operand(self, e: Expression, once: bool = False) -> Expr:
        """Return a part of the expression that an operation mentions, ``once`` or more often."""
        value = self.value(e)
        if once or not (children(e) or e in self.narrow):
            return value
        if e not in self.named:
            self.named[e] = self._part(value)
        return self.named[e]

    def _part(self, value: Expr) -> Expr:
        """Return a value as the call of a function, which may be mentioned any number of times."""
        function = hl.Func("part")
        function[list(self.index)] = hl.strict_float(value)
        return hl.Expr(function[list(self.index)])

    def _compute(self, e: Expression) -> tuple[Expr, Any]:
        """Return a part's value, and the type of 16 bits whose value it is."""
        head = e[0]
        if head == "arg":
            return self.args[e[1]], None
        if head == "acc":
            if self.acc is None:
                raise CompileError("an expression refers to an accumulator where there is none")
            return self.acc, None
        if head == "const":
            return constant(e[1], e[2]), None
        if head in ("cast", "cast_as"):
            return self._cast(e)
        if head == "user":
            return _call_user(self.functions, e[1], [self.stored(child) for child in children(e)]), None
        operation = OPERATIONS.get(head)
        if operation is None:
            raise CompileError(f"operation {head} is not defined")
        operands = [self.operand(child, not operation.repeats) for child in children(e)]
        narrow = None if operation.predicate else self.narrow.get(e[1 + operation.conditions])
        if head == "pow" and e[2][0] == "const":
            value = _power_of_constant(operands[0], e[2], operands[1])
        elif self.refined and operation.precise and operands[0].type() == m.FLOAT32 and narrow is None:
            value = evaluate(operation.precise, precise, operands)
        else:
            value = apply(head, operands)
        if narrow is not None and not operation.exact:
            value = m.rounded(self._part(value), narrow)
        return value, narrow

    def _cast(self, e: Expression) -> tuple[Expr, Any]:
        found = saturation(e) if e[0] == "cast" else None
        zero = None if found is None or found.zero_point is None else self.operand(found.zero_point)
        if found is not None and (zero is None or zero.type() == TYPES[e[1]]):
            return saturated(self.operand(found.value), zero, found, e[1]), None
        dtype, source = e[1], self._number(e[-1])
        if dtype not in NARROW_FLOATS:
            return cast(source, dtype, e[2].split() if e[0] == "cast_as" else ()), None
        narrow = TYPES[dtype]
        if self.narrow.get(e[-1]) != narrow:
            source = m.rounded(self._part(convert(source, m.FLOAT32)), narrow)
        return source, narrow

    def _number(self, e: Expression) -> Expr:
        """Return a part of the expression; if it is a code, the number that it stands for."""
        dtype = dtype_of(e, self.dtypes)
        return codes.decoded(self.operand(e), dtype) if dtype in CODED else self.operand(e)


def constant(dtype: str, text: str) -> Expr:
    """Return a literal."""
    if dtype == "bool":
        return hl.cast(floats.BOOL, hl.u8(int(text)))
    if dtype in NARROW_FLOATS:
        return m.narrowed(hl.f32(float(text)), TYPES[dtype])
    if is_float(dtype):
        return m.literal(hl.cast(TYPES[dtype], hl.f32(0.0)), float(text))
    bits = TYPES[dtype].bits()
    number = int(text) % (1 << bits)
    return hl.reinterpret(TYPES[dtype], hl.cast(hl.UInt(bits), hl.u64(number)))


def cast(x: Expr, dtype: str, options: Collection[str] = ()) -> Expr:
    """Return ``x`` converted as ONNX's Cast does: floats to integers toward zero, whatever is not 0 to True."""
    if dtype == "bool":
        return floats.truth(x)
    if dtype in CODED:
        if dtype.startswith("float"):
            return codes.encoded(convert(x, m.FLOAT32), dtype, options)
        return codes.encoded(convert(x, m.INT32) if x.type().is_float() else x, dtype)
    return convert(x, TYPES[dtype])


def apply(name: str, operands: Sequence[Expr]) -> Expr:
    """Return one of ``operations.table`` applied to operands.

    Raises:
        CompileError: If the operation is not defined for the operands' types.
    """
    operation = OPERATIONS[name]
    if operation.kinds == "truth":
        return evaluate(operation.formula, floats, operands)
    count = operation.conditions
    operands = [*operands[:count], *_same_type(operands[count:])]
    kind = operands[-1].type()
    if operation.kinds == "any":
        return evaluate(operation.formula, floats, operands)
    has_kind = operation.has_floats if kind.is_float() else operation.has_integers
    if not has_kind or (kind == m.FLOAT64 and not operation.float64):
        raise CompileError(f"operation {name} is not defined for {kind}")
    if kind.is_float():
        return evaluate(operation.formula, floats, operands)
    return integers.settled(evaluate(operation.formula, integers, operands))


def _same_type(operands: Sequence[Expr]) -> list[Expr]:
    """A bool computed here and a bool from a buffer meet as bytes; other types must be equal."""
    if len({str(x.type()) for x in operands}) == 1:
        return list(operands)
    stored = [floats.stored(x) for x in operands]
    if len({str(x.type()) for x in stored}) > 1:
        raise CompileError(f"operands of different types: {', '.join(str(x.type()) for x in operands)}")
    return stored


def _call_user(functions: Mapping[str, Callable[..., Expr]], name: str, operands: list[Expr]) -> Expr:
    if name not in functions:
        raise CompileError(f"the user-defined operator {name} has no source here")
    result = functions[name](*operands)
    if not isinstance(result, hl.Expr):
        raise CompileError(
            f"the user-defined operator {name} returned {type(result).__name__}, not a Halide expression"
        )
    return result


def _power_of_constant(x: Expr, literal: Expression, y: Expr) -> Expr:
    """Return a power whose exponent is known; small whole exponents and one half need no logarithm."""
    exponent = float(literal[2])
    if exponent in (2.0, 3.0, 4.0):
        square = apply("mul", [x, x])
        factors = {2.0: [square], 3.0: [square, x], 4.0: [square, square]}[exponent]
        return reduce(lambda a, b: apply("mul", [a, b]), factors)
    if x.type().is_float() and exponent == -1.0:
        return m.quotient(m.one(x), x)
    if x.type().is_float() and exponent == 0.5:
        # pow(-0, 0.5) is +0 and pow(-inf, 0.5) is inf, unlike the square root.
        return hl.select(x == m.literal(x, -math.inf), m.literal(x, math.inf), hl.sqrt(x + m.zero(x)))
    return apply("pow", [x, y])
