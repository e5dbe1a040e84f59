"""Declares functions that are another one under a name of MindSpore's of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature
from typing import TypeVar

Result = TypeVar("Result")
Function = TypeVar("Function", bound=Callable[..., object])


def named(function: Function, name: str, doc: str) -> Function:
    """Return a function that was defined for several names, under one of them."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


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
