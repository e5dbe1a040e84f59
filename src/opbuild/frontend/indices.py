"""Indices of operators that are taken as functions: what these gather by is refused while it is known what it means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from opbuild.errors import InvalidModelError
from opbuild.graph.indices import DOMAIN, HINT, LOSSES, Bounds, bounds_of, outside
from opbuild.graph.types import IN_RANGE, Array, Node, TensorType

_CHECKED = frozenset((*LOSSES, "RotaryEmbedding"))
"""Operators of which a function may be taken that reads their indices in another way."""


class Scope(Protocol):
    """The graph that is bound, as far as it is needed here."""

    def fresh(self, name: str) -> str:
        """Return an unused name that begins with ``name``."""

    def constant(self, value: Array) -> str:
        """Add a constant and return its name."""

    def type_of(self, name: str) -> TensorType:
        """Return the type of a value."""

    def value_of(self, name: str) -> Array | None:
        """Return a value if it is known when the network is built."""


def checked(node: Node, scope: Scope, add: Callable[[Node], None]) -> Node:
    """Return a node that reads indices which were looked at; ``add`` takes the nodes that do so.

    Raises:
        InvalidModelError: If known ones are out of range.
    """
    if node.op_type not in _CHECKED:
        return node
    bounds = bounds_of(node, lambda index: scope.type_of(node.inputs[index]).shape)
    if bounds is None:
        return node
    known, ignored = scope.value_of(node.inputs[bounds.input]), _ignored(node, bounds)
    if known is None:
        return _looked_at(node, scope, bounds, ignored, add)
    found = outside(known if ignored is None else known[known != ignored], bounds.counts, negative=bounds.negative)
    if found:
        raise InvalidModelError(f"node {node.name!r}: {found}", HINT)
    return node


def _ignored(node: Node, bounds: Bounds) -> int | None:
    """Return the number of no class that is no mistake; None if there is none."""
    number = node.attrs.get("ignore_index") if node.op_type in LOSSES else None
    return None if number is None or 0 <= number < bounds.counts[0] else int(number)


def _looked_at(node: Node, scope: Scope, bounds: Bounds, ignored: int | None, add: Callable[[Node], None]) -> Node:
    def write(op_type: str, *inputs: str, domain: str = "", **attrs: object) -> str:
        output = scope.fresh(f"{node.name}/{op_type}")
        add(Node(op_type, inputs, (output,), attrs, node.name, domain))
        return output

    given = node.inputs[bounds.input]
    attrs = {"counts": bounds.counts, "negative": bounds.negative}
    if ignored is None:
        looked = write(IN_RANGE, given, domain=DOMAIN, **attrs)
    else:
        none, zero = (scope.constant(np.array(each, scope.type_of(given).dtype)) for each in (ignored, 0))
        is_none = write("Equal", given, none)
        looked = write(IN_RANGE, write("Where", is_none, zero, given), domain=DOMAIN, **attrs)
        looked = write("Where", is_none, none, looked)
    return node.with_(inputs=(*node.inputs[: bounds.input], looked, *node.inputs[bounds.input + 1 :]))
