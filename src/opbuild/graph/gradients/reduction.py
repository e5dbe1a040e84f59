"""Gradients of sums: products of matrices, collectives, reductions, softmax, normalisations.

Elements that are the greatest or smallest together share the gradient in equal parts, as in torch's ``amax``. Means and
deviations of normalisations are computed again where nobody kept them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from opbuild.graph.extents import is_open
from opbuild.graph.gradients.registry import (
    RULES,
    Backward,
    Parts,
    channel_means,
    channel_sums,
    gradient,
    is_empty,
    per_channel,
    summed_to,
)
from opbuild.graph.graph_builder import GraphBuilder, Value
from opbuild.graph.types import COLLECTIVES


def turned(of: GraphBuilder, x: Value) -> Value:
    """Return matrices with rows and columns exchanged."""
    rank = len(x.shape)
    return of.transpose(x, (*range(rank - 2), rank - 1, rank - 2))


@gradient("MatMul")
def product(of: Backward) -> Parts:
    """Differentiate products of matrices or vectors, which may be broadcast."""
    a, b = of.input(0), of.input(1)
    if is_empty(a, b):
        return of.zeros(a), of.zeros(b)
    left = a if len(a.shape) > 1 else of.reshape(a, (1, *a.shape))
    right = b if len(b.shape) > 1 else of.reshape(b, (*b.shape, 1))
    batch = _batch(of, a, b)
    dy = of.reshape(of.gradient(), (*batch, left.shape[-2], right.shape[-1]))
    first = second = None
    if of.wants(0):
        first = of.reshape(summed_to(of, of("MatMul", dy, turned(of, right)), left.shape), a.shape)
    if of.wants(1):
        if len(right.shape) == 2 and len(left.shape) > 2:  # one product instead of a sum of many
            left = of.reshape(left, (prod(left.shape[:-1]), left.shape[-1]))
            dy = of.reshape(dy, (left.shape[0], right.shape[-1]))
        second = of.reshape(summed_to(of, of("MatMul", turned(of, left), dy), right.shape), b.shape)
    return first, second


def _batch(of: Backward, a: Value, b: Value) -> tuple[int, ...]:
    """Return the extents of the output that matrices are counted by."""
    shape = of.gradient().shape
    return shape[: len(shape) - (len(a.shape) > 1) - (len(b.shape) > 1)]


@gradient("Gemm")
def gemm(of: Backward) -> Parts:
    """Differentiate ``alpha * a @ b + beta * c``."""
    a, b, c = of.input(0), of.input(1), of.optional(2)
    dy = of.gradient()
    if is_empty(a, b):
        parts: list[Value | None] = [of.zeros(each) for each in (a, b)]
    else:
        turns = of.flag("transA"), of.flag("transB")
        scaled = _times(of, dy, of.number("alpha", 1.0))
        left, right = (turned(of, each) if turn else each for each, turn in zip((a, b), turns, strict=True))
        parts = [None, None]
        if of.wants(0):
            first = of("MatMul", scaled, turned(of, right))
            parts[0] = turned(of, first) if turns[0] else first
        if of.wants(1):
            second = of("MatMul", turned(of, left), scaled)
            parts[1] = turned(of, second) if turns[1] else second
    if c is not None and of.wants(2):
        parts.append(summed_to(of, _times(of, dy, of.number("beta", 1.0)), c.shape))
    return parts


def _times(of: GraphBuilder, x: Value, factor: float) -> Value:
    return x if factor == 1.0 else of("Mul", x, of.constant(factor, x.dtype))


@gradient("AllReduce", "AllGather", "ReduceScatter", domain=COLLECTIVES)
def together(of: Backward) -> Parts:
    """Give each rank the gradients of all ranks' results for its elements: the operator with both turned."""
    op_type, attrs = of.node.op_type, {**of.node.attrs, "reduction": "sum"}
    if op_type != "AllGather" and of.node.attrs.get("reduction") != "sum":
        of.refuse(f"its reduction is {of.node.attrs.get('reduction')}, not sum")
    if op_type == "ReduceScatter":
        del attrs["reduction"]
    back = {"AllGather": "ReduceScatter", "ReduceScatter": "AllGather"}.get(op_type, op_type)
    return (of(back, of.gradient(), domain=COLLECTIVES, **attrs),)


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


