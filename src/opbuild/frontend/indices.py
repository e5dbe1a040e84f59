"""Indices of operators that are taken as functions: their indices are refused while their meaning is known."""

from __future__ import annotations

from typing import Any

from opbuild.errors import InvalidModelError
from opbuild.graph.graph_builder import NodeBuilder, Scope
from opbuild.graph.indices import DOMAIN, HINT, LOSSES, Bounds, bounds_of, outside
from opbuild.graph.passes.indices import with_input
from opbuild.graph.types import IN_RANGE, Node

_CHECKED = frozenset((*LOSSES, "RotaryEmbedding"))
"""Operators of which a function may be taken that reads their indices in another way."""


def checked(node: Node, scope: Scope) -> Node:
    """Return a node that reads indices which were looked at by nodes that are written.

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
        return _looked_at(NodeBuilder(node, scope), bounds, ignored)
    found = outside(known if ignored is None else known[known != ignored], bounds.counts, negative=bounds.negative)
    if found:
        raise InvalidModelError(f"node {node.name!r}: {found}", HINT)
    return node


def _ignored(node: Node, bounds: Bounds) -> int | None:
    """Return the number of no class that is no mistake; None if there is none."""
    number = node.attrs.get("ignore_index") if node.op_type in LOSSES else None
    return None if number is None or 0 <= number < bounds.counts[0] else int(number)


def _looked_at(of: NodeBuilder, bounds: Bounds, ignored: int | None) -> Node:
    given = of.input(bounds.input)
    attrs: dict[str, Any] = {"counts": bounds.counts, "negative": bounds.negative}
    if ignored is None:
        looked = of(IN_RANGE, given, domain=DOMAIN, **attrs)
    else:
        none, zero = (of.constant(each, given.dtype) for each in (ignored, 0))
        is_none = of("Equal", given, none)
        looked = of(IN_RANGE, of("Where", is_none, zero, given), domain=DOMAIN, **attrs)
        looked = of("Where", is_none, none, looked)
    return with_input(of.node, bounds.input, looked)
