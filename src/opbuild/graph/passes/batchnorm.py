"""BatchNormalization and other steps by channel, folded into the weights of the operator before them.

A step by channel is ``y = x * scale + shift`` with one scale and one shift a channel (dimension 1):
BatchNormalization, and Add, Sub, Mul and Div by a constant of that shape. Chains of them are composed in float64 and
rounded once. What follows no convolution becomes one BatchNormalization with mean 0, variance 1 and epsilon 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from opbuild.config import available_cores
from opbuild.dtypes import numpy_dtype
from opbuild.graph.constants import SCALED, Deferred, numbers_of, scaled
from opbuild.graph.extents import is_open
from opbuild.graph.factors import Magnitudes, cancel, keep_digits, magnitudes
from opbuild.graph.passes.cleanup import eliminate_dead
from opbuild.graph.passes.infer import node_error_context
from opbuild.graph.passes.rewriter import KeptError, NewGraph, PassBuilder, Rewrite, rewritten
from opbuild.graph.types import Array, Graph, Node
from opbuild.platform.background import parallel_map
from opbuild.platform.records import dataclass

_FLOATS = ("float32", "float64")
"""Types in which steps are composed: a float16 between two of them is a value of the model, with few digits."""

WEIGHTED = ("Conv", "ConvTranspose", "Gemm")
"""Operators into whose weights a step by channel may be folded."""


@dataclass(frozen=True)
class ChannelScale:
    """The scale and the shift of a channel's values, in float64."""

    scale: Array
    shift: Array

    def then(self, other: ChannelScale) -> ChannelScale:
        """Return this step and another one after it as one step."""
        return ChannelScale(self.scale * other.scale, self.shift * other.scale + other.shift)

    def fits(self, dtype: str) -> bool:
        """Return whether a type holds its numbers with all their digits."""
        with np.errstate(all="ignore"):
            shift = self.shift.astype(dtype)
        return keep_digits(dtype, self.scale, np.ones(1)) and bool(np.isfinite(shift).all())


def fold_batchnorm(graph: Graph) -> Graph:
    """Fold steps by channel into the convolution, product or normalization whose result only they read.

    Where a scale, a shift or a folded weight would not be finite, or have fewer digits than it should, the nodes stay
    as they are: infinity times zero in a weight, or a denormal, is not what the network computes.
    """
    readers = {name: len(nodes) for name, nodes in graph.consumers().items()}
    readers.update((name, 2) for name in graph.outputs)  # an output may not be folded away
    nodes: dict[str, Node] = {}
    steps: dict[str, ChannelScale] = {}
    own_steps = _own_steps(graph)
    known = _magnitudes(graph, own_steps)
    for node, step in zip(graph.nodes, own_steps, strict=True):
        key = node.outputs[0] or node.name
        if step is None:
            nodes[key] = node
            continue
        source = node.inputs[0]
        before = nodes.get(source)
        if before is None and node.op_type in ("Add", "Mul"):  # the constant may stand first
            source = node.inputs[1]
            before = nodes.get(source)
        if before is not None and readers.get(source, 0) == 1 and _takes_steps(before, graph):
            whole = steps[source].then(step) if source in steps else step
            if _takes(before, graph, whole, known) and not _rounds(before, graph, steps.get(source), step):
                taken = nodes.pop(source)
                nodes[key] = taken.taking(node)
                steps.pop(source, None)
                steps[key] = whole
                continue
        nodes[key] = node
        if node.op_type == "BatchNormalization":
            steps[key] = step
    return _rebuilt(graph, nodes, steps)


def _own_steps(graph: Graph) -> list[ChannelScale | None]:
    """Return the step by channel that each node is, None for those that are none."""
    steps = []
    for node in graph.nodes:
        with node_error_context(node):
            steps.append(_step(node, graph))
    return steps


def _magnitudes(graph: Graph, steps: Sequence[ChannelScale | None]) -> dict[str, Magnitudes]:
    """Return the magnitudes of the weights before each step, by name, read by all cores in half the time."""
    read = {name for node, step in zip(graph.nodes, steps, strict=True) if step is not None for name in node.inputs}
    before = [node for node in graph.nodes if node.op_type in WEIGHTED and not read.isdisjoint(node.outputs)]
    names = list(dict.fromkeys(node.inputs[1] for node in before if _takes_steps(node, graph)))
    found = parallel_map(lambda name: magnitudes(graph.constants[name]), names, available_cores(), "opbuild-weights")
    return dict(zip(names, found, strict=True))


