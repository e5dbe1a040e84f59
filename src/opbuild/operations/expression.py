"""Expressions: what a fused elementwise chain or an epilogue computes, one element at a time.

An expression is a nested tuple, so it is hashable and JSON without change:

* ``("arg", i)`` is operand ``i`` of the kernel's elementwise operands; in an epilogue ``("acc",)`` is the accumulator.
* ``("const", dtype, text)`` is a literal; ``text`` is ``repr`` of a Python float or int, ``inf``, ``-inf`` or ``nan``.
* ``("cast", dtype, e)`` converts as ONNX's Cast does.
* ``("user", name, e...)`` calls a user-defined elementwise operator, whose source is in the descriptor.
* ``(operation, e...)`` applies one of ``OPERATIONS``; its operands have one type, comparisons give ``bool``.

Both backends implement each name in ``OPERATIONS``: halide to compile it, host (numpy) to fold constants and to check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

Expression = tuple[Any, ...]

OPERATIONS: dict[str, int] = {
    # arithmetic
    "add": 2, "sub": 2, "mul": 2, "div": 2, "pow": 2, "mod": 2, "fmod": 2, "max": 2, "min": 2, "neg": 1, "abs": 1,
    "sign": 1, "reciprocal": 1, "square": 1, "sqrt": 1, "rsqrt": 1, "floor_div": 2, "squared_difference": 2,
    # rounding
    "floor": 1, "ceil": 1, "round": 1, "trunc": 1,
    # exponentials and trigonometry
    "exp": 1, "expm1": 1, "log": 1, "log1p": 1, "erf": 1, "sin": 1, "cos": 1, "tan": 1, "asin": 1, "acos": 1, "atan": 1,
    "atan2": 2, "sinh": 1, "cosh": 1, "tanh": 1, "asinh": 1, "acosh": 1, "atanh": 1,
    # activations: the plain ones, and those with parameters as further operands (constants)
    "relu": 1, "sigmoid": 1, "softplus": 1, "softsign": 1, "mish": 1, "gelu": 1, "gelu_tanh": 1, "silu": 1,
    "hard_swish": 1, "leaky_relu": 2, "elu": 2, "celu": 2, "selu": 3, "hard_sigmoid": 3, "thresholded_relu": 2,
    "prelu": 2, "clip": 3, "shrink": 3,
    # comparison and logic
    "equal": 2, "not_equal": 2, "less": 2, "less_equal": 2, "greater": 2, "greater_equal": 2,
    "and": 2, "or": 2, "xor": 2, "not": 1, "is_nan": 1, "is_inf": 1, "is_finite": 1, "where": 3,
    # bits
    "bit_and": 2, "bit_or": 2, "bit_xor": 2, "bit_not": 1, "shift_left": 2, "shift_right": 2,
}  # fmt: skip
"""Every operation with its number of operands."""

REFINED = frozenset((
    "exp", "expm1", "log", "log1p", "erf", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh",
    "acosh", "atanh", "sigmoid", "softplus", "mish", "gelu", "gelu_tanh", "silu", "elu", "celu", "selu",
))  # fmt: skip
"""Operations that the implementation mode ``high_precision`` computes otherwise, on float32. (``pow`` works in float64
in both modes; float16 has no digits in which they would differ, float64 uses the C library's functions.)"""

_TRUTH = frozenset((
    "equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "and", "or", "xor", "not", "is_nan",
    "is_inf", "is_finite",
))  # fmt: skip

ACC: Expression = ("acc",)


def arg(index: int) -> Expression:
    """Return the expression that reads operand ``index``."""
    return ("arg", index)


def const(value: float | int | bool, dtype: str = "float32") -> Expression:
    """Return a literal of type ``dtype``."""
    if dtype.startswith(("int", "uint", "bool")):
        return ("const", dtype, repr(int(value)))
    return ("const", dtype, repr(float(value)))


def children(expression: Expression) -> tuple[Expression, ...]:
    """Return the operands of the outermost operation."""
    head = expression[0]
    if head in ("arg", "acc", "const"):
        return ()
    return tuple(expression[2:] if head in ("cast", "user") else expression[1:])


def rebuild(expression: Expression, operands: tuple[Expression, ...]) -> Expression:
    """Return the outermost operation of ``expression`` applied to other operands."""
    head = expression[0]
    if head in ("arg", "acc", "const"):
        return expression
    return (*expression[:2], *operands) if head in ("cast", "user") else (head, *operands)


def walk(expression: Expression) -> Iterator[Expression]:
    """Yield every sub-expression, operands before the operations that use them."""
    for child in children(expression):
        yield from walk(child)
    yield expression


def is_refined(expression: Expression, dtypes: Sequence[str] = ()) -> bool:
    """Return whether the implementation mode changes what an expression compiles to.

    Args:
        expression: Any.
        dtypes: Element types of the operands that ``("arg", i)`` stands for; those not given are float32, as the
            accumulator is.
    """
    return any(
        part[0] in REFINED and dtype_of(part[1], dtypes) == "float32" for part in walk(expression) if len(part) > 1
    )


def dtype_of(expression: Expression, dtypes: Sequence[str] = ()) -> str:
    """Return the type of an expression; of a user-defined operator that of its first operand.

    Args:
        expression: Any.
        dtypes: As for ``is_refined``.
    """
    head = expression[0]
    if head == "arg":
        return dtypes[expression[1]] if expression[1] < len(dtypes) else "float32"
    if head in ("const", "cast"):
        return str(expression[1])
    if head in _TRUTH:
        return "bool"
    parts = children(expression)
    return dtype_of(parts[1] if head == "where" else parts[0], dtypes) if parts else "float32"


def substitute(expression: Expression, replace: Callable[[Expression], Expression | None]) -> Expression:
    """Return the expression with sub-expressions replaced, innermost first; ``replace`` returns None to keep one."""
    new = rebuild(expression, tuple(substitute(child, replace) for child in children(expression)))
    return replace(new) or new


def canonical(expression: Expression) -> tuple[Expression, tuple[int, ...]]:
    """Return one form of an expression whatever order it was written in, and the operands that it reads.

    Operands of commutative operations stand in a fixed order, those that contain the accumulator first; kernel operands
    are numbered in order of appearance. Equal computations then have equal keys.

    Returns:
        The expression, and for each of its operand numbers the number that it had.
    """
    ordered = _ordered(expression)
    order = tuple(dict.fromkeys(part[1] for part in walk(ordered) if part[0] == "arg"))
    return substitute(ordered, lambda e: arg(order.index(e[1])) if e[0] == "arg" else None), order


_COMMUTATIVE = ("add", "mul")


def _ordered(expression: Expression) -> Expression:
    parts = tuple(_ordered(child) for child in children(expression))
    return rebuild(expression, tuple(sorted(parts, key=_rank)) if expression[0] in _COMMUTATIVE else parts)


def _rank(expression: Expression) -> tuple[int, str]:
    heads = {part[0] for part in walk(expression)}
    return (0 if "acc" in heads else 1 if "arg" in heads else 2), repr(expression)


def operations(expression: Expression) -> tuple[str, ...]:
    """Return the operations in evaluation order, shared ones once: ``("Mul", "Add", "Relu")`` names the operator."""
    distinct = dict.fromkeys(e for e in walk(expression) if e[0] not in ("arg", "acc", "const"))
    names = [e[1] if e[0] == "user" else e[0] for e in distinct]
    return tuple("".join(part.capitalize() for part in name.split("_")) for name in names)


def from_json(value: Any) -> Expression:
    """Rebuild an expression from JSON lists."""
    return tuple(from_json(item) if isinstance(item, list) else item for item in value)
