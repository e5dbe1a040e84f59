"""What parts of a network hand each other: names and constants."""

from __future__ import annotations

from collections.abc import Callable

from opbuild.frontend.open_values import fixed, is_open_value
from opbuild.graph.constants import array_digest
from opbuild.graph.types import Array
from opbuild.platform.records import NamedTuple

Names = dict[str, str]
"""What each name of the model is called in the graph that is made."""


class Known(NamedTuple):
    """A constant.

    Attributes:
        origin: Says exactly what it is: where the model has it, or a digest of what was computed.
        read: Returns it.
        dtype: If it follows from open extents, the element type that it stands for.
    """

    origin: str
    read: Callable[[], Array]
    dtype: str = ""


def decided(array: Array, dtype: str) -> Known:
    """Return a constant that is what a break waited for; one of open extents stays open, and has no origin."""
    return Known("", lambda: array, dtype) if is_open_value(array) else computed(array)


def computed(array: Array, dtype: str = "int64") -> Known:
    """Return a constant that was computed; one that follows from open extents is that of the size at hand."""
    if is_open_value(array):
        array = fixed(array, dtype)
    return Known(array_digest(array), lambda: array)
