"""StepBuilder: what a rule is given to write the operators that compute one of ATen."""

from __future__ import annotations

from typing import Any, NoReturn, Protocol

import numpy as np

from opbuild.dtypes import numpy_dtype
from opbuild.errors import UnsupportedOperatorError
from opbuild.frontend.torch.program import Step
from opbuild.graph import graph_builder
from opbuild.graph.extents import is_open
from opbuild.graph.graph_builder import GraphBuilder, Value

__all__ = ["Scope", "StepBuilder", "Value"]


class Scope(graph_builder.Scope, Protocol):
    """The graph that is written, as far as a ``StepBuilder`` needs it."""

    def is_read(self, name: str, index: int) -> bool:
        """Return whether something takes one of a step's results."""


class StepBuilder(GraphBuilder):
    """Writes what computes one step.

    Args:
        step: The step; operators are named after it.
        scope: The graph.
    """

    scope: Scope

    def __init__(self, step: Step, scope: Scope) -> None:
        super().__init__(step.name, scope)
        self.step = step

    @property
    def dtype(self) -> str:
        """The element type of the step's first result, as torch has it."""
        first = self.step.types[0]
        if first is None:
            self.refuse("its result is no tensor")
        return first.dtype

    def is_read(self, index: int) -> bool:
        """Return whether something takes one of the operator's several results."""
        return self.scope.is_read(self.step.name, index)

    def refuse(self, why: str) -> NoReturn:
        """Say that this form of the operator has no rule: it is left to torch.

        Raises:
            UnsupportedOperatorError: Always.
        """
        raise UnsupportedOperatorError(f"{self.step.target}: {why}", "torch computes it")

    def operand(self, value: Any, dtype: str) -> Value:
        """Return a tensor converted to an element type, or a number as a constant of it; integers wrap around."""
        if isinstance(value, Value):
            return self.cast(value, dtype)
        if is_open([value]):
            return self.cast(self("Squeeze", self.ints(value), self.ints(0)), dtype)
        if isinstance(value, int) and np.issubdtype(kind := numpy_dtype(dtype), np.integer):
            return self.constant(np.asarray(value % 2 ** (8 * kind.itemsize), np.uint64).astype(kind))
        return self.constant(value, dtype)

    def axis(self, axis: int, rank: int) -> int:
        """Return a dimension counted from the front; a tensor without dimensions has one for this."""
        return axis % max(rank, 1)