def _takes_steps(node: Node, graph: Graph) -> bool:
    if node.domain or any(node.outputs[1:]):
        return False
    if node.op_type == "BatchNormalization":
        return _step(node, graph) is not None
    if node.op_type not in WEIGHTED or node.inputs[1] not in graph.constants:
        return False
    has_bias = len(node.inputs) > 2 and bool(node.inputs[2])
    if has_bias and node.inputs[2] not in graph.constants:
        return False
    return graph.types[node.inputs[1]].dtype in _FLOATS


def _step(node: Node, graph: Graph) -> ChannelScale | None:
    """Return a node's scale and shift by channel, or None if it has none."""
    if node.domain or graph.types[node.outputs[0] or node.inputs[0]].dtype not in _FLOATS:
        return None
    if node.op_type == "BatchNormalization":
        return batchnorm_step(node, graph.constants)
    if node.op_type not in ("Add", "Sub", "Mul", "Div"):
        return None
    first, second = node.inputs
    value = graph.constants.get(second)
    data = first
    if value is None and node.op_type in ("Add", "Mul"):
        value, data = graph.constants.get(first), second
    if value is None or data in graph.constants:
        return None
    shape = graph.types[data].shape
    channel = _by_channel(value, shape)
    if channel is None or graph.types[node.outputs[0]].shape != shape:
        return None
    with np.errstate(all="ignore"):
        one, zero = np.ones_like(channel), np.zeros_like(channel)
        if node.op_type in ("Mul", "Div"):
            return ChannelScale(channel if node.op_type == "Mul" else 1 / channel, zero)
        return ChannelScale(one, channel if node.op_type == "Add" else -channel)


def _by_channel(value: Array, shape: tuple[int, ...]) -> Array | None:
    if len(shape) < 2 or value.ndim > len(shape) or is_open(shape[1:2]):
        return None
    full = (1,) * (len(shape) - value.ndim) + value.shape
    if any(extent != 1 for axis, extent in enumerate(full) if axis != 1) or full[1] not in (1, shape[1]):
        return None
    return np.broadcast_to(value.reshape(-1).astype(np.float64), (shape[1],))


def batchnorm_step(node: Node, constants: Mapping[str, Array]) -> ChannelScale | None:
    """Return the scale and the shift of a BatchNormalization, or None if they are not known."""
    found = [constants.get(name) for name in node.inputs[1:5]]
    if any(node.outputs[1:]) or node.attrs.get("training_mode", 0):
        return None
    scale, bias, mean, variance = (None if value is None else value.astype(np.float64) for value in found)
    if scale is None or bias is None or mean is None or variance is None:
        return None
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + float(node.attrs.get("epsilon", 1e-5)))
        return ChannelScale(factor, bias - mean * factor)


def _takes(node: Node, graph: Graph, step: ChannelScale, known: Mapping[str, Magnitudes]) -> bool:
    """Return whether the node's weights, whose magnitudes are known, and bias keep their digits with a step."""
    weights = node.inputs[1]
    dtype = graph.types[weights].dtype
    with np.errstate(all="ignore"):
        if not np.isfinite(_bias(node, graph, step).astype(dtype)).all():
            return False
        if node.op_type == "BatchNormalization":
            return step.fits(dtype)
        return keep_digits(dtype, graph.constants[weights], _aligned(node, graph, step.scale), known[weights])


def _rounds(node: Node, graph: Graph, before: ChannelScale | None, step: ChannelScale) -> bool:
    """Return whether the addend of a step takes away digits that the values before it were rounded to."""
    with np.errstate(all="ignore"):
        bias = _bias(node, graph, before or ChannelScale(np.ones(1), np.zeros(1)))
        return cancel(bias * step.scale, step.shift)


