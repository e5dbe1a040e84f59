"""Gradients of operators that are linear in tables of neighbours: resampling, and response normalization."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from opbuild.graph.gradients.broadcasting import filled, is_empty
from opbuild.graph.gradients.registry import Call, gradient
from opbuild.graph.graph_builder import GraphBuilder, Value
from opbuild.graph.resampling import axes_of, is_plain, neighbours, way_of
from opbuild.graph.types import Array


@gradient("Resize", "Upsample")
def resampled(call: Call) -> Sequence[Value | None]:
    """Give each element its shares of what it counted in, axis by axis: a product with the turned table of weights."""
    x, found = call.input(0), call.gradient()
    if not is_plain(call.node):
        call.refuse("it takes regions of its data")
    if is_empty(found):
        return (filled(call.of, 0.0, x.dtype, x.shape),)
    place = 1 if call.node.op_type == "Upsample" else 2
    scales, sizes = (_numbers(call, place), _numbers(call, place + 1))
    for axis in axes_of(call.node, x.shape, found.shape, scales, sizes):
        places, weights = neighbours(way_of(call.node), axis)
        table = np.zeros((axis.wanted, axis.extent))
        np.add.at(table, (np.arange(axis.wanted)[:, None], places), weights)
        found = _along(call.of, found, table, axis.index)
    return (found,)


@gradient("LRN")
def local_response(call: Call) -> Sequence[Value | None]:
    """Differentiate ``x / s ** beta``, where ``s`` has the mean of the squares of the neighbouring channels."""
    of, x, dy = call.of, call.input(0), call.gradient()
    if is_empty(x):
        return (dy,)
    size, alpha = int(call.node.attrs["size"]), call.number("alpha", 1e-4)
    beta, bias = call.number("beta", 0.75), call.number("bias", 1.0)
    distance = np.arange(x.shape[1])[:, None] - np.arange(x.shape[1])
    table = ((distance <= size // 2) & (-distance <= (size - 1) // 2)).astype(np.float32)

    def scaled(value: Value, by: float) -> Value:
        return of("Mul", value, of.constant(by, x.dtype))

    squares = _along(of, of("Mul", x, x), table, 1)
    base = of("Add", scaled(squares, alpha / size), of.constant(bias, x.dtype))
    own = of("Mul", dy, of("Pow", base, of.constant(-beta, x.dtype)))
    shares = _along(of, of("Div", of("Mul", own, x), base), table.T, 1)
    return (of("Sub", own, scaled(of("Mul", x, shares), 2 * alpha * beta / size)),)


def _numbers(call: Call, index: int) -> list[float] | None:
    """Return an input of numbers; None if it is absent or empty."""
    if call.optional(index) is None:
        return None
    return [float(each) for each in call.known(index).reshape(-1)] or None


def _along(of: GraphBuilder, value: Value, table: Array, axis: int) -> Value:
    """Return the products of an axis with a table ``(extent before, extent behind)``."""
    last = len(value.shape) - 1
    order = [*(each for each in range(last + 1) if each != axis), axis]
    turned = of.transpose(value, order)
    found = of("MatMul", turned, of.constant(np.ascontiguousarray(table), value.dtype))
    return of.transpose(found, [int(each) for each in np.argsort(order)])
