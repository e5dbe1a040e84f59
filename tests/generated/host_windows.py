"""Makers of cases for operators that slide windows, normalise or remember."""

from __future__ import annotations

from typing import Any

import numpy as np

from generated.host_cases import Case, Draw, makes

AUTO = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")


def _window(d: Draw, rank: int, kernel: list[int] | None = None, pads_below: bool = True) -> dict[str, Any]:
    """Return the attributes that windows share; paddings are smaller than the window unless told otherwise."""
    kernel = kernel or d.integers(rank, 1, 4)
    mode = d.one_of(*AUTO, "NOTSET", "NOTSET")
    attrs: dict[str, Any] = {
        "kernel_shape": kernel,
        "strides": d.maybe(d.integers(rank, 1, 3)),
        "dilations": d.maybe(d.integers(rank, 1, 3)),
        "auto_pad": mode if mode != "NOTSET" else None,
    }
    if mode == "NOTSET" and d.flag():
        attrs["pads"] = [d.integer(0, taps - 1 if pads_below else 2) for taps in kernel * 2]
    return attrs


@makes("MaxPool", "AveragePool", "LpPool")
def _pool(d: Draw, op_type: str) -> Case:
    rank = d.integer(1, 3)
    dtypes = {"MaxPool": ("float32", "float64", "float16", "int8", "uint8"), "AveragePool": ("float32",)}
    dtype = d.one_of(*dtypes.get(op_type, ("float32",)))
    attrs = {**_window(d, rank), "ceil_mode": d.maybe(1)}
    outputs = 1
    if op_type == "MaxPool":
        outputs, attrs["storage_order"] = d.integer(1, 2), d.maybe(1)
    elif op_type == "AveragePool":
        attrs["count_include_pad"] = d.maybe(1)
    else:
        attrs["p"] = d.one_of(None, 1, 2, 3)
    return Case(op_type, [d.array((*d.shape(2, 3), *d.shape(rank, 8)), dtype)], attrs, outputs)


@makes("GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool")
def _global_pool(d: Draw, op_type: str) -> Case:
    attrs = {"p": d.one_of(None, 1, 2, 3)} if op_type == "GlobalLpPool" else {}
    return Case(op_type, [d.array(d.shape(d.integer(3, 5)))], attrs)


@makes("MaxUnpool")
def _max_unpool(d: Draw, op_type: str) -> Case:
    rank = d.integer(1, 2)
    kernel = d.integers(rank, 1, 3)
    strides = d.integers(rank, 1, 3)
    shape = (*d.shape(2, 2), *d.shape(rank, 3))
    out = [(extent - 1) * stride + taps for extent, stride, taps in zip(shape[2:], strides, kernel, strict=True)]
    total = int(np.prod(shape[:2])) * int(np.prod(out))
    indices = np.sort(d.chosen(int(np.prod(shape)), total)) if total >= np.prod(shape) else np.arange(np.prod(shape))
    return Case(op_type, [d.array(shape), indices.reshape(shape)], {"kernel_shape": kernel, "strides": strides})