def _keep_dimensions(of: Backward, value: Value, axes: Sequence[int]) -> Value:
    """Return a value of the output's shape with an extent of 1 for each reduced axis."""
    shape = [1 if axis in axes else extent for axis, extent in enumerate(of.input(0).shape)]
    return of.reshape(value, shape)


def _spread(of: Backward, axes: Sequence[int]) -> Value:
    return of.expand(_keep_dimensions(of, of.gradient(), axes), of.input(0).shape)


@gradient("ReduceMean")
def reduced_mean(of: Backward) -> Parts:
    """Give each element its part of the mean's gradient."""
    x, axes = of.input(0), _axes(of)
    count = max(prod(x.shape[axis] for axis in axes), 1)
    part = of("Div", _keep_dimensions(of, of.gradient(), axes), of.constant(count, x.dtype))
    return (of.expand(part, x.shape),)


@gradient("ReduceMax", "ReduceMin")
def reduced_extreme(of: Backward) -> Parts:
    """Divide the extreme's gradient among the elements that are it."""
    x, axes = of.input(0), _axes(of)
    if is_empty(x):
        return (_spread(of, axes),)
    hit = of.cast(of("Equal", x, _keep_dimensions(of, of.output(), axes)), x.dtype)
    part = of("Div", _keep_dimensions(of, of.gradient(), axes), of.sum(hit, axes, keepdims=True))
    return (of("Mul", hit, part),)


@gradient("ReduceProd")
def reduced_product(of: Backward) -> Parts:
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
    return (of("Mul", _keep_dimensions(of, of.gradient(), axes), of.transpose(others, back)),)


@gradient("ReduceL2")
def euclidean(of: Backward) -> Parts:
    """Give each element its share of the norm; a norm of 0 gives nothing, as in torch."""
    x, axes = of.input(0), _axes(of)
    y, zero = _keep_dimensions(of, of.output(), axes), of.constant(0.0, x.dtype)
    none = of("Equal", y, zero)
    factor = of("Div", _keep_dimensions(of, of.gradient(), axes), of("Where", none, of.constant(1.0, x.dtype), y))
    return (of("Mul", x, of("Where", none, zero, factor)),)


@gradient("ReduceSumSquare")
def square_sum(of: Backward) -> Parts:
    """Give each element twice itself."""
    double = of("Mul", of.input(0), of.constant(2.0, of.input(0).dtype))
    return (of("Mul", _keep_dimensions(of, of.gradient(), _axes(of)), double),)


@gradient("ReduceLogSum")
def logarithm_of_sum(of: Backward) -> Parts:
    """Divide by the sum."""
    axes = _axes(of)
    back = of("Div", _keep_dimensions(of, of.gradient(), axes), of("Exp", _keep_dimensions(of, of.output(), axes)))
    return (of.expand(back, of.input(0).shape),)


@gradient("ReduceLogSumExp")
def logarithm_of_powers(of: Backward) -> Parts:
    """Give each element its softmax; nothing where all are -inf."""
    x, axes = of.input(0), _axes(of)
    y, low = _keep_dimensions(of, of.output(), axes), of.constant(-float("inf"), x.dtype)
    share = of("Exp", of("Sub", x, of("Where", of("Equal", y, low), of.constant(0.0, x.dtype), y)))
    return (of("Mul", _keep_dimensions(of, of.gradient(), axes), share),)


@gradient("Softmax", "LogSoftmax")
def softmax(of: Backward) -> Parts:
    """Differentiate a softmax or its logarithm by its result."""
    back = softmax_data if of.node.op_type == "Softmax" else log_softmax_data
    y = of.output()
    return (back(of, of.gradient(), y, of.axis(-1, len(y.shape))),)


RULES.register_all(
    {
        "ReduceSum": lambda of: (_spread(of, _axes(of)),),
        "ReduceL1": lambda of: (of("Mul", _keep_dimensions(of, of.gradient(), _axes(of)), of("Sign", of.input(0))),),
    }
)


Three = tuple[Value, Value, Value]
"""Gradients of data, scale and bias."""


def centred_data(of: GraphBuilder, slope: Value, normal: Value, rstd: Value, axes: Sequence[int]) -> Value:
    """Return the gradient of ``x`` in ``normal = (x - mean(x)) * rstd(x)``, given that of ``normal``."""
    along = of("Mul", normal, of.mean(of("Mul", slope, normal), axes))
    return of("Mul", rstd, of("Sub", of("Sub", slope, of.mean(slope, axes)), along))


