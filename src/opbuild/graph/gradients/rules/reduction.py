"""Gradients of reductions, softmax and its logarithm.

Elements that are the greatest or smallest together share the gradient in equal parts, as in torch's ``amax``.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from opbuild.graph.gradients.broadcasting import expanded, is_empty, total
from opbuild.graph.gradients.registry import RULES, Call, gradient
from opbuild.graph.graph_builder import GraphBuilder, Value


def softmax_data(of: GraphBuilder, dy: Value, y: Value, axis: int) -> Value:
    """Return the gradient of a softmax's data: ``y * (dy - sum(y * dy))``."""
    weighted = of("Mul", y, dy)
    return of("Sub", weighted, of("Mul", y, total(of, weighted, (axis,), keepdims=True)))


def log_softmax_data(of: GraphBuilder, dy: Value, y: Value, axis: int) -> Value:
    """Return the gradient of a log-softmax's data: ``dy - exp(y) * sum(dy)``."""
    return of("Sub", dy, of("Mul", of("Exp", y), total(of, dy, (axis,), keepdims=True)))


def _axes(call: Call) -> tuple[int, ...]:
    rank = len(call.input(0).shape)
    given = tuple(int(axis) % rank for axis in call.known(1).reshape(-1)) if call.optional(1) is not None else ()
    if not given and call.flag("noop_with_empty_axes"):
        return ()
    return given or tuple(range(rank))


def _kept(call: Call, value: Value, axes: Sequence[int]) -> Value:
    """Return a value of the output's shape with an extent of 1 for each reduced axis."""
    shape = [1 if axis in axes else extent for axis, extent in enumerate(call.input(0).shape)]
    return call.of.reshape(value, shape)


def _spread(call: Call, axes: Sequence[int]) -> Value:
    return expanded(call.of, _kept(call, call.gradient(), axes), call.input(0).shape)


@gradient("ReduceMean")
def reduced_mean(call: Call) -> Sequence[Value | None]:
    """Give each element its part of what the mean gets."""
    x, axes = call.input(0), _axes(call)
    count = max(prod(x.shape[axis] for axis in axes), 1)
    part = call.of("Div", _kept(call, call.gradient(), axes), call.of.constant(count, x.dtype))
    return (expanded(call.of, part, x.shape),)


@gradient("ReduceMax", "ReduceMin")
def reduced_extreme(call: Call) -> Sequence[Value | None]:
    """Divide what the extreme gets among the elements that are it."""
    of, x, axes = call.of, call.input(0), _axes(call)
    if is_empty(x):
        return (_spread(call, axes),)
    hit = of.cast(of("Equal", x, _kept(call, call.output(), axes)), x.dtype)
    part = of("Div", _kept(call, call.gradient(), axes), total(of, hit, axes, keepdims=True))
    return (of("Mul", hit, part),)


@gradient("ReduceProd")
def reduced_product(call: Call) -> Sequence[Value | None]:
    """Give each element the product of the others, of which some may be 0: running products from both ends."""
    of, x, axes = call.of, call.input(0), _axes(call)
    if is_empty(x) or not axes:
        return (_spread(call, axes),)
    rest = [axis for axis in range(len(x.shape)) if axis not in axes]
    order = (*rest, *axes)
    count = prod(x.shape[axis] for axis in axes)
    turned = of.reshape(of.transpose(x, order), (*(x.shape[axis] for axis in rest), count))
    last = of.constant(len(rest), "int64")
    before = of("CumProd", turned, last, exclusive=1)
    behind = of("CumProd", turned, last, exclusive=1, reverse=1)
    others = of.reshape(of("Mul", before, behind), [x.shape[axis] for axis in order])
    back = tuple(order.index(axis) for axis in range(len(order)))
    return (of("Mul", _kept(call, call.gradient(), axes), of.transpose(others, back)),)


@gradient("ReduceL2")
def euclidean(call: Call) -> Sequence[Value | None]:
    """Give each element its share of the norm; a norm of 0 gives nothing, as in torch."""
    of, x, axes = call.of, call.input(0), _axes(call)
    y, zero = _kept(call, call.output(), axes), of.constant(0.0, x.dtype)
    none = of("Equal", y, zero)
    factor = of("Div", _kept(call, call.gradient(), axes), of("Where", none, of.constant(1.0, x.dtype), y))
    return (of("Mul", x, of("Where", none, zero, factor)),)


@gradient("ReduceSumSquare")
def square_sum(call: Call) -> Sequence[Value | None]:
    """Give each element twice itself."""
    x = call.input(0)
    double = call.of("Mul", x, call.of.constant(2.0, x.dtype))
    return (call.of("Mul", _kept(call, call.gradient(), _axes(call)), double),)


@gradient("ReduceLogSum")
def logarithm_of_sum(call: Call) -> Sequence[Value | None]:
    """Divide by the sum."""
    axes = _axes(call)
    back = call.of("Div", _kept(call, call.gradient(), axes), call.of("Exp", _kept(call, call.output(), axes)))
    return (expanded(call.of, back, call.input(0).shape),)


@gradient("ReduceLogSumExp")
def logarithm_of_powers(call: Call) -> Sequence[Value | None]:
    """Give each element its softmax; nothing where all are -inf."""
    of, x, axes = call.of, call.input(0), _axes(call)
    y, low = _kept(call, call.output(), axes), of.constant(-float("inf"), x.dtype)
    share = of("Exp", of("Sub", x, of("Where", of("Equal", y, low), of.constant(0.0, x.dtype), y)))
    return (of("Mul", _kept(call, call.gradient(), axes), share),)


@gradient("Softmax", "LogSoftmax")
def softmax(call: Call) -> Sequence[Value | None]:
    """Differentiate a softmax or its logarithm by what it computed."""
    back = softmax_data if call.node.op_type == "Softmax" else log_softmax_data
    y = call.output()
    return (back(call.of, call.gradient(), y, call.axis(-1, len(y.shape))),)


RULES.register_all(
    {
        "ReduceSum": lambda call: (_spread(call, _axes(call)),),
        "ReduceL1": lambda call: (
            call.of("Mul", _kept(call, call.gradient(), _axes(call)), call.of("Sign", call.input(0))),
        ),
    }
)
