"""The graph around a node whose types are not known yet, for what is written in place of it."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from functools import partial
from itertools import count
from typing import NoReturn

from opbuild.errors import InvalidModelError
from opbuild.graph.types import Array, Node, TensorType


class Untyped:
    """Names and constants of a graph.

    Args:
        name: What new names begin with.
        tensors: The graph's constants; takes more.
    """

    def __init__(self, name: str, tensors: MutableMapping[str, Callable[[], Array]]) -> None:
        self._name, self._tensors, self._numbers = name, tensors, count()

    def fresh(self, name: str) -> str:
        """Return an unused name that begins with ``name``."""
        return f"{name}#{next(self._numbers)}"

    def constant(self, value: Array) -> str:
        """Add a constant and return its name."""
        name = self.fresh(f"{self._name}/constant")
        self._tensors[name] = partial(_itself, value)
        return name

    def value_of(self, name: str) -> Array | None:
        """Return a constant of the graph."""
        return self._tensors[name]() if name in self._tensors else None

    def is_known(self, name: str) -> bool:
        """Return whether a value is a constant of the graph."""
        return name in self._tensors

    def type_of(self, name: str) -> TensorType:
        """Raise: nothing is known of types."""
        return self._unknown(name)

    def producer(self, name: str) -> Node | None:
        """Return None: nodes are collected elsewhere."""
        return None

    def append(self, node: Node) -> None:
        """Raise: nodes are collected elsewhere."""
        return self._unknown(node.name)

    def bounded_value(self, name: str, least: int) -> int | None:
        """Raise: nothing is known of extents."""
        return self._unknown(name)

    def _unknown(self, name: str) -> NoReturn:
        raise InvalidModelError(
            f"node {self._name!r}, which reads {name!r}, has a graph that its operator does not take",
            "export the model again",
        )


def _itself(value: Array) -> Array:
    return value
