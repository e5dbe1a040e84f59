"""Convolutions in three dimensions as convolutions in two.

The outputs of one depth are a convolution of an image whose channels are those of all slices that its taps in depth
read. So every kernel of convolutions in two dimensions serves, Winograd's too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opbuild.graph.graph_builder import Value
from opbuild.graph.passes.cleanup import eliminate_dead
from opbuild.graph.passes.infer import node_error_context
from opbuild.graph.passes.rewriter import KeptError, NewGraph, PassBuilder
from opbuild.graph.shape_rules import ShapeCall
from opbuild.graph.shape_rules_window import transposed_range, window_pads
from opbuild.graph.types import Graph, Node

RANK = 5
"""Images, channels, depth, height and width."""

_ACTIVATIONS = frozenset(("Clip", "Elu", "Gelu", "HardSwish", "LeakyRelu", "Relu", "Sigmoid", "Swish", "Tanh"))
"""Operators of one element that are moved in front of what brings a convolution's result into its shape again: there
they are fused with it."""


def flatten_volumes(graph: Graph) -> Graph:
    """Return the graph with each Conv and ConvTranspose in three dimensions as ones in two."""
    if not any(_is_deep(node, graph) for node in graph.nodes):
        return graph
    to, readers = NewGraph(graph), graph.consumers()
    moved: set[str] = set()
    for node in graph.nodes:
        if node.name in moved:
            continue
        if not _is_deep(node, graph):
            to.nodes.append(node)
            continue
        follower = _activation(node, readers, graph)
        try:
            with node_error_context(node):
                (_convolution if node.op_type == "Conv" else _transposed)(to.at(node), follower)
        except KeptError:
            to.nodes.append(node)
            continue
        if follower is not None:
            moved.add(follower.name)
    return eliminate_dead(to.graph(graph))


def _is_deep(node: Node, graph: Graph) -> bool:
    if node.domain or node.op_type not in ("Conv", "ConvTranspose"):
        return False
    type_ = graph.types[node.outputs[0]]
    empty = not type_.size or not all(graph.types[name].size for name in node.inputs if name)
    return len(type_.shape) == RANK and type_.dtype == "float32" and not empty


def _activation(node: Node, readers: dict[str, list[Node]], graph: Graph) -> Node | None:
    """Return the only reader of a convolution's result, if it is an elementwise node."""
    followers = readers.get(node.outputs[0], [])
    if len(followers) != 1 or node.outputs[0] in graph.outputs:
        return None
    (follower,) = followers
    known = all(name in graph.constants and not graph.types[name].shape for name in follower.inputs[1:] if name)
    return follower if not follower.domain and follower.op_type in _ACTIVATIONS and known else None


def _convolution(of: PassBuilder, follower: Node | None) -> None:
    """Rewrite a Conv: the slices that one output reads are channels of one image."""
    x, weights = of.inputs[:2]
    (images, _, depth, *size), result = of.types[x].shape, of.types[of.outputs[0]].shape
    outputs, inputs, taps, *kernel = of.types[weights].shape
    group = int(of.attr("group", 1))
    strides, dilations = (tuple(of.attr(name, None) or (1, 1, 1)) for name in ("strides", "dilations"))
    pads = window_pads(ShapeCall(of.node, [of.types[x]], [None]), (depth, *size), (taps, *kernel))
    if min(pads) < 0:
        raise KeptError
    starts = [tap * dilations[0] - pads[0] for tap in range(taps)]
    slices = _slices(of, x, group, (starts, result[2], strides[0]))
    folded = of.reshape(of.transpose(weights, (0, 2, 1, 3, 4)), (outputs, taps * inputs, *kernel))
    bias = (of.input(2),) if of.has(2) else ()
    attrs: dict[str, Any] = {"group": group, "strides": strides[1:], "dilations": dilations[1:]}
    flat: str = of("Conv", slices, folded, *bias, **attrs, pads=(*pads[1:3], *pads[4:6]))
    flat, target = _activated(of, flat, follower)
    deep = of.reshape(flat, (images, result[2], outputs, *result[3:]))
    of.transpose(deep, (0, 2, 1, 3, 4), target)


