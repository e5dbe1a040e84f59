"""From an expression of ``kernel.expression`` to a Halide expression, with numpy's and ONNX's semantics.

Every operation is computed in the type of its operands, float16 in float32 and then rounded, so that a fused chain
gives bit for bit what the operators one by one give. Where Halide and C leave something open (NaN, overflow of signed
integers, division by zero, shifts by too much, conversions out of range) the result is defined here and never traps:
integers wrap, ``x / 0`` is 0 for integers, a shift by the width or more gives 0 (-1 for a negative number shifted
right), and ``conversions`` says what a float becomes that an integer type can not hold.

A bool is ``UInt(1)`` inside an expression and a byte of 0 or 1 in a buffer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import halide as hl

from opbuild.backend.halide import mathematics as m
from opbuild.backend.halide import powers, precise, trigonometry
from opbuild.backend.halide.conversions import convert
from opbuild.backend.halide.definition import TYPES
from opbuild.backend.halide.integers import INTEGER, settled, unsigned
from opbuild.errors import CompileError
from opbuild.operations.expression import Expression, children

Expr = Any
BOOL = hl.UInt(1)
BYTE = hl.UInt(8)
FLOAT16 = m.FLOAT16


ONCE = frozenset(("add", "sub", "mul", "div", "and", "or", "xor", "bit_and", "bit_or", "bit_xor"))
"""Operations whose implementation mentions each operand once, unless it is a float16."""


def compile_expression(
    expression: Expression,
    args: Sequence[Expr],
    index: Sequence[Any],
    acc: Expr | None = None,
    user: Mapping[str, Callable[..., Expr]] | None = None,
    refined: bool = False,
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
        refined: Whether functions of a float32 are computed in float64 and rounded once (``precise.OPERATIONS``).

    Returns:
        The value, strict about NaN; a bool as a byte of 0 or 1.

    Raises:
        CompileError: If the expression names something that is not given, or operands do not fit an operation.
    """
    return hl.strict_float(_stored(_Compilation(args, index, acc, user or {}, refined).value(expression)))


@dataclass(frozen=True)
class _Compilation:
    """What ``compile_expression`` was given, and the parts of the expression that are compiled."""

    args: Sequence[Expr]
    index: Sequence[Any]
    acc: Expr | None
    functions: Mapping[str, Callable[..., Expr]]
    refined: bool
    values: dict[Expression, Expr] = field(default_factory=dict)
    named: dict[Expression, Expr] = field(default_factory=dict)

    def value(self, e: Expression) -> Expr:
        """Return a part of the expression."""
        if e not in self.values:
            self.values[e] = self._compute(e)
        return self.values[e]

    def operand(self, e: Expression, once: bool = False) -> Expr:
        """Return a part of the expression that an operation mentions, ``once`` or more often."""
        value = self.value(e)
        if not children(e) or (once and value.type() != FLOAT16):
            return value
        if e not in self.named:
            function = hl.Func("part")
            function[list(self.index)] = hl.strict_float(value)
            self.named[e] = hl.Expr(function[list(self.index)])
        return self.named[e]

    def _compute(self, e: Expression) -> Expr:
        head = e[0]
        if head == "arg":
            return self.args[e[1]]
        if head == "acc":
            if self.acc is None:
                raise CompileError("an expression refers to an accumulator where there is none")
            return self.acc
        if head == "const":
            return constant(e[1], e[2])
        if head == "cast":
            return cast(self.operand(e[2]), e[1])
        operands = [self.operand(child, once=head in ONCE) for child in children(e)]
        if head == "user":
            return _call_user(self.functions, e[1], operands)
        if head == "pow" and e[2][0] == "const":
            return _power_of_constant(operands[0], e[2], operands[1])
        if self.refined and head in precise.OPERATIONS and operands[0].type() == m.FLOAT32:
            return precise.OPERATIONS[head](*operands)
        return apply(head, operands)


def constant(dtype: str, text: str) -> Expr:
    """Return a literal."""
    if dtype == "bool":
        return hl.cast(BOOL, hl.u8(int(text)))
    if dtype.startswith("float"):
        return m.literal(hl.cast(TYPES[dtype], hl.f32(0.0)), float(text))
    bits = TYPES[dtype].bits()
    number = int(text) % (1 << bits)
    return hl.reinterpret(TYPES[dtype], hl.cast(hl.UInt(bits), hl.u64(number)))


