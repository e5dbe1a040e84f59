"""Norms, and normalization by statistics that are computed: reductions and elementwise operators."""

from __future__ import annotations

from opbuild.graph.passes.composite.rewrite import KeptError, Rewrite, has_input, integers, reshaped, scalar
from opbuild.graph.passes.rewriter import Rewriter
from opbuild.graph.types import Node


def norm(to: Rewriter, node: Node, x: str, axes: tuple[int, ...], order: int, output: str = "") -> str:
    """Append the norm of some order over axes, which stay with an extent of 1."""
    listed = integers(to, node, axes)
    if order in (1, 2):
        return to.add(node, f"ReduceL{order}", (x, listed), output, keepdims=1)
    dtype = to.types[x].dtype
    powers = to.add(node, "Pow", (to.add(node, "Abs", (x,)), scalar(to, node, order, dtype)))
    total = to.add(node, "ReduceSum", (powers, listed), keepdims=1)
    return to.add(node, "Pow", (total, scalar(to, node, 1 / order, dtype)), output)


def _lp_normalization(to: Rewriter, node: Node) -> None:
    """LpNormalization: what has no length stays 0."""
    x = node.inputs[0]
    type_ = to.types[x]
    axis = int(node.attrs.get("axis", -1)) % len(type_.shape)
    length = norm(to, node, x, (axis,), int(node.attrs.get("p", 2)))
    zero = scalar(to, node, 0, type_.dtype)
    is_zero = to.add(node, "Equal", (length, zero))
    to.add(node, "Where", (is_zero, zero, to.add(node, "Div", (x, length))), node.outputs[0])


def _global_lp_pool(to: Rewriter, node: Node) -> None:
    """GlobalLpPool: the norm of each channel."""
    axes = tuple(range(2, len(to.types[node.inputs[0]].shape)))
    if not axes:
        raise KeptError
    norm(to, node, node.inputs[0], axes, int(node.attrs.get("p", 2)), node.outputs[0])


def _global_pool(to: Rewriter, node: Node) -> None:
    """GlobalAveragePool and GlobalMaxPool of what does not lie in channel blocks: a reduction."""
    type_ = to.types[node.inputs[0]]
    rank = len(type_.shape)
    if rank < 3 or not type_.size or (rank <= 4 and type_.dtype in ("float32", "float16")):
        raise KeptError
    axes = integers(to, node, range(2, rank))
    reduction = "ReduceMax" if node.op_type == "GlobalMaxPool" else "ReduceMean"
    to.add(node, reduction, (node.inputs[0], axes), node.outputs[0], keepdims=1)


def _lp_pool(to: Rewriter, node: Node) -> None:
    """LpPool of an order that no kernel has: the pool of powers by the first order."""
    order, x = int(node.attrs.get("p", 2)), node.inputs[0]
    dtype = to.types[x].dtype
    if order < 3:
        raise KeptError
    powers = to.add(node, "Pow", (to.add(node, "Abs", (x,)), scalar(to, node, order, dtype)))
    total = to.add(node, "LpPool", (powers,), **{**node.attrs, "p": 1})
    to.add(node, "Pow", (total, scalar(to, node, 1 / order, dtype)), node.outputs[0])


def _batch_normalization(to: Rewriter, node: Node) -> None:
    """BatchNormalization by the batch's own statistics, or with parameters that are known only at run time."""
    x, scale, bias, mean, variance = node.inputs
    type_, training = to.types[x], bool(node.attrs.get("training_mode", 0))
    if not training and all(name in to.constants for name in node.inputs[1:]):
        raise KeptError
    if len(type_.shape) < 2 or any(to.types[name].dtype != type_.dtype for name in node.inputs):
        raise KeptError
    channels = type_.shape[1]
    column = (1, channels, *(1 for _ in type_.shape[2:]))
    if training:
        own_mean, own_variance = _moments(to, node, x)
        kept = float(node.attrs.get("momentum", 0.9))
        for index, (before, now) in enumerate(((mean, own_mean), (variance, own_variance)), 1):
            if index < len(node.outputs) and node.outputs[index]:
                parts = [
                    to.add(node, "Mul", (value, scalar(to, node, factor, type_.dtype)))
                    for value, factor in ((before, kept), (reshaped(to, node, now, (channels,)), 1 - kept))
                ]
                to.add(node, "Add", (parts[0], parts[1]), node.outputs[index])
        mean, variance = own_mean, own_variance
    centred = to.add(node, "Sub", (x, reshaped(to, node, mean, column)))
    small = scalar(to, node, float(node.attrs.get("epsilon", 1e-5)), type_.dtype)
    deviation = to.add(node, "Sqrt", (to.add(node, "Add", (reshaped(to, node, variance, column), small)),))
    factor = to.add(node, "Div", (reshaped(to, node, scale, column), deviation))
    scaled = to.add(node, "Mul", (centred, factor))
    to.add(node, "Add", (scaled, reshaped(to, node, bias, column)), node.outputs[0])


