"""Binding a program of ATen's operators to sizes: each step's rule writes the operators that compute it.

Rules write with a ``StepBuilder``. Operands meet in an element type as torch has it: dimensions beat scalars, and
categories beat widths.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from math import prod
from typing import Any, NoReturn, Protocol, TypeVar, cast

import numpy as np

from opbuild.dtypes import numpy_dtype
from opbuild.errors import ModelError, UnsupportedOperatorError
from opbuild.frontend.binding import NodeBinder
from opbuild.frontend.torch.program import AtenProgram, AtenStep, Input, Ref
from opbuild.graph import graph_builder
from opbuild.graph.extents import is_open
from opbuild.graph.graph_builder import GraphBuilder, Value
from opbuild.graph.passes.fold import Evaluate
from opbuild.graph.types import Array, Graph, TensorType
from opbuild.kernel.opdesc import FREE
from opbuild.platform.registry import Registry

__all__ = ["StepBuilder", "StepScope", "Value"]


class StepScope(graph_builder.Scope, Protocol):
    """The graph that is written, as far as a ``StepBuilder`` needs it."""

    def is_read(self, name: str, index: int) -> bool:
        """Return whether something takes one of a step's results."""


class StepBuilder(GraphBuilder):
    """Writes the nodes that compute one step."""

    scope: StepScope

    def __init__(self, step: AtenStep, scope: StepScope) -> None:
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

    def refuse_if(self, condition: Any, why: str) -> None:
        """Refuse a form of the operator under a condition; see ``refuse``."""
        if condition:
            self.refuse(why)

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


_CATEGORIES = {bool: 0, int: 1, float: 2}
_DEFAULTS = ("bool", "int64", "float32")


def promoted(operands: Sequence[Value | bool | int | float | Any]) -> str:
    """Return the element type of an operation on tensors and Python's numbers.

    Tensors with dimensions decide; those without, and then Python's numbers, only if they are of a higher category: a
    truth value, an integer, a floating number.
    """
    with_dims = [each.dtype for each in operands if isinstance(each, Value) and each.shape]
    without = [each.dtype for each in operands if isinstance(each, Value) and not each.shape]
    others = [type(each) for each in operands if not isinstance(each, Value)]
    numbers = [_DEFAULTS[_CATEGORIES.get(kind, 1)] for kind in others]  # open extents are integers
    found = ""
    for group in (with_dims, without, numbers):
        kind = _joined(group)
        if kind and (not found or category(kind) > category(found)):
            found = kind
    return found


def category(dtype: str) -> int:
    """Return 0 for truth values, 1 for integers, 2 for floating numbers."""
    if dtype == "bool":
        return 0
    return 1 if dtype.lstrip("u").startswith("int") else 2


def _joined(dtypes: Sequence[str]) -> str:
    """Return the type that holds several; a type of 16 bits beside the other one gives float32."""
    found = ""
    for dtype in dtypes:
        if not found or found == dtype:
            found = dtype
        elif category(found) != category(dtype):
            found = max(found, dtype, key=category)
        elif {found, dtype} == {"float16", "bfloat16"}:
            found = "float32"
        elif category(found) == 2:
            found = max(found, dtype, key=lambda each: 16 if each == "bfloat16" else np.dtype(each).itemsize * 8)
        else:
            found = str(np.promote_types(found, dtype))
    return found


RULES: Registry[Callable[..., Any]] = Registry(
    "rule",
    f"{__package__}.rules",
    others=("elementwise", "matrix", "movement", "reduction", "window", "backward"),
)
"""Rules by namespace and overload, such as ``add.Tensor`` of ``aten``. A rule gets a ``StepBuilder`` and the operator's
arguments: tensors as ``Value``, element types by numpy's names, None for devices, layouts and memory formats. It
returns a ``Value``, or a tuple of those and of None for results that are not computed."""

R = TypeVar("R", bound=Callable[..., Any])


def rule(*overloads: str, domain: str = "aten") -> Callable[[R], R]:
    """Register a rule for some overloads."""
    return cast("Callable[[R], R]", RULES.register(*overloads, domain=domain))


def rule_of(target: str) -> Callable[..., Any] | None:
    """Return the rule of an overload with its namespace, such as ``aten.add.Tensor``; None if there is none."""
    domain, _, overload = target.partition(".")
    return RULES.get((domain, overload))


_BITS = 64
"""Of the integers that sizes lead to: a product of products, or a power, would fill the memory."""


def _of_numbers(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that takes no texts and lists, which some operators of Python's repeat, and stays small."""

    def call(*args: Any) -> Any:
        if any(isinstance(each, (str, bytes, list, tuple, dict)) for each in args):
            raise TypeError(f"{function.__name__} is of numbers")
        found = function(*args)
        if isinstance(found, int) and found.bit_length() > _BITS:
            raise OverflowError(f"a size is beyond {_BITS} bits")
        return found

    return call


def _power(base: Any, exponent: Any) -> Any:
    if isinstance(base, int) and isinstance(exponent, int) and exponent * base.bit_length() > 2 * _BITS:
        raise OverflowError(f"a size is beyond {_BITS} bits")
    return base**exponent


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    **{
        f"sym.{name}": _of_numbers(getattr(operator, name))
        for name in ("add", "sub", "mul", "floordiv", "mod", "neg", "eq", "ne", "lt", "le", "gt", "ge")
    },
    "sym.pow": _of_numbers(_power),
    "sym.sym_max": _of_numbers(max),
    "sym.sym_min": _of_numbers(min),
    "sym.sym_not": operator.not_,
    "sym.sym_sum": sum,
    "aten.sym_size.int": lambda value, axis: value.shape[axis],
    "aten.sym_numel.default": lambda value: prod(value.shape),
}
"""What is evaluated while a program is bound to sizes, by the step's target."""


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
