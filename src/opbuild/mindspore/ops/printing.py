"""``Print``: the values that a network has when it runs."""

from __future__ import annotations

from typing import Any

from opbuild.mindspore.ops.primitive import Primitive
from opbuild.mindspore.tensor import Tensor


class Print(Primitive):
    """Prints each operand on a line of its own, when the network runs; returns the number of operands."""

    def __call__(self, *operands: Any) -> int:
        """Print the operands."""
        for operand in operands:
            print(repr(operand) if isinstance(operand, Tensor) else operand)
        return len(operands)
