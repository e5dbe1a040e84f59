"""Gradients of convolutions and pools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opbuild.graph.gradients.broadcasting import channel_sums
from opbuild.graph.gradients.convolution import (
    convolution_data,
    convolution_weight,
    transposed_data,
    transposed_weight,
)
from opbuild.graph.gradients.pooling import average_pool_data, global_average_data, max_pool_data
from opbuild.graph.gradients.registry import Call, gradient
from opbuild.graph.gradients.rules.reduction import reduced_extreme
from opbuild.graph.graph_builder import Value
from opbuild.graph.shape_rules_window import transposed_range, window_pads

Parts = Sequence[Value | None]


@gradient("Conv")
def convolution(call: Call) -> Parts:
    """Differentiate a convolution: data, weights and bias."""
    of, x, w, dy = call.of, call.input(0), call.input(1), call.gradient()
    attrs = _attributes(call, window_pads(call.shapes(), x.shape[2:], w.shape[2:]))
    return (
        convolution_data(of, dy, w, x.shape, **attrs) if call.wants(0) else None,
        convolution_weight(of, x, dy, w.shape, **attrs) if call.wants(1) else None,
        channel_sums(of, dy) if call.wants(2) else None,
    )


@gradient("ConvTranspose")
def transposed_convolution(call: Call) -> Parts:
    """Differentiate a transposed convolution: data, weights and bias."""
    of, x, w, dy = call.of, call.input(0), call.input(1), call.gradient()
    begins, _ = transposed_range(call.shapes())
    spatial = zip(x.shape[2:], w.shape[2:], dy.shape[2:], _per_axis(call, "strides"), _per_axis(call, "dilations"),
                  begins, strict=True)  # fmt: skip
    reach = [
        (size - 1) * stride + (taps - 1) * step + 1 - out - begin for size, taps, out, stride, step, begin in spatial
    ]
    attrs = _attributes(call, (*begins, *(max(0, each) for each in reach)))
    return (
        transposed_data(of, dy, w, x.shape, **attrs) if call.wants(0) else None,
        transposed_weight(of, x, dy, w.shape, **attrs) if call.wants(1) else None,
        channel_sums(of, dy) if call.wants(2) else None,
    )


@gradient("ConvWeightGradient", domain="opbuild")
def weight_gradient(call: Call) -> Parts:
    """Differentiate the gradient of a convolution's weights, which is linear in its data and in that of its output."""
    of, x, dy, dw = call.of, call.input(0), call.input(1), call.gradient()
    attrs = _attributes(call, call.ints("pads", (0,) * (2 * len(x.shape) - 4)))
    return (
        convolution_data(of, dy, dw, x.shape, **attrs) if call.wants(0) else None,
        transposed_data(of, x, dw, dy.shape, **attrs) if call.wants(1) else None,
    )


@gradient("MaxPool")
def greatest(call: Call) -> Parts:
    """Give each window's part to the first of its greatest elements; where they stand is asked of the pool again."""
    x = call.input(0)
    by_columns = int(call.node.attrs.get("storage_order", 0))
    places = call.outputs[1] if len(call.outputs) > 1 and not by_columns else None
    if places is None:
        places = call.of.several("MaxPool", 2, x, **{**call.node.attrs, "storage_order": 0})[1]
    return (max_pool_data(call.of, call.gradient(), places, x.shape),)


@gradient("AveragePool")
def average(call: Call) -> Parts:
    """Divide each window's part among its elements."""
    x, kernel = call.input(0), call.ints("kernel_shape", ())
    attrs = _attributes(call, window_pads(call.shapes(), x.shape[2:], kernel))
    del attrs["group"]
    counted = call.flag("count_include_pad")
    return (
        average_pool_data(call.of, call.gradient(), x.shape, kernel_shape=kernel, count_include_pad=counted, **attrs),
    )


@gradient("LpPool")
def norm_of_window(call: Call) -> Parts:
    """Differentiate the norms of windows of the first or second order; others are made of powers."""
    of, x, dy, kernel = call.of, call.input(0), call.gradient(), call.ints("kernel_shape", ())
    order, zero = int(call.node.attrs.get("p", 2)), of.constant(0.0, x.dtype)
    attrs = _attributes(call, window_pads(call.shapes(), x.shape[2:], kernel))
    del attrs["group"]
    if order == 2:  # a norm of 0 gives nothing
        none = of("Equal", call.output(), zero)
        dy = of("Where", none, zero, of("Div", dy, of("Where", none, of.constant(1.0, x.dtype), call.output())))
    elif order != 1:
        call.refuse(f"its order is {order}")
    parts = average_pool_data(of, dy, x.shape, kernel_shape=kernel, divisor=1, **attrs)
    return (of("Mul", parts, x if order == 2 else of("Sign", x)),)


@gradient("GlobalAveragePool")
def global_average(call: Call) -> Parts:
    """Divide each channel's part among its elements."""
    return (global_average_data(call.of, call.gradient(), call.input(0).shape),)


@gradient("GlobalMaxPool")
def global_greatest(call: Call) -> Parts:
    """Divide each channel's part among its greatest elements."""
    axes = call.of.ints(*range(2, len(call.input(0).shape)))
    inputs = (call.input(0), axes)
    return reduced_extreme(
        Call(call.of, call.node.with_(op_type="ReduceMax", attrs={"keepdims": 1}), inputs, call.outputs, call.gradients,
             call.wanted)
    )  # fmt: skip


def _attributes(call: Call, pads: Sequence[int]) -> dict[str, Any]:
    return {
        "strides": _per_axis(call, "strides"),
        "pads": tuple(pads),
        "dilations": _per_axis(call, "dilations"),
        "group": int(call.node.attrs.get("group", 1)),
    }


def _per_axis(call: Call, name: str) -> tuple[int, ...]:
    return call.ints(name, (1,) * (len(call.input(0).shape) - 2))