def cast(x: Expr, dtype: str) -> Expr:
    """Return ``x`` converted as ONNX's Cast does: floats to integers toward zero, whatever is not 0 to True."""
    if dtype == "bool":
        return _truth(x)
    return convert(x, TYPES[dtype])


def apply(operation: str, operands: Sequence[Expr]) -> Expr:
    """Return one of ``kernel.expression.OPERATIONS`` applied to operands.

    Raises:
        CompileError: If there is no such operation for the operands' types.
    """
    if operation in LOGIC:
        return LOGIC[operation](*operands)
    operands = _same_type(operands) if operation != "where" else [operands[0], *_same_type(operands[1:])]
    kind = operands[-1].type()
    if operation in ANY:
        return ANY[operation](*operands)
    if kind == FLOAT16:
        wide = [m.widen_half(x) if x.type() == FLOAT16 else x for x in operands]
        result = apply(operation, wide)
        return m.narrow_half(result) if result.type() == m.FLOAT32 else result
    table = FLOAT if kind.is_float() else INTEGER
    if operation not in table:
        raise CompileError(f"operation {operation} is not defined for {kind}")
    return settled(table[operation](*operands))


def _stored(x: Expr) -> Expr:
    return hl.cast(BYTE, x) if x.type() == BOOL else x


def _truth(x: Expr) -> Expr:
    if x.type() == BOOL:
        return x
    x = m.widen_half(x) if x.type() == FLOAT16 else x
    return x != hl.cast(x.type(), hl.i32(0))


def _same_type(operands: Sequence[Expr]) -> list[Expr]:
    """A bool computed here and a bool from a buffer meet as bytes; other types must be equal."""
    if len({str(x.type()) for x in operands}) == 1:
        return list(operands)
    stored = [_stored(x) for x in operands]
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


# -- floating point ---------------------------------------------------------------------------------------------------


def _number(value: float) -> Callable[[Expr], Expr]:
    return lambda x: m.literal(x, value)


_F0, _F1, _F2, _HALF = _number(0.0), _number(1.0), _number(2.0), _number(0.5)


def _clip(x: Expr, low: Expr, high: Expr) -> Expr:
    """Return ``min(max(x, low), high)``; NaN stays NaN, whether it is the number or a bound that is compared last."""
    x = hl.select(x < low, low, x)
    return hl.select(x > high, high, x)


def _float_mod(a: Expr, b: Expr) -> Expr:
    """Return the remainder with the sign of the divisor, as Python's ``%``."""
    rest = powers.remainder(a, b)
    return hl.select((rest != _F0(rest)) & ((rest < _F0(rest)) != (b < _F0(b))), rest + b, rest)


def _float_sign(x: Expr) -> Expr:
    return hl.select(x > _F0(x), _F1(x), hl.select(x < _F0(x), -_F1(x), x))


def _power_of_constant(x: Expr, literal: Expression, y: Expr) -> Expr:
    """Return a power whose exponent is known; small whole exponents and one half need no logarithm."""
    exponent = float(literal[2])
    if x.type() == FLOAT16:
        return m.narrow_half(_power_of_constant(m.widen_half(x), literal, m.widen_half(y)))
    if exponent in (2.0, 3.0, 4.0):
        square = apply("mul", [x, x])
        factors = {2.0: [square], 3.0: [square, x], 4.0: [square, square]}[exponent]
        return reduce(lambda a, b: apply("mul", [a, b]), factors)
    if x.type().is_float() and exponent == -1.0:
        return m.quotient(_F1(x), x)
    if x.type().is_float() and exponent == 0.5:
        # pow(-0, 0.5) is +0 and pow(-inf, 0.5) is inf, unlike the square root.
        return hl.select(x == m.literal(x, -math.inf), m.literal(x, math.inf), hl.sqrt(x + _F0(x)))
    return apply("pow", [x, y])


def _hard_sigmoid(x: Expr, alpha: Expr, beta: Expr) -> Expr:
    return _clip(alpha * x + beta, _F0(x), _F1(x))


def _gelu(x: Expr) -> Expr:
    return _HALF(x) * x * (_F1(x) + m.erf(x * m.literal(x, math.sqrt(0.5))))


def _gelu_tanh(x: Expr) -> Expr:
    inner = m.literal(x, math.sqrt(2.0 / math.pi)) * (x + m.literal(x, 0.044715) * (x * x * x))
    return _HALF(x) * x * (_F1(x) + m.tanh(inner))


def _selu(x: Expr, alpha: Expr, gamma: Expr) -> Expr:
    return gamma * hl.select(x > _F0(x), x, alpha * m.expm1(x))


