"""What the rewrites of composite operators have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from opbuild.graph.extents import is_open
from opbuild.graph.passes.rewriter import Rewriter
from opbuild.graph.ranges import table_slice
from opbuild.graph.types import Array, Node

Rewrite = Callable[[Rewriter, Node], None]
"""Appends what computes a node, or raises ``KeptError`` before it has appended anything: the node stays as it is."""


class KeptError(Exception):
    """Raised by a rewrite: the node stays as it is."""


def integers(to: Rewriter, node: Node, values: int | Sequence[int] | Sequence[Sequence[int]] | Array) -> str:
    """Add a constant of int64 and return its name; a sequence may hold open extents, if only a shape is made of it."""
    is_shape = isinstance(values, Sequence) and is_open(values)
    return to.constant(f"{node.name}/integers", np.array(values, object) if is_shape else np.asarray(values, np.int64))


def counted(to: Rewriter, node: Node, start: int, stop: int) -> str:
    """Return the name of the numbers of int64 from ``start`` on, below ``stop``; both may be open extents."""
    if not is_open((start, stop)):
        return integers(to, node, np.arange(start, stop))
    table = table_slice((start, stop, 1), "int64")
    if table is None:
        return integers(to, node, np.arange(int(start), int(stop)))
    return sliced(to, node, integers(to, node, table), 0, start, stop)


def number(to: Rewriter, node: Node, value: int) -> str:
    """Return the name of one number of int64, as a list; it may be an open extent."""
    return counted(to, node, value, value + 1)


def scalar(to: Rewriter, node: Node, value: float, dtype: str) -> str:
    """Add a constant of one element and return its name."""
    return to.constant(f"{node.name}/scalar", np.array(value, dtype))


def reshaped(to: Rewriter, node: Node, name: str, shape: Sequence[int], output: str = "") -> str:
    """Append a Reshape to known extents."""
    return to.add(node, "Reshape", (name, integers(to, node, shape)), output, allowzero=1)


def transposed(to: Rewriter, node: Node, name: str, order: Sequence[int], output: str = "") -> str:
    """Append a Transpose."""
    return to.add(node, "Transpose", (name,), output, perm=tuple(order))


def sliced(to: Rewriter, node: Node, name: str, axis: int, start: int, end: int, step: int = 1) -> str:
    """Append a Slice along one axis."""
    bounds = tuple(integers(to, node, [value]) for value in (start, end, axis, step))
    return to.add(node, "Slice", (name, *bounds))


def known_integers(to: Rewriter, node: Node, index: int) -> tuple[int, ...] | None:
    """Return the integers of an input, None if it is absent.

    Raises:
        KeptError: If they are known only at run time.
    """
    if index >= len(node.inputs) or not node.inputs[index]:
        return None
    value = to.constants.get(node.inputs[index])
    if value is None:
        raise KeptError
    return tuple(int(item) for item in np.asarray(value).reshape(-1))


def has_input(node: Node, index: int) -> bool:
    """Return whether an optional input is there."""
    return index < len(node.inputs) and bool(node.inputs[index])
