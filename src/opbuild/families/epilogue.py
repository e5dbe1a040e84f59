"""Epilogue: what a convolution applies to its accumulator before it stores it, in the one form that keys use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from opbuild.families.blocked import BLOCK, BLOCKED_DIMS, CHANNEL_DIMS
from opbuild.kernel.opdesc import HIGH_PERFORMANCE, Dim, Operand
from opbuild.operations.expression import ACC, Expression, operations

Kind = Literal["residual", "channel", "scalar"]


@dataclass(frozen=True)
class Epilogue:
    """An epilogue in canonical form.

    Attributes:
        expression: Over the accumulator and operands numbered in order of appearance.
        operands: Each operand's kind and the name of its value.
        impl_mode: The implementation mode of the kernel that applies it.
    """

    expression: Expression = ACC
    operands: tuple[tuple[Kind, str], ...] = ()
    impl_mode: str = HIGH_PERFORMANCE

    @property
    def op_types(self) -> tuple[str, ...]:
        """The operator types that the epilogue adds to its kernel."""
        return operations(self.expression)

    @property
    def attrs(self) -> dict[str, Any]:
        """What the descriptor says of the epilogue."""
        return {"epilogue": self.expression}

    @property
    def has_scalars_only(self) -> bool:
        """Whether no operand depends on the channel."""
        return all(kind == "scalar" for kind, _ in self.operands)

    def inputs(self, step: int = 1) -> tuple[Operand, ...]:
        """Return the descriptor's operands; ``step`` is the distance between the positions of a row that are read."""
        return tuple(_operand(f"e{index}", kind, step) for index, (kind, _) in enumerate(self.operands))


def _operand(name: str, kind: Kind, step: int) -> Operand:
    if kind == "residual":
        return Operand(name, "float32", (BLOCKED_DIMS[0], Dim(stride=BLOCK * step), *BLOCKED_DIMS[2:]), "NC1HWC0")
    return Operand(name, "float32", CHANNEL_DIMS if kind == "channel" else (Dim(1, 1),))
