"""Indices of operators that are taken as functions: what these gather by is refused while it is known what it means."""

from __future__ import annotations

from collections.abc import Sequence
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


def checked(node: Node, scope: Scope) -> Sequence[Node]:
    """Return a node that reads indices which were looked at, behind the nodes that do so.

    Raises:
        InvalidModelError: If known ones are out of range.
    """
    if node.op_type not in _CHECKED:
        return (node,)
    bounds = bounds_of(node, lambda index: scope.type_of(node.inputs[index]).shape)
    if bounds is None:
        return (node,)
    given = node.inputs[bounds.input]
    known, ignored = scope.value_of(given), _ignored(node, bounds)
    if known is None:
        return _looked_at(node, scope, bounds, ignored)
    found = outside(known if ignored is None else known[known != ignored], bounds.counts, negative=bounds.negative)
    if found:
        raise InvalidModelError(f"node {node.name!r}: {found}", HINT)
    return (node,)


def _ignored(node: Node, bounds: Bounds) -> int | None:
    """Return the number of no class that is no mistake; None if there is none."""
    number = node.attrs.get("ignore_index") if node.op_type in LOSSES else None
    return None if number is None or 0 <= number < bounds.counts[0] else int(number)


def _looked_at(node: Node, scope: Scope, bounds: Bounds, ignored: int | None) -> Sequence[Node]:
    given, nodes = node.inputs[bounds.input], list[Node]()

    def add(op_type: str, *inputs: str, domain: str = "", **attrs: object) -> str:
        output = scope.fresh(f"{node.name}/{op_type}_{len(nodes)}")
        nodes.append(Node(op_type, inputs, (output,), attrs, node.name, domain))
        return output

    attrs = {"counts": bounds.counts, "negative": bounds.negative}
    if ignored is None:
        looked = add(IN_RANGE, given, domain=DOMAIN, **attrs)
    else:
        dtype = scope.type_of(given).dtype
        none, zero = (scope.constant(np.array(number, dtype)) for number in (ignored, 0))
        is_none = add("Equal", given, none)
        looked = add(IN_RANGE, add("Where", is_none, zero, given), domain=DOMAIN, **attrs)
        looked = add("Where", is_none, none, looked)
    inputs = (*node.inputs[: bounds.input], looked, *node.inputs[bounds.input + 1 :])
    return (*nodes, node.with_(inputs=inputs))