def _celu(x: Expr, alpha: Expr) -> Expr:
    return hl.select(x > _F0(x), x, alpha * m.expm1(x / alpha))


def _shrink(x: Expr, lambd: Expr, bias: Expr) -> Expr:
    return hl.select(x < -lambd, x + bias, hl.select(x > lambd, x - bias, _F0(x)))


FLOAT: dict[str, Callable[..., Expr]] = {
    "exp": m.exp,
    "expm1": m.expm1,
    "log": m.log,
    "log1p": m.log1p,
    "erf": m.erf,
    "tanh": m.tanh,
    "sinh": m.sinh,
    "cosh": m.cosh,
    "asinh": m.asinh,
    "acosh": m.acosh,
    "atanh": m.atanh,
    "sigmoid": m.sigmoid,
    "softplus": m.softplus,
    "mish": m.mish,
    "sin": trigonometry.sin,
    "cos": trigonometry.cos,
    "tan": trigonometry.tan,
    "asin": trigonometry.asin,
    "acos": trigonometry.acos,
    "atan": trigonometry.atan,
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": m.quotient,
    "floor_div": lambda a, b: hl.floor(m.quotient(a, b)),
    "mod": _float_mod,
    "fmod": powers.remainder,
    "pow": powers.power,
    "atan2": trigonometry.atan2,
    "max": m.maximum,
    "min": m.minimum,
    "clip": _clip,
    "neg": m.negate,
    "abs": m.absolute,
    "sign": _float_sign,
    "reciprocal": lambda x: m.quotient(_F1(x), x),
    "square": lambda x: x * x,
    "squared_difference": lambda a, b: (a - b) * (a - b),
    "sqrt": hl.sqrt,
    "rsqrt": lambda x: m.quotient(_F1(x), hl.sqrt(x)),
    "floor": hl.floor,
    "ceil": hl.ceil,
    "round": hl.round,
    "trunc": hl.trunc,
    "relu": m.relu,
    "softsign": lambda x: x / (_F1(x) + m.absolute(x)),
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "silu": lambda x: x * m.sigmoid(x),
    "hard_swish": lambda x: x * _hard_sigmoid(x, m.literal(x, 1.0 / 6.0), _HALF(x)),
    "leaky_relu": lambda x, alpha: hl.select(x < _F0(x), alpha * x, x),
    "prelu": lambda x, slope: hl.select(x < _F0(x), slope * x, x),
    "elu": lambda x, alpha: hl.select(x < _F0(x), alpha * m.expm1(x), x),
    "celu": _celu,
    "selu": _selu,
    "hard_sigmoid": _hard_sigmoid,
    "thresholded_relu": lambda x, alpha: hl.select(x > alpha, x, _F0(x)),
    "shrink": _shrink,
    "is_nan": hl.is_nan,
    "is_inf": lambda x: m.absolute(x) == m.literal(x, math.inf),
    "is_finite": lambda x: m.absolute(x) < m.literal(x, math.inf),
}
"""Operations on float32 and float64."""

LOGIC: dict[str, Callable[..., Expr]] = {
    "and": lambda a, b: _truth(a) & _truth(b),
    "or": lambda a, b: _truth(a) | _truth(b),
    "xor": lambda a, b: _truth(a) != _truth(b),
    "not": lambda x: ~_truth(x),
}
"""Operations on truth values, whatever their type."""

ANY: dict[str, Callable[..., Expr]] = {
    "equal": lambda a, b: _pattern(a) == _pattern(b),
    "not_equal": lambda a, b: _pattern(a) != _pattern(b),
    "less": lambda a, b: _comparable(a) < _comparable(b),
    "less_equal": lambda a, b: _at_most(_comparable(a), _comparable(b)),
    "greater": lambda a, b: _comparable(a) > _comparable(b),
    "greater_equal": lambda a, b: _at_most(_comparable(b), _comparable(a)),
    "where": lambda condition, a, b: hl.select(_truth(condition), a, b),
}
"""Operations on operands of any one type."""


def _at_most(a: Expr, b: Expr) -> Expr:
    # Halide turns a <= b into not (b < a), which is true of NaN.
    return (a < b) | (a == b)


def _comparable(x: Expr) -> Expr:
    return m.widen_half(x) if x.type() == FLOAT16 else _stored(x)


def _pattern(x: Expr) -> Expr:
    # Halide subtracts what it compares, and refuses where the difference of two signed literals overflows.
    x = _comparable(x)
    return unsigned(x) if x.type().is_int() else x