def _layer_normalization(to: Rewriter, node: Node) -> None:
    """LayerNormalization that gives its statistics too."""
    x, scale = node.inputs[:2]
    type_ = to.types[x]
    if not any(node.outputs[1:]) or not type_.size or type_.dtype not in ("float32", "float16"):
        raise KeptError
    if int(node.attrs.get("stash_type", 1)) != 1:
        raise KeptError
    rank = len(type_.shape)
    axes = integers(to, node, range(int(node.attrs.get("axis", -1)) % rank, rank))
    wide = x if type_.dtype == "float32" else to.add(node, "Cast", (x,), to="float32")
    wanted = dict(enumerate(node.outputs))
    mean = to.add(node, "ReduceMean", (wide, axes), wanted.get(1, ""), keepdims=1)
    centred = to.add(node, "Sub", (wide, mean))
    variance = to.add(node, "ReduceMean", (to.add(node, "Mul", (centred, centred)), axes), keepdims=1)
    small = scalar(to, node, float(node.attrs.get("epsilon", 1e-5)), "float32")
    deviation = to.add(node, "Sqrt", (to.add(node, "Add", (variance, small)),))
    inverse = to.add(node, "Reciprocal", (deviation,), wanted.get(2, ""))
    found = to.add(node, "Mul", (centred, inverse))
    if type_.dtype != "float32":
        found = to.add(node, "Cast", (found,), to=type_.dtype)
    if not has_input(node, 2):
        to.add(node, "Mul", (found, scale), node.outputs[0])
        return
    to.add(node, "Add", (to.add(node, "Mul", (found, scale)), node.inputs[2]), node.outputs[0])


def _over_no_axes(to: Rewriter, node: Node) -> None:
    """A reduction that does nothing over no axes: what it does to a single element is left."""
    is_noop = bool(node.attrs.get("noop_with_empty_axes", 0))
    if not is_noop or (has_input(node, 1) and to.types[node.inputs[1]].size):
        raise KeptError
    x, output = node.inputs[0], node.outputs[0]
    if node.op_type in ("ReduceL1", "ReduceL2"):
        to.add(node, "Abs", (x,), output)
    elif node.op_type == "ReduceSumSquare":
        to.add(node, "Mul", (x, x), output)
    else:
        to.add(node, "Log" if node.op_type == "ReduceLogSum" else "Identity", (x,), output)


def _moments(to: Rewriter, node: Node, x: str) -> tuple[str, str]:
    """Append the mean and the variance of each channel, with an extent of 1 for the other dimensions."""
    images, planes = integers(to, node, (0,)), integers(to, node, range(2, len(to.types[x].shape)))

    def mean(value: str) -> str:
        if len(to.types[x].shape) > 2:
            value = to.add(node, "ReduceMean", (value, planes), keepdims=1)
        return to.add(node, "ReduceMean", (value, images), keepdims=1)

    own = mean(x)
    centred = to.add(node, "Sub", (x, own))
    return own, mean(to.add(node, "Mul", (centred, centred)))


_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")

REWRITES: dict[str, Rewrite] = {
    **dict.fromkeys((f"Reduce{name}" for name in _REDUCTIONS), _over_no_axes),
    "BatchNormalization": _batch_normalization,
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool"), _global_pool),
    "GlobalLpPool": _global_lp_pool,
    "LayerNormalization": _layer_normalization,
    "LpNormalization": _lp_normalization,
    "LpPool": _lp_pool,
}
