"""Binding a program of ATen's operators to sizes: each step's rule writes the operators that compute it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any

import numpy as np

from opbuild.errors import ModelError, UnsupportedOperatorError
from opbuild.frontend.binding import NodeBinder
from opbuild.frontend.torch.program import AtenProgram, AtenStep, Input, Ref
from opbuild.frontend.torch.writing import FUNCTIONS, StepBuilder, Value, rule_of
from opbuild.graph.extents import is_open
from opbuild.graph.graph_builder import GraphBuilder
from opbuild.graph.passes.fold import Evaluate
from opbuild.graph.types import Array, Graph, TensorType
from opbuild.kernel.opdesc import FREE

OPSET = 21
"""The version of ONNX's operator set in which rules write."""

Shapes = Sequence[tuple[int, ...]]


def build_graph(program: AtenProgram, shapes: Shapes, frozen: Sequence[Array], evaluate: Evaluate) -> Graph:
    """Return the graph of a program.

    Args:
        program: The program.
        shapes: The shapes of what it is given (``AtenProgram.given``), as ``AtenProgram.declared`` orders their
            dimensions; extents may be open.
        frozen: The values of its frozen inputs (``AtenProgram.frozen``), in torch's order of dimensions.
        evaluate: Evaluates a node whose inputs are known.

    Raises:
        UnsupportedOperatorError: If a step has no rule, or none for this form of it; its ``node`` names the step.
        ModelError: If it does not fit the sizes.
    """
    binder = ProgramBinder(program, evaluate)
    binder.begin_with(shapes, frozen)
    return binder.graph()


def output_sizes(program: AtenProgram, shapes: Shapes, frozen: Sequence[Array], evaluate: Evaluate) -> list[int]:
    """Return the integers among a program's outputs; arguments and errors as of ``build_graph``."""
    binder = ProgramBinder(program, evaluate)
    binder.begin_with(shapes, frozen)
    binder.graph()
    return binder.sizes()


class ProgramBinder(NodeBinder):
    """Builds the graph of one program."""

    def __init__(self, program: AtenProgram, evaluate: Evaluate) -> None:
        super().__init__(OPSET, OPSET, evaluate)
        self._program = program
        self._values: dict[str, Any] = {}
        self._inputs: dict[str, TensorType] = {}
        elements = [each.args for each in program.steps if each.target == "sym.getitem"]
        self._read = {(source.name, index) for source, index in elements if isinstance(source, Ref)}

    def is_read(self, name: str, index: int) -> bool:
        """Return whether something takes one of a step's results."""
        return (name, index) in self._read

    # The program

    def begin_with(self, shapes: Shapes, frozen: Sequence[Array]) -> None:
        """Declare the inputs of the program."""
        program = self._program
        for index, shape in zip(program.given, shapes, strict=True):
            each = program.inputs[index]
            self._declare(each, TensorType(program.declared(index).dtype, tuple(shape)))
        for index, array in zip(program.frozen, frozen, strict=True):
            name = program.inputs[index].name
            self._constants[name], self._types[name] = array, TensorType(array.dtype.name, array.shape)
            self._values[name] = Value(name, self._types[name])
        for each in program.inputs:
            if each.kind == "size" and each.place is not None:
                self._values[each.name] = self._values[program.inputs[each.place[0]].name].shape[each.place[1]]

    def _declare(self, given: Input, kind: TensorType) -> None:
        self._types[given.name] = self._inputs[given.name] = kind
        value = Value(given.name, kind)
        if given.kind == "size":
            self._values[given.name] = kind.shape[0] - kind.shape[1]
            return
        back = tuple(int(axis) for axis in np.argsort(given.order))
        self._values[given.name] = GraphBuilder(f"{given.name}/order", self).transpose(value, back)

    def graph(self) -> Graph:
        """Take all steps and return the graph.

        Raises:
            ModelError: As ``build_graph``.
        """
        for step in self._program.steps:
            try:
                self._values[step.name] = self._step(step)
            except ModelError as error:
                error.node = error.node or step.name
                raise
        names = []
        for number, output in enumerate(self._program.outputs):
            if output.is_size:
                continue
            of = GraphBuilder(f"y{number}", self)
            value = of.transpose(self._values[output.name], output.order)
            is_own = value in self._producers and value not in names
            names.append((value if is_own else of("Identity", value)).name)
        program = self._program
        updates = tuple(
            (program.tensors.index(output), program.given.index(given)) for output, given in program.updates
        )
        return self.segment(program.name, tuple(self._inputs), tuple(names)).with_(updates=updates)

    def sizes(self) -> list[int]:
        """Return the integers among the outputs."""
        return [int(self._values[each.name]) for each in self._program.outputs if each.is_size]

    def _step(self, step: AtenStep) -> Any:
        args, kwargs = self._filled(step.args), self._filled(step.kwargs)
        if step.target == "sym.getitem":
            results, index = args
            if results[index] is None:
                problem = f"result {index} is not computed"
                raise UnsupportedOperatorError(problem, "torch computes it").at(step.args[0].name)
            return results[index]
        if step.target in FUNCTIONS:
            return FUNCTIONS[step.target](*args, **kwargs)
        rule = rule_of(step.target)
        if rule is None:
            raise UnsupportedOperatorError(f"{step.target}: there is no rule for it", "torch computes it")
        found = _applied(rule, step, StepBuilder(step, self), args, kwargs)
        _check(step, found)
        return found

    def _filled(self, value: Any) -> Any:
        if isinstance(value, Ref):
            return self._values[value.name]
        if isinstance(value, Mapping):
            return {name: self._filled(each) for name, each in value.items()}
        return type(value)(self._filled(each) for each in value) if isinstance(value, (list, tuple)) else value


def _applied(
    rule: Callable[..., Any], step: AtenStep, of: StepBuilder, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """Return the result of a rule."""
    try:
        call = signature(rule).bind(of, *args, **kwargs)
    except TypeError as error:
        raise UnsupportedOperatorError(f"{step.target}: its rule has {error}", "torch computes it") from error
    return rule(*call.args, **call.kwargs)


def _check(step: AtenStep, found: Any) -> None:
    """Check a rule's results against the types that torch states."""
    results = found if isinstance(found, (tuple, list)) else (found,)
    for value, kind in zip(results, step.types, strict=False):
        if value is None or kind is None:
            continue
        fits = len(value.shape) == len(kind.shape) and all(
            wanted == FREE or is_open([extent]) or extent == wanted
            for extent, wanted in zip(value.shape, kind.shape, strict=True)
        )
        if value.dtype != kind.dtype or not fits:
            raise UnsupportedOperatorError(
                f"{step.target}: its rule gives {value.type}, torch {kind}", "torch computes it"
            )
