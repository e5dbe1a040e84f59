"""Operators whose extents depend on a number: what every kernel family is tried with at hostile extents."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """One operator whose extents depend on a number.

    Attributes:
        op_type: The operator.
        shape: Shape of the input by extent.
        constants: Shapes of the constants that follow it, by extent; arrays are taken as they are.
        attrs: Attributes.
        least: The least extent for which the operator has a result.
        dtype: Element type of the input, and of constants that are given by their shapes.
        result: Element type of the result.
        outputs: How many outputs it has; the first one is looked at.
        pattern: Operators instead of one, which together make ``y``: type, inputs, output and attributes.
    """

    op_type: str
    shape: Callable[[int], Shape]
    constants: Callable[[int], list[Any]] = lambda _: []
    attrs: dict[str, Any] = field(default_factory=dict)
    least: int = 0
    dtype: str = "float32"
    result: str = "float32"
    outputs: int = 1
    pattern: tuple[tuple[str, list[str], str, dict[str, Any]], ...] = ()


def image(channels: int) -> Callable[[int], Shape]:
    """Return the shapes of two images of ``channels`` channels whose width and height differ; of no image for 0."""
    return lambda n: (2, channels, n + 1, n) if n else (0, channels, 4, 3)
