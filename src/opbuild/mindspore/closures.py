"""The identity of a function's network, beside its arguments: the cells that it reads from around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opbuild.mindspore.nn.cell import Cell


def state_of(function: Callable[..., Any]) -> Any:
    """Return the parts and flags of a cell, or of those that a function reads from around it."""
    return function._state() if isinstance(function, Cell) else tuple(cell._state() for cell in _cells(function))


def _cells(function: Callable[..., Any]) -> list[Cell]:
    """Return the cells that a function reads from around it, whose flags decide its network."""
    inner = getattr(function, "__wrapped__", function)
    held = [cell.cell_contents for cell in getattr(inner, "__closure__", None) or () if _is_set(cell)]
    code = getattr(inner, "__code__", None)
    space = getattr(inner, "__globals__", {})
    held += [space[name] for name in (code.co_names if code else ()) if name in space]
    held.append(getattr(inner, "__self__", None))
    return [each for each in held if isinstance(each, Cell)]


def _is_set(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - an empty one raises
    except ValueError:
        return False
    return True
