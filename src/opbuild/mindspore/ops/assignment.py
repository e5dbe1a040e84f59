"""Assignment to parameters, ``Print``, and operators that are only marks: no gradient, first this then that."""

from __future__ import annotations

from typing import Any

from opbuild.frontend.cell import current
from opbuild.mindspore.arguments import ArgumentValueError
from opbuild.mindspore.execution import cast, emit
from opbuild.mindspore.ops.arithmetic import add, sub
from opbuild.mindspore.ops.declaration import formula, need_tensor, of_tensor
from opbuild.mindspore.ops.primitive import Primitive
from opbuild.mindspore.ops.scattering import replaced
from opbuild.mindspore.tensor import Tensor

__all__ = ["Print", "assign", "assign_add", "assign_sub", "depend", "print_", "stop_gradient"]

depend = formula("depend", "``value``; ``expr`` was computed before, since Python runs in order",
                 lambda value, expr: value)  # fmt: skip
stop_gradient = formula(
    "stop_gradient", "the tensor, through which no gradient flows back",
    of_tensor(lambda value: emit("Identity", value, stop_gradient=1) if current() is not None else value),
)  # fmt: skip


def assign(variable: Any, value: Any) -> Tensor:
    """Give a parameter new elements and return it."""
    given = value if isinstance(value, Tensor) else Tensor(value)
    target = need_tensor(variable, "assign")
    if given.shape != target.shape and given.size != 1:
        raise ArgumentValueError(f"assign of shape {given.shape} to shape {target.shape}", "the shapes must be equal")
    return replaced(target, cast(given, target.type.dtype), "assign")


def assign_add(variable: Any, value: Any) -> Tensor:
    """Add to the elements of a parameter and return it."""
    return replaced(variable, add(variable, value), "assign_add")


def assign_sub(variable: Any, value: Any) -> Tensor:
    """Subtract from the elements of a parameter and return it."""
    return replaced(variable, sub(variable, value), "assign_sub")


class Print(Primitive):
    """Prints each operand on a line of its own, when the network runs."""

    def __call__(self, *operands: Any) -> None:
        """Print the operands."""
        print_(*operands)


def print_(*operands: Any) -> None:
    """Print each operand on a line of its own, when the network runs."""
    for operand in operands:
        print(repr(operand) if isinstance(operand, Tensor) else operand)