def _bias(node: Node, graph: Graph, step: ChannelScale) -> Array:
    """Return the node's bias with a step folded in, in float64."""
    if node.op_type == "BatchNormalization" or len(node.inputs) < 3 or not node.inputs[2]:
        return step.shift
    beta = float(node.attrs.get("beta", 1.0)) if node.op_type == "Gemm" else 1.0
    return graph.constants[node.inputs[2]].astype(np.float64) * (beta * step.scale) + step.shift


def _weights(node: Node, graph: Graph, step: ChannelScale) -> Array | Deferred:
    """Return the node's weights with a step folded in."""
    kind = graph.types[node.inputs[1]]
    if node.op_type == "BatchNormalization":
        return step.scale.astype(kind.dtype)
    weight, scale = graph.constants[node.inputs[1]], _aligned(node, graph, step.scale)
    if weight.size and not any(weight.strides):  # one number everywhere: keep a view instead of a hundred megabytes
        return np.broadcast_to((weight.reshape(-1)[0].astype(np.float64) * scale).astype(weight.dtype), weight.shape)
    narrow = numbers_of(graph.constants, node.inputs[1])
    return Deferred(kind, SCALED, (weight, scale), lambda: scaled(weight, scale), unscaled=narrow)


def _aligned(node: Node, graph: Graph, scale: Array) -> Array:
    """Return the scales, with those that the node has itself, in a shape that broadcasts to its weights."""
    weight = graph.constants[node.inputs[1]]
    if node.op_type == "Gemm":
        scale = scale * float(node.attrs.get("alpha", 1.0))
        return scale[:, None] if node.attrs.get("transB", 0) else scale
    spatial = (1,) * (weight.ndim - 2)
    if node.op_type == "Conv":
        return scale.reshape(-1, 1, *spatial)
    group = int(node.attrs.get("group", 1))  # ConvTranspose: input channels by output channels of one group
    by_group = scale.reshape(group, 1, weight.shape[1])
    rows = np.broadcast_to(by_group, (group, weight.shape[0] // group, weight.shape[1]))
    return rows.reshape(weight.shape[0], weight.shape[1], *spatial)


def _rebuilt(graph: Graph, nodes: dict[str, Node], steps: dict[str, ChannelScale]) -> Graph:
    to = NewGraph(graph)
    for key, node in nodes.items():
        step = steps.get(key)
        if step is not None and (node.op_type in WEIGHTED or step.fits(graph.types[node.inputs[1]].dtype)):
            with node_error_context(node):
                to.nodes.append(_folded(node, key, graph, step, to))
        else:
            to.nodes.append(node)
    return eliminate_dead(to.graph(graph))


def _folded(node: Node, output: str, graph: Graph, step: ChannelScale, to: NewGraph) -> Node:
    weight = _weights(node, graph, step)
    dtype = numpy_dtype(graph.types[node.inputs[1]].dtype)
    bias = _bias(node, graph, step).astype(dtype)
    inputs = [node.inputs[0], to.constant(weight, f"{output}/weight"), to.constant(bias, f"{output}/bias")]
    attrs = {**node.attrs}
    if node.op_type == "BatchNormalization":
        for part, number in (("mean", 0), ("variance", 1)):
            value = np.broadcast_to(dtype.type(number), bias.shape)
            inputs.append(to.constant(value, f"{output}/{part}"))
        attrs["epsilon"] = 0.0
    elif node.op_type == "Gemm":
        attrs["alpha"] = attrs["beta"] = 1.0
    return node.with_(inputs=tuple(inputs), attrs=attrs, outputs=(output,), proto=None)


def spell_out_batchnorm(graph: Graph) -> Graph:
    """Return the graph with every BatchNormalization of known parameters that its type holds written as Mul and Add."""

    def rewrite_of(node: Node) -> Rewrite | None:
        return _spell_out if node.op_type == "BatchNormalization" and not node.domain else None

    return rewritten(NewGraph(graph), graph, rewrite_of)


def _spell_out(of: PassBuilder) -> None:
    x, step = of.input(0), batchnorm_step(of.node, of.constants)
    if step is None or not step.fits(x.dtype):
        raise KeptError
    shape = (-1,) + (1,) * (len(x.shape) - 2)
    scale, shift = (of.constant(part.astype(x.dtype).reshape(shape)) for part in (step.scale, step.shift))
    of("Add", of("Mul", x, scale), shift, output=of.outputs[0])
