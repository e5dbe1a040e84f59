"""Gradients of normalisations, from the means and reciprocal deviations that were used."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from opbuild.graph.gradients.broadcasting import channel_means, mean, per_channel, total
from opbuild.graph.graph_builder import GraphBuilder, Value

Three = tuple[Value, Value, Value]
"""Gradients of data, scale and bias."""


def centred_data(of: GraphBuilder, slope: Value, normal: Value, rstd: Value, axes: Sequence[int]) -> Value:
    """Return the gradient of ``x`` in ``normal = (x - mean(x)) * rstd(x)``, given that of ``normal``."""
    along = of("Mul", normal, mean(of, of("Mul", slope, normal), axes))
    return of("Mul", rstd, of("Sub", of("Sub", slope, mean(of, slope, axes)), along))


def layer_norm_gradients(
    of: GraphBuilder, dy: Value, x: Value, scale: Value | None, mean: Value, rstd: Value, axes: Sequence[int]
) -> Three:
    """Return the gradients of a layer normalization over the last axes.

    Args:
        of: Writes the operators.
        dy: The gradient of its output.
        x: Its data.
        scale: Its scale, broadcast to the data; None for none.
        mean: The means, with ``axes`` of extent 1, as of ``rstd``.
        rstd: The reciprocals of the standard deviations.
        axes: The axes that are normalised: the last ones, from 0.
    """
    normal = of("Mul", of("Sub", x, mean), rstd)
    slope = dy if scale is None else of("Mul", dy, scale)
    others = [axis for axis in range(len(x.shape)) if axis not in axes]
    data = centred_data(of, slope, normal, rstd, axes)
    return data, total(of, of("Mul", dy, normal), others), total(of, dy, others)


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
    """Return the gradients of a batch normalization.

    Args:
        of: Writes the operators.
        dy: The gradient of its output, (N, C, ...).
        x: Its data.
        scale: Its scale, (C); None for none.
        middle: The means, (C).
        rstd: The reciprocals of the standard deviations, (C).
        training: Whether means and deviations are those of the data.
        count: The elements of a channel, by which means are sums; None: sums are computed by themselves.
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
    axes = [axis for axis in range(rank) if axis != 1]
    return data, total(of, of("Mul", of("Mul", dy, distance()), wide), axes), total(of, dy, axes)


def group_norm_gradients(
    of: GraphBuilder, dy: Value, x: Value, scale: Value | None, mean: Value, rstd: Value, groups: int
) -> Three:
    """Return the gradients of a group normalization with a scale a channel.

    Args:
        of: Writes the operators.
        dy: The gradient of its output, (N, C, ...).
        x: Its data.
        scale: Its scale, (C); None for none.
        mean: The means, (N, groups), as of ``rstd``.
        rstd: The reciprocals of the standard deviations.
        groups: Groups of channels; as many as channels are an instance normalization.
    """
    images, rank = x.shape[0], len(x.shape)
    shape = (images, groups, prod(x.shape[1:]) // groups)
    middle, wide = (of.reshape(each, (images, groups, 1)) for each in (mean, rstd))
    normal = of("Mul", of("Sub", of.reshape(x, shape), middle), wide)
    slope = dy if scale is None else of("Mul", dy, per_channel(of, scale, rank))
    data = of.reshape(centred_data(of, of.reshape(slope, shape), normal, wide, (2,)), x.shape)
    axes = [axis for axis in range(rank) if axis != 1]
    weighted = of("Mul", dy, of.reshape(normal, x.shape))
    return data, total(of, weighted, axes), total(of, dy, axes)
