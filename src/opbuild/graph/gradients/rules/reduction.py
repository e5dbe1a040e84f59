"""Gradients of reductions, softmax and its logarithm.

Elements that are the greatest or smallest together share the gradient in equal parts, as in torch's ``amax``.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from opbuild.graph.gradients.broadcasting import is_empty
from opbuild.graph.gradients.registry import RULES, Backward, gradient
from opbuild.graph.graph_builder import GraphBuilder, Value


def softmax_data(of: GraphBuilder, dy: Value, y: Value, axis: int) -> Value:
    """Return the gradient of a softmax's data: ``y * (dy - sum(y * dy))``."""
    weighted = of("Mul", y, dy)
    return of("Sub", weighted, of("Mul", y, of.sum(weighted, (axis,), keepdims=True)))


def log_softmax_data(of: GraphBuilder, dy: Value, y: Value, axis: int) -> Value:
    """Return the gradient of a log-softmax's data: ``dy - exp(y) * sum(dy)``."""
    return of("Sub", dy, of("Mul", of("Exp", y), of.sum(dy, (axis,), keepdims=True)))


def _axes(of: Backward) -> tuple[int, ...]:
    rank = len(of.input(0).shape)
    given = tuple(int(axis) % rank for axis in of.known_input(1).reshape(-1)) if of.optional(1) is not None else ()
    if not given and of.flag("noop_with_empty_axes"):
        return ()
    return given or tuple(range(rank))


def _kept(of: Backward, value: Value, axes: Sequence[int]) -> Value:
    """Return a value of the output's shape with an extent of 1 for each reduced axis."""
    shape = [1 if axis in axes else extent for axis, extent in enumerate(of.input(0).shape)]
    return of.reshape(value, shape)


def _spread(of: Backward, axes: Sequence[int]) -> Value:
    return of.expand(_kept(of, of.gradient(), axes), of.input(0).shape)


@gradient("ReduceMean")
def reduced_mean(of: Backward) -> Sequence[Value | None]:
    """Give each element its part of the mean's gradient."""
    x, axes = of.input(0), _axes(of)
    count = max(prod(x.shape[axis] for axis in axes), 1)
    part = of("Div", _kept(of, of.gradient(), axes), of.constant(count, x.dtype))
    return (of.expand(part, x.shape),)


@gradient("ReduceMax", "ReduceMin")
def reduced_extreme(of: Backward) -> Sequence[Value | None]:
    """Divide the extreme's gradient among the elements that are it."""
    x, axes = of.input(0), _axes(of)
    if is_empty(x):
        return (_spread(of, axes),)
    hit = of.cast(of("Equal", x, _kept(of, of.output(), axes)), x.dtype)
    part = of("Div", _kept(of, of.gradient(), axes), of.sum(hit, axes, keepdims=True))
    return (of("Mul", hit, part),)


@gradient("ReduceProd")
def reduced_product(of: Backward) -> Sequence[Value | None]:
    """Give each element the product of the others, of which some may be 0: running products from both ends."""
    x, axes = of.input(0), _axes(of)
    if is_empty(x) or not axes:
        return (_spread(of, axes),)
    rest = [axis for axis in range(len(x.shape)) if axis not in axes]
    order = (*rest, *axes)
    count = prod(x.shape[axis] for axis in axes)
    turned = of.reshape(of.transpose(x, order), (*(x.shape[axis] for axis in rest), count))
    last = of.constant(len(rest), "int64")
    before = of("CumProd", turned, last, exclusive=1)
    behind = of("CumProd", turned, last, exclusive=1, reverse=1)
    others = of.reshape(of("Mul", before, behind), [x.shape[axis] for axis in order])
    back = tuple(order.index(axis) for axis in range(len(order)))
    return (of("Mul", _kept(of, of.gradient(), axes), of.transpose(others, back)),)


@gradient("ReduceL2")
def euclidean(of: Backward) -> Sequence[Value | None]:
    """Give each element its share of the norm; a norm of 0 gives nothing, as in torch."""
    x, axes = of.input(0), _axes(of)
    y, zero = _kept(of, of.output(), axes), of.constant(0.0, x.dtype)
    none = of("Equal", y, zero)
    factor = of("Div", _kept(of, of.gradient(), axes), of("Where", none, of.constant(1.0, x.dtype), y))
    return (of("Mul", x, of("Where", none, zero, factor)),)


@gradient("ReduceSumSquare")
def square_sum(of: Backward) -> Sequence[Value | None]:
    """Give each element twice itself."""
    x = of.input(0)
    double = of("Mul", x, of.constant(2.0, x.dtype))
    return (of("Mul", _kept(of, of.gradient(), _axes(of)), double),)


@gradient("ReduceLogSum")
def logarithm_of_sum(of: Backward) -> Sequence[Value | None]:
    """Divide by the sum."""
    axes = _axes(of)
    back = of("Div", _kept(of, of.gradient(), axes), of("Exp", _kept(of, of.output(), axes)))
    return (of.expand(back, of.input(0).shape),)


@gradient("ReduceLogSumExp")
def logarithm_of_powers(of: Backward) -> Sequence[Value | None]:
    """Give each element its softmax; nothing where all are -inf."""
    x, axes = of.input(0), _axes(of)
    y, low = _kept(of, of.output(), axes), of.constant(-float("inf"), x.dtype)
    share = of("Exp", of("Sub", x, of("Where", of("Equal", y, low), of.constant(0.0, x.dtype), y)))
    return (of("Mul", _kept(of, of.gradient(), axes), share),)


@gradient("Softmax", "LogSoftmax")
def softmax(of: Backward) -> Sequence[Value | None]:
    """Differentiate a softmax or its logarithm by its result."""
    back = softmax_data if of.node.op_type == "Softmax" else log_softmax_data
    y = of.output()
    return (back(of, of.gradient(), y, of.axis(-1, len(y.shape))),)


RULES.register_all(
    {
        "ReduceSum": lambda of: (_spread(of, _axes(of)),),
        "ReduceL1": lambda of: (of("Mul", _kept(of, of.gradient(), _axes(of)), of("Sign", of.input(0))),),
    }
)
