"""Norms, and normalization by statistics that are computed: reductions and elementwise operators."""

from __future__ import annotations

from opbuild.graph.graph_builder import Value
from opbuild.graph.passes.composite import REWRITES
from opbuild.graph.passes.rewriter import KeptError, PassBuilder

_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")


def norm(of: PassBuilder, x: str, axes: tuple[int, ...], order: int, output: str = "") -> Value:
    """Append the norm of some order over axes, which stay with an extent of 1."""
    listed = of.integers(axes)
    if order in (1, 2):
        return of(f"ReduceL{order}", x, listed, output=output, keepdims=1)
    dtype = of.types[x].dtype
    powers = of("Pow", of("Abs", x), of.constant(order, dtype))
    total = of("ReduceSum", powers, listed, keepdims=1)
    return of("Pow", total, of.constant(1 / order, dtype), output=output)


@REWRITES.register("LpNormalization")
def _lp_normalization(of: PassBuilder) -> None:
    """LpNormalization: a vector without length stays 0."""
    x = of.input(0)
    length = norm(of, x, (int(of.attr("axis", -1)) % len(x.shape),), int(of.attr("p", 2)))
    zero = of.constant(0, x.dtype)
    of("Where", of("Equal", length, zero), zero, of("Div", x, length), output=of.outputs[0])


@REWRITES.register("GlobalLpPool")
def _global_lp_pool(of: PassBuilder) -> None:
    """GlobalLpPool: the norm of each channel."""
    axes = tuple(range(2, len(of.input(0).shape)))
    if not axes:
        raise KeptError
    norm(of, of.input(0), axes, int(of.attr("p", 2)), of.outputs[0])


@REWRITES.register("GlobalAveragePool", "GlobalMaxPool")
def _global_pool(of: PassBuilder) -> None:
    """GlobalAveragePool and GlobalMaxPool of values that do not lie in channel blocks: a reduction."""
    x, reduction = of.input(0), "ReduceMax" if of.node.op_type == "GlobalMaxPool" else "ReduceMean"
    rank = len(x.shape)
    if rank < 3 or not x.type.size or (rank <= 4 and x.dtype in ("float32", "float16")):
        raise KeptError
    of(reduction, x, of.integers(range(2, rank)), output=of.outputs[0], keepdims=1)


@REWRITES.register("LpPool")
def _lp_pool(of: PassBuilder) -> None:
    """LpPool of an order that no kernel has: the pool of powers by the first order."""
    order, x = int(of.attr("p", 2)), of.input(0)
    if order < 3:
        raise KeptError
    powers = of("Pow", of("Abs", x), of.constant(order, x.dtype))
    total = of("LpPool", powers, **{**of.node.attrs, "p": 1})
    of("Pow", total, of.constant(1 / order, x.dtype), output=of.outputs[0])


@REWRITES.register("BatchNormalization")
def _batch_normalization(of: PassBuilder) -> None:
    """BatchNormalization by the batch's own statistics, or with parameters that are known only at run time."""
    x, scale, bias, mean, variance = of.inputs
    type_, training = of.types[x], bool(of.attr("training_mode", 0))
    if not training and all(name in of.constants for name in of.inputs[1:]):
        raise KeptError
    if len(type_.shape) < 2 or any(of.types[name].dtype != type_.dtype for name in of.inputs):
        raise KeptError
    channels = type_.shape[1]
    column = (1, channels, *(1 for _ in type_.shape[2:]))
    if training:
        own_mean, own_variance = _moments(of, x)
        kept = float(of.attr("momentum", 0.9))
        for index, (before, now) in enumerate(((mean, own_mean), (variance, own_variance)), 1):
            if index < len(of.outputs) and of.outputs[index]:
                parts = [
                    of("Mul", value, of.constant(factor, type_.dtype))
                    for value, factor in ((before, kept), (of.reshape(now, (channels,)), 1 - kept))
                ]
                of("Add", parts[0], parts[1], output=of.outputs[index])
        mean, variance = own_mean, own_variance
    centred = of("Sub", x, of.reshape(mean, column))
    small = of.constant(float(of.attr("epsilon", 1e-5)), type_.dtype)
    deviation = of("Sqrt", of("Add", of.reshape(variance, column), small))
    scaled = of("Mul", centred, of("Div", of.reshape(scale, column), deviation))
    of("Add", scaled, of.reshape(bias, column), output=of.outputs[0])


