"""Functions of functions: applied to nests of tensors, chosen by the types of their arguments, partly called."""

from __future__ import annotations

import functools
import numbers
from collections.abc import Callable
from typing import Any

from opbuild.mindspore.arguments import ArgumentTypeError, ArgumentValueError
from opbuild.mindspore.dtype import Type
from opbuild.mindspore.ops.primitive import Primitive
from opbuild.mindspore.tensor import Tensor

__all__ = ["HyperMap", "Map", "MultitypeFuncGraph", "Partial", "partial"]

_KINDS: dict[str, Callable[[Any], bool]] = {
    "tensor": lambda value: isinstance(value, Tensor),
    "bool": lambda value: isinstance(value, bool),
    "number": lambda value: isinstance(value, numbers.Number) and not isinstance(value, bool),
    "int": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "float": lambda value: isinstance(value, float),
    "string": lambda value: isinstance(value, str),
    "none": lambda value: value is None,
    "typenone": lambda value: value is None,
    "tuple": lambda value: isinstance(value, tuple),
    "list": lambda value: isinstance(value, list),
    "dictionary": lambda value: isinstance(value, dict),
    "function": callable,
    "type": lambda value: isinstance(value, Type),
}
"""Types as ``MultitypeFuncGraph.register`` is given them, in lower case."""


class MultitypeFuncGraph:
    """One function for each list of types of the arguments; programs register them.

    Args:
        name: Its name.
        read_value: Kept for programs that give it.
    """

    def __init__(self, name: str, read_value: bool = False) -> None:
        self.name = name
        self._entries: list[tuple[tuple[str, ...], Callable[..., Any]]] = []

    def register(self, *type_names: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Return a decorator that makes a function the one for these types: ``Tensor``, ``Number``, ``Tuple``, ...

        Raises:
            ArgumentValueError: If a type is unknown.
        """
        kinds = tuple(str(getattr(name, "__name__", name)).lower().removeprefix("mindspore.") for name in type_names)
        for kind in kinds:
            if kind not in _KINDS:
                raise ArgumentValueError(
                    f"{self.name} registers a function for {kind!r}", f"there are {sorted(_KINDS)}"
                )

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            self._entries.append((kinds, function))
            return function

        return register

    def __call__(self, *args: Any) -> Any:
        """Call the first function that is registered for the types of the arguments.

        Raises:
            ArgumentTypeError: If there is none.
        """
        for kinds, function in self._entries:
            if len(kinds) == len(args) and all(_KINDS[kind](arg) for kind, arg in zip(kinds, args, strict=True)):
                return function(*args)
        given = ", ".join(type(arg).__name__ for arg in args)
        raise ArgumentTypeError(f"{self.name} has no function for ({given})", "register one")


class _Mapping:
    """Applies a function to the items of sequences, those of one place together.

    Args:
        ops: The function; else it is the first argument of a call.
        reverse: Whether the last ones come first.
    """

    _goes_deep = False

    def __init__(self, ops: Callable[..., Any] | None = None, reverse: bool = False) -> None:
        self.ops, self.reverse = ops, reverse

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        """Return the results.

        Raises:
            ArgumentValueError: If the sequences have different lengths.
        """
        function, given = (args[0], args[1:]) if self.ops is None else (self.ops, args)
        result: tuple[Any, ...] = self._applied(function, given)
        return result

    def _applied(self, function: Callable[..., Any], given: tuple[Any, ...]) -> Any:
        lengths = {len(each) for each in given}
        if len(lengths) != 1:
            raise ArgumentValueError(f"{type(self).__name__} was given sequences of {sorted(lengths)} items",
                                     "they must be equally long")  # fmt: skip
        places = range(lengths.pop())
        found = {place: self._one(function, [each[place] for each in given])
                 for place in (reversed(places) if self.reverse else places)}  # fmt: skip
        return tuple(found[place] for place in places)

    def _one(self, function: Callable[..., Any], items: list[Any]) -> Any:
        if self._goes_deep and all(isinstance(item, (tuple, list)) for item in items):
            return self._applied(function, tuple(items))
        return function(*items)


class Map(_Mapping):
    """Applies a function to the items of sequences."""


class HyperMap(_Mapping):
    """Applies a function to the items of sequences, and of sequences in them."""

    _goes_deep = True


def partial(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[..., Any]:
    """Return the function with its first arguments given."""
    return functools.partial(function, *args, **kwargs)


class Partial(Primitive):
    """Gives a function its first arguments."""

    def __call__(self, *operands: Any, **kwargs: Any) -> Any:
        """Return the function, the first operand, with the others given."""
        return partial(*operands, **kwargs)