@makes("Conv", "ConvInteger")
def _conv(d: Draw, op_type: str) -> Case:
    rank, groups = d.integer(1, 3), d.one_of(1, 2, 3)
    attrs = _window(d, rank, pads_below=False)
    ins, outs = groups * d.integer(1, 3), groups * d.integer(1, 3)
    x, w = (d.integer(1, 2), ins, *d.shape(rank, 7)), (outs, ins // groups, *attrs["kernel_shape"])
    attrs["group"] = groups if groups > 1 else None
    if op_type == "Conv":
        return Case(op_type, [d.array(x), d.array(w), d.maybe(d.array((outs,)))], attrs)
    kind = d.one_of("uint8", "int8")
    inputs = [d.array(x, "uint8"), d.array(w, kind), d.maybe(d.array((), "uint8")), d.maybe(d.array((), kind))]
    return Case(op_type, inputs, attrs)


@makes("QLinearConv")
def _quantized_conv(d: Draw, op_type: str) -> Case:
    rank, groups = d.integer(1, 2), d.one_of(1, 2)
    attrs = _window(d, rank, pads_below=False)
    ins, outs = groups * d.integer(1, 2), groups * d.integer(1, 2)
    rows = d.one_of((), (outs,))
    kind = d.one_of("uint8", "int8")
    inputs = [
        d.array((1, ins, *d.shape(rank, 6)), kind), d.positive(()), d.array((), kind),
        d.array((outs, ins // groups, *attrs["kernel_shape"]), kind), d.positive(rows), np.zeros(rows, kind),
        d.positive(()), d.array((), kind), d.maybe(d.array((outs,), "int32")),
    ]  # fmt: skip
    attrs["group"] = groups if groups > 1 else None
    return Case(op_type, inputs, attrs)


@makes("ConvTranspose")
def _conv_transpose(d: Draw, op_type: str) -> Case:
    rank, groups = d.integer(1, 3), d.one_of(1, 2, 3)
    attrs = _window(d, rank, pads_below=False)
    x = (d.integer(1, 2), groups * d.integer(1, 2), *d.shape(rank, 5))
    w = (x[1], d.integer(1, 3), *attrs["kernel_shape"])
    if d.flag():
        limits = zip(attrs["strides"] or [1] * rank, attrs["dilations"] or [1] * rank, strict=True)
        attrs["output_padding"] = [d.integer(0, max(stride, dilation) - 1) for stride, dilation in limits]
    if d.flag() and not attrs.get("pads"):
        extra = attrs.get("output_padding") or [0] * rank
        parts = zip(x[2:], w[2:], attrs["strides"] or [1] * rank, attrs["dilations"] or [1] * rank, extra, strict=True)
        whole = [(size - 1) * s + (taps - 1) * dil + 1 + more for size, taps, s, dil, more in parts]
        attrs["output_shape"] = [max(extent - d.integer(0, 2), 1) for extent in whole]
    attrs["group"] = groups if groups > 1 else None
    return Case(op_type, [d.array(x), d.array(w), d.maybe(d.array((groups * w[1],)))], attrs)


@makes("LpNormalization")
def _lp_normalization(d: Draw, op_type: str) -> Case:
    rank = d.integer(1, 4)
    x = d.array(d.shape(rank), d.one_of("float32", "float64"))
    return Case(op_type, [x * (d.array(x.shape, "bool"))], {"axis": d.axis(rank), "p": d.one_of(None, 1, 2)})


@makes("InstanceNormalization", "BatchNormalization", "LRN", "MeanVarianceNormalization", "GroupNormalization")
def _channels(d: Draw, op_type: str) -> Case:
    groups = d.integer(1, 3) if op_type == "GroupNormalization" else 1
    x = d.array(
        (d.integer(0 if op_type == "InstanceNormalization" else 1, 2), groups * d.integer(1, 4), *d.shape(2, least=2))
    )
    count = x.shape[1]
    if op_type == "LRN":
        attrs = {"size": d.one_of(1, 3, 5), "alpha": d.one_of(None, 0.5), "bias": d.one_of(None, 2.0)}
        return Case(op_type, [x], {**attrs, "beta": d.one_of(None, 0.5)})
    if op_type == "MeanVarianceNormalization":
        return Case(op_type, [x], {"axes": d.one_of(None, [0, 2, 3], [2, 3])})
    attrs = {"epsilon": d.one_of(None, 0.1)}
    if op_type == "GroupNormalization":
        attrs["num_groups"] = groups
    inputs = [x, d.array((count,)), d.array((count,))]
    if op_type == "BatchNormalization":
        inputs += [d.array((count,)), d.positive((count,))]
    return Case(op_type, inputs, attrs)


@makes("LayerNormalization", "RMSNormalization")
def _rows(d: Draw, op_type: str) -> Case:
    rank = d.integer(1, 4)
    x, axis = d.array(d.shape(rank)), d.axis(rank)
    shape = x.shape[axis:]
    attrs = {"axis": axis, "epsilon": d.one_of(None, 0.1)}
    if op_type == "RMSNormalization":
        return Case(op_type, [x, d.array(shape)], attrs, opset=23)
    return Case(op_type, [x, d.array(shape), d.maybe(d.array(shape))], attrs, d.one_of(1, 3))


ACTIVATIONS = (
    "Tanh", "Sigmoid", "Relu", "Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu",
    "Softsign", "Softplus",
)  # fmt: skip
WITH_ALPHA = ("Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu")
WITH_BETA = ("Affine", "ScaledTanh", "HardSigmoid")


@makes("RNN", "GRU", "LSTM")
def _recurrent(d: Draw, op_type: str) -> Case:
    gates, count = {"RNN": (1, 1), "GRU": (3, 2), "LSTM": (4, 3)}[op_type]
    steps, batch, size, hidden = d.shape(4, 4)
    direction = d.one_of("forward", "reverse", "bidirectional")
    ways = 2 if direction == "bidirectional" else 1
    state = (ways, batch, hidden)
    inputs = [d.array((steps, batch, size)), d.array((ways, gates * hidden, size)) / 8]
    inputs += [d.array((ways, gates * hidden, hidden)) / 8]
    optional = [d.array((ways, 2 * gates * hidden)), d.below((batch,), steps + 1, "int32"), d.array(state) / 4]
    if op_type == "LSTM":
        optional += [d.array(state) / 4, d.array((ways, 3 * hidden)) / 4]
    attrs: dict[str, Any] = {"hidden_size": hidden, "direction": direction, "clip": d.one_of(None, 0.5, 2.0)}
    if d.flag():
        names = [d.one_of(*ACTIVATIONS) for _ in range(count * ways)]
        attrs["activations"] = names
        attrs["activation_alpha"] = [d.integer(1, 8) / 8 for name in names if name in WITH_ALPHA]
        attrs["activation_beta"] = [d.integer(1, 8) / 8 for name in names if name in WITH_BETA]
    if op_type != "RNN":
        attrs["linear_before_reset" if op_type == "GRU" else "input_forget"] = d.maybe(1)
    return Case(op_type, [*inputs, *map(d.maybe, optional)], attrs, 3 if op_type == "LSTM" else 2)


@makes("PRelu")
def _prelu(d: Draw, op_type: str) -> Case:
    shape = d.shape(d.integer(1, 4))
    shapes = [tuple(1 if d.flag() else extent for extent in shape[d.integer(0, len(shape) - 1) :]) for _ in range(2)]
    return Case(op_type, [d.array(each) for each in shapes])
