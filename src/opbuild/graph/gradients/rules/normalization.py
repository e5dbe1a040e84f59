"""Gradients of normalisations, whose means and deviations are computed again where nobody kept them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from opbuild.graph.extents import is_open
from opbuild.graph.gradients.broadcasting import channel_means, mean, summed_to, total
from opbuild.graph.gradients.normalization import batch_norm_gradients, centred_data, group_norm_gradients
from opbuild.graph.gradients.registry import Call, gradient
from opbuild.graph.graph_builder import GraphBuilder, Value

Parts = Sequence[Value | None]


def moments(of: GraphBuilder, x: Value, axes: Sequence[int], epsilon: float) -> tuple[Value, Value]:
    """Return the mean over some axes, which keep an extent of 1, and the reciprocal of the standard deviation."""
    middle = mean(of, x, axes)
    return middle, reciprocal_deviation(
        of, mean(of, of("Square", of("Sub", x, middle), domain="opbuild"), axes), epsilon
    )


def reciprocal_deviation(of: GraphBuilder, variance: Value, epsilon: float) -> Value:
    """Return ``1 / sqrt(variance + epsilon)``."""
    return of("Rsqrt", of("Add", variance, of.constant(epsilon, variance.dtype)), domain="opbuild")


@gradient("LayerNormalization")
def layer_normalization(call: Call) -> Parts:
    """Differentiate a normalization over the last axes; scale and bias may be broadcast."""
    of, x, scale, bias = call.of, call.input(0), call.input(1), call.optional(2)
    if any(call.gradients[1:]):
        call.refuse("its mean or deviation is differentiated")
    axes = range(call.axis(-1, len(x.shape)), len(x.shape))
    middle, rstd = moments(of, x, axes, call.number("epsilon", 1e-5))
    dy, normal = call.gradient(), of("Mul", of("Sub", x, middle), rstd)
    data = centred_data(of, of("Mul", dy, scale), normal, rstd, axes) if call.wants(0) else None
    scales = summed_to(of, of("Mul", dy, normal), scale.shape) if call.wants(1) else None
    return data, scales, None if bias is None else summed_to(of, dy, bias.shape)


@gradient("RMSNormalization")
def root_mean_square(call: Call) -> Parts:
    """Differentiate a division by the root of the mean square."""
    of, x, scale = call.of, call.input(0), call.input(1)
    axes = range(call.axis(-1, len(x.shape)), len(x.shape))
    rstd = reciprocal_deviation(of, mean(of, of("Square", x, domain="opbuild"), axes), call.number("epsilon", 1e-5))
    dy, normal = call.gradient(), of("Mul", x, rstd)
    slope = of("Mul", dy, scale)
    data = of("Mul", rstd, of("Sub", slope, of("Mul", normal, mean(of, of("Mul", slope, normal), axes))))
    return data, summed_to(of, of("Mul", dy, normal), scale.shape)


@gradient("BatchNormalization")
def batch_normalization(call: Call) -> Parts:
    """Differentiate a normalization by given statistics, or by those of the batch (``training_mode``)."""
    of, x, scale = call.of, call.input(0), call.input(1)
    if any(call.gradients[1:]):
        call.refuse("its running statistics are differentiated")
    epsilon, training = call.number("epsilon", 1e-5), call.flag("training_mode")
    if training and call.number("momentum", 0.9) == 0 and len(call.outputs) == 3:
        middle, rstd = call.output(1), reciprocal_deviation(of, call.output(2), epsilon)
    elif training:
        middle = channel_means(of, x)
        variance = channel_means(of, of("Square", of("Sub", x, middle), domain="opbuild"))
        middle, rstd = (
            of.reshape(each, x.shape[1:2]) for each in (middle, reciprocal_deviation(of, variance, epsilon))
        )
    else:
        middle = of.cast(call.input(3), x.dtype)
        rstd = reciprocal_deviation(of, of.cast(call.input(4), x.dtype), epsilon)
    scale = of.cast(scale, x.dtype)
    number = 0 if is_open(x.shape) else prod((*x.shape[:1], *x.shape[2:]))
    count = of.constant(number, x.dtype) if number else None
    found = batch_norm_gradients(of, call.gradient(), x, scale, middle, rstd, training, count)
    return found if training else (*found, *_of_statistics(of, scale, rstd, *found[1:]))


def _of_statistics(of: GraphBuilder, scale: Value, rstd: Value, scales: Value, shifts: Value) -> tuple[Value, Value]:
    """Return the gradients of a given mean and variance, from those of scale and bias."""
    slope = of("Mul", scale, rstd)
    half = of("Mul", of("Mul", slope, rstd), of.constant(-0.5, rstd.dtype))
    return of("Neg", of("Mul", slope, shifts)), of("Mul", half, scales)


@gradient("InstanceNormalization")
def instance_normalization(call: Call) -> Parts:
    """Differentiate a normalization of each channel of each image."""
    return _by_groups(call, call.input(0).shape[1])


@gradient("GroupNormalization")
def group_normalization(call: Call) -> Parts:
    """Differentiate a normalization of groups of channels."""
    return _by_groups(call, int(call.node.attrs["num_groups"]))


def _by_groups(call: Call, groups: int) -> Parts:
    of, x = call.of, call.input(0)
    rows = of.reshape(x, (x.shape[0], groups, prod(x.shape[1:]) // groups))
    used = moments(of, rows, (2,), call.number("epsilon", 1e-5))
    middle, rstd = (of.reshape(each, (x.shape[0], groups)) for each in used)
    return group_norm_gradients(of, call.gradient(), x, call.input(1), middle, rstd, groups)


@gradient("LpNormalization")
def norm_division(call: Call) -> Parts:
    """Differentiate a division by the Euclidean norm."""
    of, x, y = call.of, call.input(0), call.output()
    if int(call.node.attrs.get("p", 2)) != 2:
        call.refuse("only the norm of squares has one")
    axis = call.axis(-1, len(x.shape))
    norm = of("ReduceL2", x, of.ints(axis), keepdims=1)
    none = of("Equal", norm, of.constant(0.0, x.dtype))
    along = of("Mul", y, total(of, of("Mul", call.gradient(), y), (axis,), keepdims=True))
    back = of("Div", of("Sub", call.gradient(), along), of("Where", none, of.constant(1.0, x.dtype), norm))
    return (of("Where", none, of.constant(0.0, x.dtype), back),)
