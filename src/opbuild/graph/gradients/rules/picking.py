"""Gradients of what picks elements by indices, and of what writes there."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from opbuild.graph.gradients.broadcasting import filled, is_empty
from opbuild.graph.gradients.registry import Call, gradient
from opbuild.graph.gradients.scattering import elements_sum, index_sum
from opbuild.graph.writing import Value

Parts = Sequence[Value | None]


@gradient("Gather")
def gather(call: Call) -> Parts:
    """Add each slice's part to where the slice was taken from."""
    shape = call.input(0).shape
    return (index_sum(call.of, call.gradient(), call.input(1), shape, call.axis(0, len(shape))),)


@gradient("GatherElements")
def gather_elements(call: Call) -> Parts:
    """Add each element's part to where it was taken from."""
    shape = call.input(0).shape
    return (elements_sum(call.of, call.gradient(), call.input(1), shape, call.axis(0, len(shape))),)


@gradient("GatherND")
def gather_vectors(call: Call) -> Parts:
    """Add each slice's part to where its vector of indices points."""
    x = call.input(0)
    if int(call.node.attrs.get("batch_dims", 0)):
        call.refuse("it has batch_dims")
    zeros = filled(call.of, 0.0, x.dtype, x.shape)
    if is_empty(call.gradient()):
        return (zeros,)
    return (call.of("ScatterND", zeros, call.input(1), call.gradient(), reduction="add"),)


@gradient("TopK")
def greatest_elements(call: Call) -> Parts:
    """Add each element's part to where it stood."""
    shape = call.input(0).shape
    places = call.outputs[1]
    if places is None:
        places = call.of.several("TopK", (call.input(0), call.input(1)), 2, **call.node.attrs)[1]
    return (elements_sum(call.of, call.gradient(), places, shape, call.axis(-1, len(shape))),)


@gradient("ScatterElements", "ScatterND")
def scatter(call: Call) -> Parts:
    """Take back what was written or added; what was written over gets nothing."""
    of, places, updates, dy = call.of, call.input(1), call.input(2), call.gradient()
    how = call.node.text("reduction", "none")
    if how not in ("none", "add"):
        call.refuse(f"its reduction is {how}")
    elements = call.node.op_type == "ScatterElements"
    axis = call.axis(0, len(dy.shape))
    if how == "none" and call.wants(2) and not _is_distinct(call, axis):
        call.refuse("which update was written last is not known: its indices may repeat")
    data: Value | None = dy
    attrs = {"axis": axis} if elements else {}
    if how == "none":
        zeros = filled(of, 0.0, updates.dtype, updates.shape)
        data = dy if not prod(updates.shape) else of(call.node.op_type, dy, places, zeros, **attrs)
    back = of("GatherElements", dy, places, axis=axis) if elements else of("GatherND", dy, places)
    return data, None, back


def _is_distinct(call: Call, axis: int) -> bool:
    """Return whether indices are known, and no two the same."""
    known = call.of.known(call.input(1))
    if known is None:
        return False
    if call.node.op_type == "ScatterElements":
        return all(len(set(row)) == len(row) for row in _rows(known.swapaxes(axis, -1).tolist()))
    rows = known.reshape(-1, known.shape[-1]).tolist()
    return len(set(map(tuple, rows))) == len(rows)


def _rows(nested: list[object]) -> list[list[int]]:
    if nested and isinstance(nested[0], list):
        return [row for part in nested for row in _rows(part)]  # type: ignore[arg-type]  # nested lists
    return [nested]  # type: ignore[list-item]  # of integers
