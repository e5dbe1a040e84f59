"""Writes what torch hands over of a step of training, a forward and a backward pass, by the rules of its front end.

What AOTAutograd writes and what its partitioner keeps is written by hand here, so neither torch nor weights are needed.
The operators are ATen's, by the names of their overloads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from opbuild.backend.evaluate import evaluate
from opbuild.frontend.torch.builder import ProgramBinder, StepBuilder, Value, rule_of
from opbuild.frontend.torch.program import AtenProgram, AtenStep
from opbuild.graph.types import Graph, TensorType

Back = Callable[[Value], None]
"""Writes what flows back through a layer, given the gradient of its result."""


class Pass(ProgramBinder):
    """One graph, to which operators are written as they are called."""

    def __init__(self) -> None:
        super().__init__(AtenProgram("training", (), (), ()), evaluate)
        self._outputs: list[str] = []
        self._count = 0

    def is_read(self, name: str, index: int) -> bool:
        """Return that every result is taken: a step of training keeps them."""
        return True

    def __call__(self, target: str, *args: Any, dtype: str = "float32", **kwargs: Any) -> Any:
        """Write an operator of ATen; return its result, or all of several ones.

        Args:
            target: The overload, without ``aten.``.
            args: What it is called with.
            dtype: The element type of its first result.
            kwargs: More of it.
        """
        target = target if target.startswith("prims.") else f"aten.{target}"
        rule = rule_of(target)
        if rule is None:
            raise LookupError(f"there is no rule for {target}")
        return rule(self._writing(target, dtype), *args, **kwargs)

    def input(self, shape: Sequence[int], dtype: str = "float32", order: Sequence[int] = ()) -> Value:
        """Return a tensor that is given; ``order`` are its dimensions from the outermost in memory to the innermost."""
        order = tuple(order) or tuple(range(len(shape)))
        name = self.fresh("given")
        self._types[name] = self._inputs[name] = TensorType(dtype, tuple(shape[axis] for axis in order))
        back = tuple(int(axis) for axis in np.argsort(order))
        return self._writing("", dtype).transpose(Value(name, self._types[name]), back)

    def output(self, value: Value, order: Sequence[int] = ()) -> None:
        """Give a value; ``order`` as of ``input``."""
        of = self._writing("", value.dtype)
        self._outputs.append(of("Identity", of.transpose(value, tuple(order) or range(len(value.shape)))).name)

    def written(self) -> Graph:
        """Return the graph."""
        return self.segment("training", tuple(self._inputs), tuple(self._outputs))

    def _writing(self, target: str, dtype: str) -> StepBuilder:
        self._count += 1
        return StepBuilder(AtenStep(target, f"step_{self._count}", (), {}, (TensorType(dtype, ()),)), self)


class Tape:
    """A forward and a backward pass that are written together, layer by layer.

    Attributes:
        forward: The one.
        backward: The other, empty until ``passes`` is called.
    """

    def __init__(self) -> None:
        self.forward, self.backward = Pass(), Pass()
        self._layers: list[tuple[str, Back]] = []
        self._flows: dict[str, Value] = {}
        self._kept: dict[str, Value] = {}
        self._trained: set[str] = set()

    def parameter(self, *shape: int) -> Value:
        """Return a tensor that is given and trained."""
        value = self.forward.input(shape)
        self._trained.add(value.name)
        return value

    def layer(self, result: Value, back: Back) -> Value:
        """Add a layer: its result, which is returned, and what flows back through it."""
        self._layers.append((result.name, back))
        return result

    def needs(self, value: Value) -> bool:
        """Return whether something flows back into a value: into results of layers and what is trained."""
        return value.name in self._trained or any(name == value.name for name, _ in self._layers)

    def flow(self, value: Value, gradient: Value) -> None:
        """Add to what flows back into a value."""
        if not self.needs(value):
            return
        before = self._flows.get(value.name)
        self._flows[value.name] = gradient if before is None else self.backward("add.Tensor", before, gradient)

    def kept(self, value: Value, order: Sequence[int] = ()) -> Value:
        """Return a value of the forward pass in the backward one; ``order`` as of ``Pass.input``."""
        if value.name not in self._kept:
            if self.forward.producer(value.name) is not None:
                self.forward.output(value, order)
            self._kept[value.name] = self.backward.input(value.shape, value.dtype, order)
        return self._kept[value.name]

    def passes(self) -> list[Graph]:
        """Return both passes; the last layer is the loss."""
        self._flows[self._layers[-1][0]] = self.backward.input(())
        for name, back in reversed(self._layers):
            if name in self._flows:
                back(self._flows[name])
        for name in self._trained:
            if name in self._flows:
                self.backward.output(self._flows[name])
        return [self.forward.written(), self.backward.written()]
