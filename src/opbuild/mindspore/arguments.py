"""Argument checks: MindSpore raises ``TypeError`` and ``ValueError``, opbuild its own errors; these are both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, Signature, signature
from typing import Any

from opbuild.errors import ModelError, OpbuildError, OptionError, ShapeError
from opbuild.frontend.cell import location
from opbuild.platform.locks import lazy_property


class _LocatedError(OpbuildError):
    """An error whose message names the line of the program that asked for it."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(f"{message}{location()}", hint)


class ArgumentTypeError(_LocatedError, OptionError, TypeError):
    """An argument has a type that is not allowed."""


class ArgumentValueError(_LocatedError, OptionError, ValueError):
    """An argument has a value that is not allowed."""


class TensorShapeError(_LocatedError, ShapeError, ValueError):
    """The shapes of tensors do not fit an operator."""


class TensorTypeError(_LocatedError, ModelError, TypeError):
    """The element types of tensors do not fit an operator."""


def integers(value: Any, count: int, what: str) -> tuple[int, ...]:
    """Return ``count`` integers from one integer or a sequence of that length."""
    if isinstance(value, int) and not isinstance(value, bool):
        return (value,) * count
    if isinstance(value, Sequence) and len(value) == count and all(isinstance(item, int) for item in value):
        return tuple(value)
    raise ArgumentValueError(f"{what} is {value!r}", f"give an integer or a tuple of {count} integers")


def positive(value: Any, what: str, divisor: int = 1) -> int:
    """Return ``value`` if it is a positive integer, and a multiple of ``divisor``."""
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0 or value % divisor:
        hint = "give a positive integer" if divisor == 1 else f"give a positive multiple of {divisor}"
        raise ArgumentValueError(f"{what} is {value!r}", hint)
    return value


def natural(value: Any, what: str, least: int) -> int:
    """Return ``value`` if it is an integer of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ArgumentValueError(f"{what} is {value!r}", f"give an integer of at least {least}")
    return value


def allowed(is_allowed: Callable[..., Any], hint: str, says: str = "{what} is {0}",
            error: type[Exception] = ArgumentValueError) -> Callable[..., Any]:  # fmt: skip
    """Return a check that a value is allowed, or several together, as ``positive`` does.

    Its error ``says`` which they are (``{0}``, ``{1}``), of ``what`` and of which ``owner``.
    """

    def check(*given: Any) -> Any:
        *values, what = given
        if not is_allowed(*values):
            raise error(says.format(*values, what=what, owner=what.rpartition(" ")[2]), hint)
        return values[0]

    return check


def one_of(value: Any, allowed: Sequence[Any], what: str) -> Any:
    """Return ``value`` if it is one of ``allowed``."""
    if value not in allowed:
        raise ArgumentValueError(f"{what} is {value!r}", f"it must be one of {', '.join(map(repr, allowed))}")
    return value


def nchw(data_format: str) -> str:
    """Return ``data_format`` if it has the channels first."""
    if data_format not in ("NCHW", "NCDHW"):
        hint = "opbuild takes NCHW; it chooses its own layout inside"
        raise ArgumentValueError(f"data_format is {data_format!r}", hint)
    return data_format


def axis_in(axis: Any, rank: int, what: str) -> int:
    """Return ``axis`` counted from the front, for a tensor of ``rank`` dimensions."""
    if isinstance(axis, bool) or not isinstance(axis, int):
        raise ArgumentTypeError(f"the axis of {what} is {axis!r}", "give an integer")
    least = max(rank, 1)
    if not -least <= axis < least:
        raise ArgumentValueError(f"the axis of {what} is {axis}", f"it must be in [-{least}, {least})")
    return axis % least


def of_rank(value: Any, ranks: Sequence[int], what: str) -> None:
    """Refuse tensors of other numbers of dimensions."""
    if value.ndim not in ranks:
        raise TensorShapeError(f"{what} of shape {value.shape}", f"it needs {' or '.join(map(str, ranks))} dimensions")


def defaults_of(function: Callable[..., Any], listed: str) -> dict[str, Any]:
    """Return arguments of a function with their defaults; ``...`` for one that has none."""
    taken = signature(function).parameters if listed else {}
    found = {key: taken[key].default for key in listed.split()}
    return {key: ... if default is Parameter.empty else default for key, default in found.items()}


def keyword_only(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the keyword-only arguments of a function with their defaults; ``...`` for one that has none."""
    taken = signature(function).parameters.values()
    return defaults_of(function, " ".join(each.name for each in taken if each.kind is Parameter.KEYWORD_ONLY))


class Attributes:
    """The arguments of an operator's or layer's constructor: names in order with their defaults.

    Args:
        owner: The class, for messages.
        defaults: Its attributes; ``...`` for one that must be given.
    """

    def __init__(self, owner: str, defaults: Mapping[str, Any]) -> None:
        self.owner = owner
        self.defaults = defaults

    def __str__(self) -> str:
        listed = (name if default is ... else f"{name}={default!r}" for name, default in self.defaults.items())
        return f"({', '.join(listed)})"

    @lazy_property
    def signature(self) -> Signature:
        """The attributes as Python's parameters."""
        kind = Parameter.POSITIONAL_OR_KEYWORD
        return Signature(
            [Parameter(name, kind, default=Parameter.empty if default is ... else default)
             for name, default in self.defaults.items()]
        )  # fmt: skip

    @lazy_property
    def method(self) -> Signature:
        """The parameters of a method that takes the attributes."""
        own = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
        return Signature([own, *self.signature.parameters.values()])

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return all attributes by name; an ``ArgumentTypeError`` says which arguments do not fit."""
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise ArgumentTypeError(f"{self.owner}(): {error}", f"it takes {self}") from None
        bound.apply_defaults()
        return bound.arguments