def layer_norm_gradients(
    of: GraphBuilder, dy: Value, x: Value, scale: Value | None, mean: Value, rstd: Value, axes: Sequence[int]
) -> Three:
    """Return the gradients of a layer normalization over the last axes, which count from 0.

    Of means and reciprocals of standard deviations these have an extent of 1; a scale is broadcast to the data.
    """
    normal = of("Mul", of("Sub", x, mean), rstd)
    slope = dy if scale is None else of("Mul", dy, scale)
    others = [axis for axis in range(len(x.shape)) if axis not in axes]
    data = centred_data(of, slope, normal, rstd, axes)
    return data, of.sum(of("Mul", dy, normal), others), of.sum(dy, others)


def batch_norm_gradients(
    of: GraphBuilder,
    dy: Value,
    x: Value,
    scale: Value | None,
    middle: Value,
    rstd: Value,
    training: bool = True,
    count: Value | None = None,
) -> Three:
    """Return the gradients of a batch normalization of ``(N, C, ...)``, with means and other numbers ``(C)``.

    Means and deviations are those of the data in ``training``. ``count`` is the number of elements of a channel, by
    which means are sums; None: sums are computed by themselves.
    """
    rank = len(x.shape)
    middle, wide = per_channel(of, middle, rank), per_channel(of, rstd, rank)

    def distance() -> Value:  # written where it is read: that costs less than keeping it
        return of("Sub", x, middle)

    slope, along = channel_means(of, dy), of("Mul", channel_means(of, of("Mul", dy, distance())), wide)
    rest = dy
    if training:
        rest = of("Sub", of("Sub", dy, slope), of("Mul", distance(), of("Mul", along, wide)))
    data = of("Mul", rest, wide if scale is None else of("Mul", wide, per_channel(of, scale, rank)))
    if count is not None and dy.dtype in ("float32", "float64"):  # in 16 bits a mean may be too small
        scales, shifts = (of.reshape(of("Mul", each, count), x.shape[1:2]) for each in (along, slope))
        return data, scales, shifts
    return data, channel_sums(of, of("Mul", of("Mul", dy, distance()), wide)), channel_sums(of, dy)


