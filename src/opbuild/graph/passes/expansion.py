"""How large the tree is that the compiler makes of an expression: what bounds the length of a fused chain."""

from __future__ import annotations

from collections.abc import Sequence

from opbuild.kernel.expression import Expression, children, dtype_of

EXPANSION = {
    "acos": 20, "acosh": 200, "asin": 20, "asinh": 200, "atan": 20, "atan2": 60, "atanh": 150, "celu": 50, "cos": 80,
    "cosh": 80, "div": 2, "elu": 50, "erf": 25, "exp": 40, "expm1": 45, "floor_div": 4, "fmod": 50, "gelu": 30,
    "gelu_tanh": 100, "log": 15, "log1p": 50, "mish": 90, "mod": 60, "pow": 150, "selu": 50, "sigmoid": 45, "silu": 45,
    "sin": 80, "sinh": 60, "softplus": 150, "tan": 150, "tanh": 25,
}  # fmt: skip
"""How often an operation's implementation mentions its operand, if more often than twice."""

FROM_HALF, TO_HALF = 3, 2
"""How often the conversions of a float16 to float32 and back mention it, around every operation on float16."""

BETWEEN_FLOATS, TO_UNSIGNED = 4, 7
"""How often conversions mention their operand: of float32 to float64 and back, and of floats to uint32 and uint64."""


def expansion(expression: Expression, dtypes: Sequence[str] = ()) -> int:
    """Return about how many copies of operands the compiler's tree of an expression holds.

    Args:
        expression: Any.
        dtypes: Element types of the operands that ``("arg", i)`` stands for; those not given are float32.
    """
    parts = children(expression)
    if not parts:
        return 1
    source, result = dtype_of(parts[-1], dtypes), dtype_of(expression, dtypes)
    if expression[0] == "cast":
        copies = _conversion(source, result)
    else:
        copies = EXPANSION.get(expression[0], 1 if len(parts) > 1 else 2)
    copies *= (FROM_HALF if source == "float16" else 1) * (TO_HALF if result == "float16" else 1)
    return copies * sum(expansion(part, dtypes) for part in parts)


def _conversion(source: str, result: str) -> int:
    if not source.startswith("float"):
        return 1
    if result.startswith("float"):
        return BETWEEN_FLOATS if "float64" in (source, result) else 1
    return TO_UNSIGNED if result in ("uint32", "uint64") else 2
