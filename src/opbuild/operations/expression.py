"""Expressions: a fused elementwise chain or an epilogue, one element at a time.

An expression is a nested tuple, so it is hashable and JSON without change:

* ``("arg", i)`` is operand ``i`` of the kernel's elementwise operands; in an epilogue ``("acc",)`` is the accumulator.
* ``("const", dtype, text)`` is a literal; ``text`` is ``repr`` of a Python float or int, ``inf``, ``-inf`` or ``nan``.
* ``("cast", dtype, e)`` converts as ONNX's Cast does.
* ``("cast_as", dtype, options, e)`` converts with options of ``operations.evaluation.cast``, words between spaces.
* ``("user", name, e...)`` calls a user-defined elementwise operator, whose source is in the descriptor.
* ``(operation, e...)`` applies one of ``operations.table``; its operands have one type, comparisons give ``bool``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from opbuild.dtypes import NARROW_FLOATS
from opbuild.operations.record import Cost, op_type
from opbuild.operations.table import OPERATIONS

Expression = tuple[Any, ...]

ACC: Expression = ("acc",)

_LEAVES = ("arg", "acc", "const")

_BEFORE = {"cast": 2, "cast_as": 3, "user": 2}
"""How many items stand before the operands, where there are more than the operation's name."""


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
    if expression[0] in _LEAVES:
        return ()
    return tuple(expression[_BEFORE.get(expression[0], 1) :])


def rebuild(expression: Expression, operands: tuple[Expression, ...]) -> Expression:
    """Return the outermost operation of ``expression`` applied to other operands."""
    if expression[0] in _LEAVES:
        return expression
    return (*expression[: _BEFORE.get(expression[0], 1)], *operands)


def walk(expression: Expression) -> Iterator[Expression]:
    """Return an iterator over every sub-expression, operands before the operations that use them."""
    found: list[Expression] = []
    _collect(expression, found)
    return iter(found)


def _collect(expression: Expression, found: list[Expression]) -> None:
    head = expression[0]
    if head not in _LEAVES:
        for child in expression[_BEFORE.get(head, 1) :]:
            _collect(child, found)
    found.append(expression)


def is_refined(expression: Expression, dtypes: Sequence[str] = ()) -> bool:
    """Return whether the implementation mode changes an expression's code.

    ``dtypes`` are the operands'; those not given are float32, as the accumulator is.
    """
    return any(
        OPERATIONS[part[0]].precise is not None and dtype_of(part[1], dtypes) == "float32"
        for part in walk(expression)
        if part[0] in OPERATIONS
    )


def cost(part: Expression) -> Cost:
    """Return the cost of the outermost operation of an expression."""
    if part[0] in OPERATIONS:
        return OPERATIONS[part[0]].cost
    return Cost.HEAVY if part[0] == "user" else Cost.CHEAP


def dtype_of(expression: Expression, dtypes: Sequence[str] = ()) -> str:
    """Return the type of an expression, given its operands'; of a user-defined operator that of its first operand."""
    head = expression[0]
    if head == "arg":
        return dtypes[expression[1]] if expression[1] < len(dtypes) else "float32"
    if head in ("const", "cast", "cast_as"):
        return str(expression[1])
    if head in OPERATIONS:
        operation = OPERATIONS[head]
        return "bool" if operation.predicate else dtype_of(expression[1 + operation.conditions], dtypes)
    return dtype_of(expression[2], dtypes) if head == "user" and len(expression) > 2 else "float32"


def substitute(expression: Expression, replace: Callable[[Expression], Expression | None]) -> Expression:
    """Return the expression with sub-expressions replaced, innermost first; ``replace`` returns None to keep one."""
    head = expression[0]
    if head not in _LEAVES:
        first = _BEFORE.get(head, 1)
        expression = expression[:first] + tuple([substitute(child, replace) for child in expression[first:]])
    return replace(expression) or expression


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


def _ordered(expression: Expression) -> Expression:
    parts = tuple(_ordered(child) for child in children(expression))
    operation = OPERATIONS.get(expression[0])
    return rebuild(expression, tuple(sorted(parts, key=_rank)) if operation and operation.commutative else parts)


def _rank(expression: Expression) -> tuple[int, str]:
    heads = {part[0] for part in walk(expression)}
    return (0 if "acc" in heads else 1 if "arg" in heads else 2), repr(expression)


def operations(expression: Expression) -> tuple[str, ...]:
    """Return the operations in evaluation order, shared ones once: ``("Mul", "Add", "Relu")`` names the operator."""
    distinct = dict.fromkeys(e for e in walk(expression) if e[0] not in _LEAVES and not _is_way_back(e))
    names = [e[1] if e[0] == "user" else e[0] for e in distinct]
    return tuple(map(op_type, names))


def _is_way_back(e: Expression) -> bool:
    """Return whether a conversion undoes the one before it but for digits: the two of them round, and count as one."""
    return e[0] == "cast" and e[2][0] == "cast" and e[2][1] in NARROW_FLOATS


def parts_of(expression: Expression) -> list[Expression]:
    """Return all sub-expressions, an operation before its operands; ``walk`` takes too long where chains are merged."""
    found = [expression]
    for part in found:
        found += children(part)
    return found


def count_operations(expression: Expression) -> int:
    """Return the number of ``operations``."""
    return len({part for part in parts_of(expression) if part[0] not in _LEAVES and not _is_way_back(part)})


def from_json(value: Any) -> Expression:
    """Rebuild an expression from JSON lists."""
    return tuple(from_json(item) if isinstance(item, list) else item for item in value)