def group_norm_gradients(
    of: GraphBuilder, dy: Value, x: Value, scale: Value | None, mean: Value, rstd: Value, groups: int
) -> Three:
    """Return the gradients of a group normalization of ``(N, C, ...)`` with a scale a channel.

    Means and reciprocals of standard deviations are ``(N, groups)``; as many groups as channels are an instance's.
    """
    images, rank = x.shape[0], len(x.shape)
    shape = (images, groups, prod(x.shape[1:]) // groups)
    middle, wide = (of.reshape(each, (images, groups, 1)) for each in (mean, rstd))
    normal = of("Mul", of("Sub", of.reshape(x, shape), middle), wide)
    slope = dy if scale is None else of("Mul", dy, per_channel(of, scale, rank))
    data = of.reshape(centred_data(of, of.reshape(slope, shape), normal, wide, (2,)), x.shape)
    weighted = of("Mul", dy, of.reshape(normal, x.shape))
    return data, channel_sums(of, weighted), channel_sums(of, dy)


def moments(of: GraphBuilder, x: Value, axes: Sequence[int], epsilon: float) -> tuple[Value, Value]:
    """Return the mean over some axes, which keep an extent of 1, and the reciprocal of the standard deviation."""
    middle = of.mean(x, axes)
    return middle, reciprocal_deviation(
        of, of.mean(of("Square", of("Sub", x, middle), domain="opbuild"), axes), epsilon
    )


def reciprocal_deviation(of: GraphBuilder, variance: Value, epsilon: float) -> Value:
    """Return ``1 / sqrt(variance + epsilon)``."""
    return of("Rsqrt", of("Add", variance, of.constant(epsilon, variance.dtype)), domain="opbuild")


@gradient("LayerNormalization")
def layer_normalization(of: Backward) -> Parts:
    """Differentiate a normalization over the last axes; scale and bias may be broadcast."""
    x, scale, bias = of.input(0), of.input(1), of.optional(2)
    if any(of.gradients[1:]):
        of.refuse("its mean or deviation is differentiated")
    axes = range(of.axis(-1, len(x.shape)), len(x.shape))
    middle, rstd = moments(of, x, axes, of.number("epsilon", 1e-5))
    dy, normal = of.gradient(), of("Mul", of("Sub", x, middle), rstd)
    data = centred_data(of, of("Mul", dy, scale), normal, rstd, axes) if of.wants(0) else None
    scales = summed_to(of, of("Mul", dy, normal), scale.shape) if of.wants(1) else None
    return data, scales, None if bias is None else summed_to(of, dy, bias.shape)


@gradient("RMSNormalization")
def root_mean_square(of: Backward) -> Parts:
    """Differentiate a division by the root of the mean square."""
    x, scale = of.input(0), of.input(1)
    axes = range(of.axis(-1, len(x.shape)), len(x.shape))
    rstd = reciprocal_deviation(of, of.mean(of("Square", x, domain="opbuild"), axes), of.number("epsilon", 1e-5))
    dy, normal = of.gradient(), of("Mul", x, rstd)
    slope = of("Mul", dy, scale)
    data = of("Mul", rstd, of("Sub", slope, of("Mul", normal, of.mean(of("Mul", slope, normal), axes))))
    return data, summed_to(of, of("Mul", dy, normal), scale.shape)


@gradient("BatchNormalization")
def batch_normalization(of: Backward) -> Parts:
    """Differentiate a normalization by given statistics, or by those of the batch (``training_mode``)."""
    x, scale = of.input(0), of.input(1)
    if any(of.gradients[1:]):
        of.refuse("its running statistics are differentiated")
    epsilon, training = of.number("epsilon", 1e-5), of.flag("training_mode")
    if training and of.number("momentum", 0.9) == 0 and len(of.outputs) == 3:
        middle, rstd = of.output(1), reciprocal_deviation(of, of.output(2), epsilon)
    elif training:
        middle = channel_means(of, x)
        variance = channel_means(of, of("Square", of("Sub", x, middle), domain="opbuild"))
        middle, rstd = (
            of.reshape(each, x.shape[1:2]) for each in (middle, reciprocal_deviation(of, variance, epsilon))
        )
    else:
        middle = of.cast(of.input(3), x.dtype)
        rstd = reciprocal_deviation(of, of.cast(of.input(4), x.dtype), epsilon)
    scale = of.cast(scale, x.dtype)
    number = 0 if is_open(x.shape) else prod((*x.shape[:1], *x.shape[2:]))
    count = of.constant(number, x.dtype) if number else None
    found = batch_norm_gradients(of, of.gradient(), x, scale, middle, rstd, training, count)
    return found if training else (*found, *_of_statistics(of, scale, rstd, *found[1:]))


def _of_statistics(of: GraphBuilder, scale: Value, rstd: Value, scales: Value, shifts: Value) -> tuple[Value, Value]:
    """Return the gradients of a given mean and variance, from those of scale and bias."""
    slope = of("Mul", scale, rstd)
    half = of("Mul", of("Mul", slope, rstd), of.constant(-0.5, rstd.dtype))
    return of("Neg", of("Mul", slope, shifts)), of("Mul", half, scales)


def _by_groups(of: Backward, groups: int) -> Parts:
    x = of.input(0)
    rows = of.reshape(x, (x.shape[0], groups, prod(x.shape[1:]) // groups))
    used = moments(of, rows, (2,), of.number("epsilon", 1e-5))
    middle, rstd = (of.reshape(each, (x.shape[0], groups)) for each in used)
    return group_norm_gradients(of, of.gradient(), x, of.input(1), middle, rstd, groups)


@gradient("LpNormalization")
def norm_division(of: Backward) -> Parts:
    """Differentiate a division by the Euclidean norm."""
    x, y = of.input(0), of.output()
    if int(of.node.attrs.get("p", 2)) != 2:
        of.refuse("only the norm of squares has one")
    axis = of.axis(-1, len(x.shape))
    norm = of("ReduceL2", x, of.ints(axis), keepdims=1)
    none = of("Equal", norm, of.constant(0.0, x.dtype))
    along = of("Mul", y, of.sum(of("Mul", of.gradient(), y), (axis,), keepdims=True))
    back = of("Div", of("Sub", of.gradient(), along), of("Where", none, of.constant(1.0, x.dtype), norm))
    return (of("Where", none, of.constant(0.0, x.dtype), back),)


RULES.register_all(
    {
        "InstanceNormalization": lambda of: _by_groups(of, of.input(0).shape[1]),
        "GroupNormalization": lambda of: _by_groups(of, int(of.node.attrs["num_groups"])),
    }
)
