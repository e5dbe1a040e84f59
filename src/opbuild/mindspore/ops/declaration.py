"""Declares functions that are another one under a name of MindSpore's of its own."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import TypeVar

Result = TypeVar("Result")
Function = TypeVar("Function", bound=Callable[..., object])


def named(function: Function, name: str, doc: str) -> Function:
    """Return a function that was defined for several names, under one of them."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


def spelled(function: Callable[..., Result], name: str, **arguments: str) -> Callable[..., Result]:
    """Return a function under another name.

    Args:
        function: What it does.
        name: Its name.
        arguments: Names of its arguments, and what ``function`` calls them.
    """

    def other(*args: object, **named: object) -> Result:
        return function(*args, **{arguments.get(key, key): value for key, value in named.items()})

    original = signature(function)
    called = {theirs: own for own, theirs in arguments.items()}
    parameters = [each.replace(name=called.get(each.name, each.name)) for each in original.parameters.values()]
    other.__name__ = other.__qualname__ = name
    what = (function.__doc__ or "").partition("\n")[0].removeprefix("Return").lstrip(", ")
    for own, theirs in arguments.items():
        what = what.replace(f"``{theirs}``", f"``{own}``")
    other.__doc__ = f"Return ``{function.__name__}({', '.join(each.name for each in parameters)})``: {what}"
    other.__signature__ = original.replace(parameters=parameters)  # type: ignore[attr-defined]
    return other
