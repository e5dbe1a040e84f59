"""The record of an elementwise operation: all that is known of it.

A formula is the name of a primitive, or a function of a library of primitives and of the operands, as in
``lambda m, x: x * m.tanh(x)``. Each library has the primitives for one kind of number: ``operations.arrays`` on
numpy arrays; ``floats``, ``integers`` and ``precise`` of ``backend.halide`` as code. So a formula is written once, and
neither numpy nor a compiler is imported to know it. ``m.zero(x)``, ``m.one(x)`` and ``m.literal(x, 0.5)`` are constants
of the type of ``x``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, Literal

from opbuild.platform.records import dataclass

Formula = str | Callable[..., Any]

Kinds = Literal["floats", "integers", "numbers", "any", "truth"]


class Cost(IntEnum):
    """The cost of an operation for one element."""

    CHEAP = 0
    """It may be computed again for every element that a small tensor is broadcast to."""
    ORDINARY = 1
    HEAVY = 2
    """A function such as exp."""


@dataclass(frozen=True)
class Onnx:
    """The ONNX operator that an operation is.

    Attributes:
        name: The operator's type.
        parameters: Attributes that are further operands, with their defaults; floats only.
        divisors: Those of them that may not be 0, of which compilers make an error.
        variadic: Whether it takes any number of operands, one after the other.
        when: An attribute, the value with which the operator is this operation, and the attribute's default (None: it
            has none). Another record without it is the operator otherwise.
    """

    name: str
    parameters: tuple[tuple[str, float], ...] = ()
    divisors: tuple[str, ...] = ()
    variadic: bool = False
    when: tuple[str, str | int, str | int | None] | None = None

    def fits(self, attrs: Mapping[str, Any]) -> bool:
        """Return whether an operator of this name with these attributes is the operation."""
        if self.when is None:
            return True
        attribute, value, default = self.when
        given = attrs.get(attribute, default)
        return bool((given.decode() if isinstance(given, bytes) else given) == value)


@dataclass(frozen=True)
class Operation:
    """An operation on one element of each operand.

    Attributes:
        name: As expressions have it.
        arity: The number of its operands; parameters of activations are operands too.
        formula: What it computes, of integers too: their library has primitives of their own.
        kinds: The types that have it: ``floats``, ``integers``, or ``numbers`` for both, computed in the type of the
            operands, float16 in float32 and rounded once; ``any``: operands of any one type, as they are; ``truth``:
            truth values, which any type has.
        onnx: The ONNX operator that it is, by its name alone if there is no more to say; None if there is none, or if
            ``graph.elementwise`` has a rule for it.
        numpy: The formula on numpy arrays, if another one.
        precise: The formula of a float32 in the implementation mode ``high_precision``, if another one: what is exact,
            or rounded once as it is, has none.
        predicate: Whether its result is a truth value.
        commutative: Whether expressions put its operands into one order.
        exact: Whether what it makes of numbers that have few digits has no more: it picks one, or cuts some off.
        conditions: How many of the first operands are conditions, whose type is not the result's.
        repeats: Whether the compiled formula mentions an operand more than once.
        float64: Whether there is code for float64, not only numpy.
        cost: For the compiler of graphs.
    """

    name: str
    arity: int
    formula: Formula
    kinds: Kinds = "floats"
    onnx: Onnx | str | None = None
    numpy: Formula | None = None
    precise: Formula | None = None
    predicate: bool = False
    commutative: bool = False
    exact: bool = False
    conditions: int = 0
    repeats: bool = True
    float64: bool = True
    cost: Cost = Cost.ORDINARY

    @property
    def op_type(self) -> str:
        """The name as an operator type: ``leaky_relu`` is ``LeakyRelu``."""
        return op_type(self.name)

    @property
    def as_onnx(self) -> Onnx | None:
        """The ONNX operator that it is."""
        return Onnx(self.onnx) if isinstance(self.onnx, str) else self.onnx

    @property
    def has_floats(self) -> bool:
        """Whether floats have it."""
        return self.kinds != "integers"

    @property
    def has_integers(self) -> bool:
        """Whether integers have it."""
        return self.kinds != "floats"


def op_type(name: str) -> str:
    """Return an operation's name as an operator type."""
    return "".join(part.capitalize() for part in name.split("_"))


def evaluate(formula: Formula, library: Any, operands: Any) -> Any:
    """Return the value of a formula with the primitives of a library."""
    return getattr(library, formula)(*operands) if isinstance(formula, str) else formula(library, *operands)
