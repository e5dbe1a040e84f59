"""``Print``: the values that a network has when it runs."""

from __future__ import annotations

from typing import Any

from opbuild.mindspore.ops.primitive import Primitive
from opbuild.mindspore.tensor import Tensor

__all__ = ["Print", "print_"]


class Print(Primitive):
    """Prints each operand on a line of its own, when the network runs."""

    def __call__(self, *operands: Any) -> None:
        """Print the operands."""
        print_(*operands)


def print_(*operands: Any) -> None:
    """Print each operand on a line of its own, when the network runs."""
    for operand in operands:
        print(repr(operand) if isinstance(operand, Tensor) else operand)
