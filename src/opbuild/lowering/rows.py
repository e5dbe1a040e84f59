"""Rules of values that lie plain: the rows, types and fused operations of a node."""

from __future__ import annotations

from collections.abc import Collection
from math import prod

from opbuild.graph.elementwise import rounding_of
from opbuild.graph.extents import is_one
from opbuild.graph.types import Node
from opbuild.lowering.context import Lowering
from opbuild.lowering.implementations import NotServedError
from opbuild.lowering.operands import Plain
from opbuild.lowering.strided import merge, padded, viewed_as
from opbuild.operations.expression import ACC, Expression, from_json


def fused_with(node: Node) -> tuple[Expression, tuple[str, ...]]:
    """Return the expression that is fused with a node, and the names of its operands."""
    stored = node.attrs.get("epilogue")
    if stored is None:
        return ACC, ()
    return from_json(stored), tuple(node.inputs[int(node.attrs["own_inputs"]) :])


def rounding_of_results(node: Node) -> str:
    """Return the type of 16 bits to whose numbers a node rounds its results; empty if it does not."""
    return rounding_of(fused_with(node)[0])


def rows_of(lowering: Lowering, name: str, axis: int) -> Plain:
    """Return a value as ``(rows, rows, elements)``: the axes from ``axis`` on as one dense row; a copy if needed."""
    for value in (lowering.plain(name), lowering.dense(name)):
        length = prod(value.shape[axis:])
        row_extents, row_strides = merge(value.shape[axis:], [value.strides[axis:]])
        extents, strides = merge(value.shape[:axis], [value.strides[:axis]])
        if len(extents) <= 2 and (not row_extents or (len(row_extents) == 1 and is_one(row_strides[0][0]))):
            outer = padded(extents, strides[0], 2)
            return viewed_as(value, (*outer[0], length), (*outer[1], 1))
    raise AssertionError("a dense value has one row dimension")


def require_types(lowering: Lowering, node: Node, count: int, types: Collection[str]) -> None:
    """Require that a node's first inputs, as many as counted, and its first output have types of some.

    Raises:
        NotServedError: If one has another type.
    """
    for name in (*node.inputs[:count], node.outputs[0]):
        if name and lowering.type(name).dtype not in types:
            raise NotServedError(f"{node.op_type} of {lowering.type(name).dtype} has no kernel")
