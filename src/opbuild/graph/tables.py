"""Tables that are constants of one size: worked out for each, from numbers that may be open extents.

A kernel that looks something up (which neighbours a position has, how many elements a window averages) reads a table.
Where its extents are open, a program holds the table's name and arguments, and each size has its own. So have numbers
that follow from extents and are data of an operator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from opbuild.graph import resampling, windows
from opbuild.graph.extents import SymbolicExtent, example_value
from opbuild.graph.number_operations import from_bits
from opbuild.graph.reals import bits_of
from opbuild.graph.types import Array
from opbuild.platform.records import NamedTuple


def numbers(values: Sequence[int], dtype: str) -> Array:
    """Return some numbers; floating-point ones are given by their bits."""
    if np.issubdtype(np.dtype(dtype), np.floating):
        return np.array([from_bits(each) for each in values], dtype)
    return np.array(values, dtype)


def evenly(start: int, step: int, count: int, dtype: str) -> Array:
    """Return so many numbers from a first one on, each a step behind the one before it."""
    first, by = numbers((start, step), dtype)
    found: Array = (first + np.arange(count, dtype=dtype) * by).astype(dtype)
    return found


def diagonal(rows: int, columns: int, above: int, dtype: str) -> Array:
    """Return a matrix with ones on a diagonal."""
    return np.eye(rows, columns, above, np.dtype(dtype))


TABLES: dict[str, Callable[..., Array]] = {
    "diagonal": diagonal,
    "evenly": evenly,
    "numbers": numbers,
    "resize places": resampling.places_of,
    "resize weights": resampling.weights_of,
    "window counts": windows.counts,
    "window places": windows.places,
    "window starts": windows.starts,
}
"""What makes each table, by name."""


def numbers_of(value: Array, dtype: str) -> tuple[Any, ...]:
    """Return the elements of a value that follows from open extents as an argument of the table of them."""
    elements = value.reshape(-1).tolist()
    return tuple(map(bits_of, elements)) if np.issubdtype(np.dtype(dtype), np.floating) else tuple(elements)


class Table(NamedTuple):
    """A table that is to be made.

    Attributes:
        name: Its name in ``TABLES``.
        arguments: What it is made of: numbers, text, open extents, and tuples of such.
    """

    name: str
    arguments: tuple[Any, ...]

    def example_value(self) -> Array:
        """Return it for the size at hand."""
        return TABLES[self.name](*map(_example, self.arguments))

    @property
    def is_open(self) -> bool:
        """Whether it is another one in other sizes."""
        return _is_open(self.arguments)


def _is_open(values: Sequence[Any]) -> bool:
    return any(_is_open(each) if isinstance(each, tuple) else isinstance(each, SymbolicExtent) for each in values)


def _example(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_example, value))
    return example_value(value) if isinstance(value, SymbolicExtent) else value