def _transposed(of: PassBuilder, follower: Node | None) -> None:
    """Rewrite a ConvTranspose: of each phase in depth the slices that one output reads are channels of one image."""
    x, weights = of.inputs[:2]
    (images, channels, *_), result = of.types[x].shape, of.types[of.outputs[0]].shape
    _, outs, taps, *kernel = of.types[weights].shape
    group = int(of.attr("group", 1))
    strides, dilations = (tuple(of.attr(name, None) or (1, 1, 1)) for name in ("strides", "dilations"))
    before, full = transposed_range(ShapeCall(of.node, [of.types[name] for name in of.inputs[:2]], [None, None]))
    step, dilation, count = strides[0], dilations[0], -(-result[2] // strides[0])
    used = [
        [tap for tap in reversed(range(taps)) if (start + before[0] - tap * dilation) % step == 0]
        for start in range(step)
    ]
    if not all(used):
        raise KeptError
    size = of.types[x].shape[3:]
    whole = [strides[1 + i] * (size[i] - 1) + (kernel[i] - 1) * dilations[1 + i] + 1 for i in range(2)]
    after = [whole[i] - before[1 + i] - full[1 + i] for i in range(2)]
    attrs: dict[str, Any] = {
        "group": group,
        "strides": strides[1:],
        "dilations": dilations[1:],
        "pads": (*before[1:], *(max(each, 0) for each in after)),
        "output_padding": tuple(max(-each, 0) for each in after),
    }
    bias = (of.input(2),) if of.has(2) else ()
    phases = []
    for start, own in enumerate(used):
        starts = [(start + before[0] - tap * dilation) // step for tap in own]
        slices = _slices(of, x, group, (starts, count, 1))
        chosen = of("Gather", weights, of.integers(own), axis=2)
        split = of.reshape(chosen, (group, channels // group, outs, len(own), *kernel))
        turned = of.transpose(split, (0, 3, 1, 2, 4, 5))
        folded = of.reshape(turned, (len(own) * channels, outs, *kernel))
        phases.append(of("ConvTranspose", slices, folded, *bias, **attrs))
    parts = []
    for phase in phases:
        flat, target = _activated(of, phase, follower)
        parts.append(of.reshape(flat, (images, count, 1, group * outs, *result[3:])))
    joined = of("Concat", *parts, axis=2) if step > 1 else parts[0]
    deep = of.reshape(joined, (images, count * step, group * outs, *result[3:]))
    if count * step > result[2]:
        deep = of.slice(deep, 1, 0, result[2])
    of.transpose(deep, (0, 2, 1, 3, 4), target)


def _slices(of: PassBuilder, x: str, group: int, walk: tuple[Sequence[int], int, int]) -> Value:
    """Return an image for each output depth: the channels of each group of all slices that its taps read.

    ``walk`` has the slice that each tap reads for the first output, which may lie outside; the number of outputs; and
    slices from one output to the next.
    """
    starts, count, step = walk
    images, channels, depth, *size = of.types[x].shape
    split = of.reshape(x, (images, group, channels // group, depth, *size))
    by_depth = of.transpose(split, (0, 3, 1, 2, 4, 5))
    front = max(0, -min(starts))
    behind = max(0, max(starts) + (count - 1) * step + 1 - depth)
    if front or behind:
        pads = of.ints(0, front, 0, 0, 0, 0, 0, behind, 0, 0, 0, 0)
        by_depth = of("Pad", by_depth, pads, mode="constant")
    parts = []
    for start in starts:
        first = start + front
        part = of.slice(by_depth, 1, first, first + (count - 1) * step + 1, step)
        parts.append(of.reshape(part, (images, count, group, 1, channels // group, *size)))
    joined = of("Concat", *tuple(parts), axis=3) if len(parts) > 1 else parts[0]
    return of.reshape(joined, (images * count, len(parts) * channels, *size))


def _activated(of: PassBuilder, flat: str, follower: Node | None) -> tuple[str, str]:
    """Return the result with its activation applied, and the name of the value that is to be assigned."""
    if follower is None:
        return flat, of.outputs[0]
    found = of.scope.at(follower)(follower.op_type, flat, *follower.inputs[1:], **follower.attrs)
    return found, follower.outputs[0]
