"""Declares functions in a row: one expression of others, or another one under a name of MindSpore's of its own.

``hypot = formula("hypot", "what it returns", lambda input, other: ...)``: the lambda has the arguments with MindSpore's
names and defaults. Around it stands what the first arguments must be: ``of_tensor``, ``of_floats``, or ``on_data`` and
``in_floats`` of ``host`` for what numpy computes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from inspect import signature
from typing import Any, TypeVar

from opbuild.frontend.cell import location
from opbuild.mindspore.arguments import ArgumentTypeError
from opbuild.mindspore.execution import cast
from opbuild.mindspore.tensor import Tensor

Result = TypeVar("Result")
Function = TypeVar("Function", bound=Callable[..., object])


def formula(name: str, what: str, function: Callable[..., Result]) -> Callable[..., Result]:
    """Return a function under its name, with a description of its result as its documentation."""
    return named(function, name, f"Return {what}.")


def named(function: Function, name: str, doc: str) -> Function:
    """Return a function under its name, which also stands in the messages of wrong arguments."""
    function.__doc__ = doc
    inner: Any = function
    while inner is not None:
        inner.__name__ = inner.__qualname__ = name
        inner = getattr(inner, "__wrapped__", None)
    return function


def need_tensor(value: Any, name: str) -> Tensor:
    """Return ``value`` if it is a tensor.

    Raises:
        ArgumentTypeError: If it is not.
    """
    if not isinstance(value, Tensor):
        raise ArgumentTypeError(f"{name} was given a {type(value).__name__}{location()}", "give a Tensor")
    return value


def floating(value: Any, name: str) -> Tensor:
    """Return the tensor, converted to float32 if it holds integers or truth values."""
    tensor = need_tensor(value, name)
    return tensor if tensor.is_floating_point() else cast(tensor, "float32")


def of_tensor(function: Callable[..., Result]) -> Callable[..., Result]:
    """Return a function whose first argument must be a tensor."""
    return _taking(need_tensor, 1, function)


def of_tensors(function: Callable[..., Result]) -> Callable[..., Result]:
    """Return a function whose first two arguments must be tensors."""
    return _taking(need_tensor, 2, function)


def of_floats(function: Callable[..., Result]) -> Callable[..., Result]:
    """Return a function whose first argument must be a tensor, which it gets in floats."""
    return _taking(floating, 1, function)


def _taking(taken: Callable[[Any, str], Tensor], count: int, function: Callable[..., Result]) -> Callable[..., Result]:
    first = function.__code__.co_varnames[:count]

    @wraps(function)
    def checked(*args: Any, **given: Any) -> Result:
        name = checked.__name__
        given.update({key: taken(given[key], name) for key in first if key in given})
        return function(*(taken(each, name) for each in args[:count]), *args[count:], **given)

    return checked


def spelled(function: Callable[..., Result], name: str, doc: str = "", fixed: Mapping[str, object] | None = None, /,
            **arguments: str) -> Callable[..., Result]:  # fmt: skip
    """Return a function under another name.

    Args:
        function: What it does.
        name: Its name.
        doc: What ``help`` says of it; by default what it says of the function.
        fixed: Arguments that it always has.
        arguments: Names of its arguments, and what ``function`` calls them.
    """
    chosen = dict(fixed or {})
    original = signature(function)
    called = {theirs: own for own, theirs in arguments.items()}
    parameters = [each.replace(name=called.get(each.name, each.name))
                  for each in original.parameters.values() if each.name not in chosen]  # fmt: skip
    shown = original.replace(parameters=parameters)

    def other(*args: object, **given: object) -> Result:
        if chosen:  # what is behind a fixed argument has another place
            args, given = (), shown.bind(*args, **given).arguments
        return function(*args, **{arguments.get(key, key): value for key, value in given.items()}, **chosen)

    other.__name__ = other.__qualname__ = name
    what = (function.__doc__ or "").partition("\n")[0].removeprefix("Return").lstrip(", ")
    for own, theirs in arguments.items():
        what = what.replace(f"``{theirs}``", f"``{own}``")
    other.__doc__ = doc or f"Return ``{function.__name__}({', '.join(each.name for each in parameters)})``: {what}"
    other.__signature__ = shown  # type: ignore[attr-defined]
    return other