@REWRITES.register("LayerNormalization")
def _layer_normalization(of: PassBuilder) -> None:
    """LayerNormalization that gives its statistics too."""
    x, scale = of.inputs[:2]
    type_ = of.types[x]
    is_served = type_.size and type_.dtype in ("float32", "float16") and int(of.attr("stash_type", 1)) == 1
    if not any(of.outputs[1:]) or not is_served:
        raise KeptError
    rank = len(type_.shape)
    axes = of.integers(range(int(of.attr("axis", -1)) % rank, rank))
    wide = x if type_.dtype == "float32" else of("Cast", x, to="float32")
    wanted = dict(enumerate(of.outputs))
    mean = of("ReduceMean", wide, axes, output=wanted.get(1, ""), keepdims=1)
    centred = of("Sub", wide, mean)
    variance = of("ReduceMean", of("Mul", centred, centred), axes, keepdims=1)
    small = of.constant(float(of.attr("epsilon", 1e-5)), "float32")
    inverse = of("Reciprocal", of("Sqrt", of("Add", variance, small)), output=wanted.get(2, ""))
    found = of("Mul", centred, inverse)
    if type_.dtype != "float32":
        found = of("Cast", found, to=type_.dtype)
    if not of.has(2):
        of("Mul", found, scale, output=of.outputs[0])
        return
    of("Add", of("Mul", found, scale), of.input(2), output=of.outputs[0])


@REWRITES.register(*(f"Reduce{name}" for name in _REDUCTIONS))
def _over_no_axes(of: PassBuilder) -> None:
    """A reduction over no axes: its effect on a single element is left."""
    is_noop = bool(of.attr("noop_with_empty_axes", 0))
    if not is_noop or (of.has(1) and of.input(1).type.size):
        raise KeptError
    x, output = of.input(0), of.outputs[0]
    if of.node.op_type in ("ReduceL1", "ReduceL2"):
        of("Abs", x, output=output)
    elif of.node.op_type == "ReduceSumSquare":
        of("Mul", x, x, output=output)
    else:
        of("Log" if of.node.op_type == "ReduceLogSum" else "Identity", x, output=output)


def _moments(of: PassBuilder, x: str) -> tuple[str, str]:
    """Append the mean and the variance of each channel, with an extent of 1 for the other dimensions."""
    images, planes = of.ints(0), of.integers(range(2, len(of.types[x].shape)))

    def mean(value: str) -> str:
        if len(of.types[x].shape) > 2:
            value = of("ReduceMean", value, planes, keepdims=1)
        return of("ReduceMean", value, images, keepdims=1)

    own = mean(x)
    centred = of("Sub", x, own)
    return own, mean(of("Mul", centred, centred))


_BINARY = {"Sum": "Add", "Mean": "Add", "Max": "Max", "Min": "Min"}


@REWRITES.register(*_BINARY)
def _variadic(of: PassBuilder) -> None:
    first, *others = of.inputs
    is_mean = of.node.op_type == "Mean" and bool(others)
    if not others:
        of("Identity", first, output=of.outputs[0])
    for place, other in enumerate(others, 1):
        output = "" if is_mean or place < len(others) else of.outputs[0]
        first = of(_BINARY[of.node.op_type], first, other, output=output)
    if is_mean:
        of("Div", first, of.constant(len(of.inputs), of.types[first].dtype), output=of.outputs[0])


@REWRITES.register("MeanVarianceNormalization")
def _mean_variance(of: PassBuilder) -> None:
    (x,) = of.inputs
    axes, small = of.ints(*of.attr("axes", (0, 2, 3))), of.constant(1e-9, of.types[x].dtype)
    centred = of("Sub", x, of("ReduceMean", x, axes, keepdims=1))
    variance = of("ReduceMean", of("Mul", centred, centred), axes, keepdims=1)
    of("Div", centred, of("Add", of("Sqrt", variance), small), output=of.outputs[0])
