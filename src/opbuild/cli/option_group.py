"""Several options of a command as one decorator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def option_group(*options: Callable[[Any], Any]) -> Callable[[F], F]:
    """Return a decorator that adds options; ``--help`` lists them in the order given."""

    def add(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return add
