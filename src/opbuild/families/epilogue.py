"""Epilogue: the expression that a convolution applies to its accumulator before storing it, in the form of keys."""

from __future__ import annotations

from typing import Any, Literal

from opbuild.families.blocked import BLOCK, BLOCKED_DIMS, CHANNEL_DIMS
from opbuild.kernel.opdesc import HIGH_PERFORMANCE, Dim, Operand
from opbuild.operations.expression import ACC, Expression, operations
from opbuild.platform.records import dataclass

Kind = Literal["residual", "channel", "scalar"]


@dataclass(frozen=True)
class Epilogue:
    """An epilogue in canonical form.

    Attributes:
        expression: Over the accumulator and operands numbered in order of appearance.
        operands: Each operand's kind and the name of its value.
        impl_mode: The implementation mode of the kernel that applies it.
        dtypes: Each operand's element type; empty if all are float32.
    """

    expression: Expression = ACC
    operands: tuple[tuple[Kind, str], ...] = ()
    impl_mode: str = HIGH_PERFORMANCE
    dtypes: tuple[str, ...] = ()

    @property
    def op_types(self) -> tuple[str, ...]:
        """The operator types that the epilogue adds to its kernel."""
        return operations(self.expression)

    @property
    def attrs(self) -> dict[str, Any]:
        """The attributes of the epilogue in the descriptor."""
        return {"epilogue": self.expression}

    @property
    def has_scalars_only(self) -> bool:
        """Whether no operand depends on the channel."""
        return all(kind == "scalar" for kind, _ in self.operands)

    def inputs(self, step: int = 1) -> tuple[Operand, ...]:
        """Return the descriptor's operands; ``step`` is the distance between the positions of a row that are read."""
        dtypes = self.dtypes or ("float32",) * len(self.operands)
        return tuple(
            _operand(f"e{index}", kind, dtype, step)
            for index, ((kind, _), dtype) in enumerate(zip(self.operands, dtypes, strict=True))
        )


def _operand(name: str, kind: Kind, dtype: str, step: int) -> Operand:
    if kind == "residual":
        return Operand(name, dtype, (BLOCKED_DIMS[0], Dim(stride=BLOCK * step), *BLOCKED_DIMS[2:]), "NC1HWC0")
    return Operand(name, dtype, CHANNEL_DIMS if kind == "channel" else (Dim(1, 1),))
