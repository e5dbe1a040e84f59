"""Single operations, by which any fused expression is computed until it has a kernel of its own.

Operands are as ``graph.single_operations`` makes them: literals are read, numbers of 16 bits are converted to float32
before and after. Rows lie side by side or are one number, whatever is outside of them; other strides, and rows shorter
than a vector, are for the kernel without limits.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product

from opbuild.families.catalogue import find
from opbuild.families.elementwise.lowering import describe
from opbuild.families.family import ANY_RANK, for_machine
from opbuild.kernel.opdesc import OpDesc
from opbuild.operations.expression import Expression, arg
from opbuild.operations.record import Operation
from opbuild.operations.table import OPERATIONS
from opbuild.program import View
from opbuild.target.machine import Machine

INTEGERS, BYTES = ("int64", "int32"), ("uint8", "int8")
CONVERTED = ("float32", *INTEGERS, *BYTES, "bool")
"""Types between which there are conversions."""
OTHERS = ("float16", "bfloat16", "float64", "uint16", "int16", "uint32", "uint64")
"""Types that are converted from and to float32 alone."""
OF_FRACTIONS = ("floor", "ceil", "round", "trunc", "is_nan", "is_inf", "is_finite")
"""Operations that give every whole number back, or tell nothing of it."""
CHOSEN = ("float32", *INTEGERS, "bool")
"""Types of what ``where`` chooses."""

ROW = 64
"""Elements of a row that any vector fits in."""


def single_operations(machine: Machine) -> dict[OpDesc, None]:
    """Return the kernels of single operations for a machine."""
    found: dict[OpDesc, None] = {}
    for expression, dtypes in _expressions():
        for steps in _steps(len(dtypes) - 1):
            found[_kernel(expression, dtypes, steps, machine)] = None
    return found | {find(desc.family).without_limits(desc): None for desc in found}


def _expressions() -> Iterator[tuple[Expression, tuple[str, ...]]]:
    """Yield operations with the types of their operands and result."""
    for operation in OPERATIONS.values():
        expression = (operation.name, *map(arg, range(operation.arity)))
        for dtype in _types(operation):
            conditions = ("bool",) * operation.conditions
            operands = (*conditions, *(dtype,) * (operation.arity - operation.conditions))
            yield expression, (*operands, "bool" if operation.predicate else dtype)
    for source, target in (*product(CONVERTED, repeat=2), *_with_float32()):
        if source != target:
            yield ("cast", target, arg(0)), (source, target)


def _with_float32() -> Iterator[tuple[str, str]]:
    for other in OTHERS:
        yield from (("float32", other), (other, "float32"))


def _types(operation: Operation) -> tuple[str, ...]:
    if operation.name in OF_FRACTIONS:
        return ("float32",)
    if operation.conditions:
        return CHOSEN
    if operation.kinds == "truth":
        return ("bool",)
    if operation.kinds == "integers":
        return (*INTEGERS, *BYTES)
    return ("float32", *INTEGERS) if operation.has_integers else ("float32",)


def _steps(operands: int) -> Iterator[tuple[int, ...]]:
    """Yield the strides of operands in a row: of one at least elements lie side by side."""
    if operands < 3:
        return (each for each in product((1, 0), repeat=operands) if any(each))
    # A parameter of an activation is one number.
    return iter([(1, 1, 1), (1, 0, 0), (1, 1, 0), (1, 0, 1), (0, 1, 1)])


def _kernel(expression: Expression, dtypes: tuple[str, ...], steps: tuple[int, ...], machine: Machine) -> OpDesc:
    outside = ((1, 0),) * (ANY_RANK - 1)
    views = [View(0, 0, ((ROW, step), *outside)) for step in (*steps, 1)]
    make = partial(describe, expression=expression, dtypes=dtypes, choose=for_machine(machine))
    desc, _ = make(views)
    return find(desc.family).more_general(desc)[0]
