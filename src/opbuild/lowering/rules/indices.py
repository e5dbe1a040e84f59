"""Lowering of checks of indices."""

from __future__ import annotations

from math import prod

import numpy as np

from opbuild.errors import InvalidModelError
from opbuild.graph.extents import is_open
from opbuild.graph.indices import HINT, outside
from opbuild.graph.types import Node
from opbuild.lowering.context import Lowering
from opbuild.lowering.implementations import serves
from opbuild.lowering.operands import Plain
from opbuild.lowering.strided import broadcast, dense_as, viewed_as


@serves("opbuild.InRange")
def in_range(lowering: Lowering, node: Node) -> None:
    """Lower InRange, whose result is its operand, as it lies.

    Raises:
        InvalidModelError: If an index is known, and out of range.
    """
    name, counts, negative = node.inputs[0], tuple(node.attrs["counts"]), bool(node.attrs["negative"])
    known = lowering.constant(name)
    found = None if known is None else outside(known, counts, negative=negative)
    if found:
        raise InvalidModelError(f"node {node.name!r}: {found}", HINT)
    value = lowering.plain(name)
    lowering.bind(node.outputs[0], value)
    if known is not None or not prod(value.shape):
        return
    indices = _once(value) if len(counts) == 1 else value
    indices = indices if indices.dense else lowering.dense(name)
    zero = lowering.packed((), "zero int32", (), "int32", lambda: np.zeros((), np.int32))
    bare = node.with_(outputs=(), attrs={"negative": negative})
    lowering.host(bare, (dense_as(indices, (prod(indices.shape),)), broadcast(zero, counts)))


def _once(value: Plain) -> Plain:
    """Return a value without repetitions, its dimensions in the order in which they lie."""
    if value.dense or is_open((*value.shape, *value.strides)):
        return value
    dims = sorted(zip(value.strides, value.shape, strict=True), reverse=True)
    kept = [(stride, extent) for stride, extent in dims if stride and extent > 1]
    return viewed_as(value, [extent for _, extent in kept], [stride for stride, _ in kept])
