"""StepBuilder: the means by which a rule writes the operators that compute one of ATen.

Operands meet in an element type as torch has it: dimensions beat scalars, and categories beat widths.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, NoReturn, Protocol, TypeVar, cast

import numpy as np

from opbuild.dtypes import numpy_dtype
from opbuild.errors import UnsupportedOperatorError
from opbuild.frontend.torch.program import AtenStep
from opbuild.graph import graph_builder
from opbuild.graph.extents import is_open
from opbuild.graph.graph_builder import GraphBuilder, Value
from opbuild.platform.registry import Registry

__all__ = ["StepBuilder", "StepScope", "Value"]


class StepScope(graph_builder.Scope, Protocol):
    """The graph that is written, as far as a ``StepBuilder`` needs it."""

    def is_read(self, name: str, index: int) -> bool:
        """Return whether something takes one of a step's results."""


class StepBuilder(GraphBuilder):
    """Writes what computes one step."""

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
