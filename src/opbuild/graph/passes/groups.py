"""Group normalisation as exporters write it becomes one operator.

ONNX has had it since opset 18 only, and torch's exporter still writes an instance normalisation of groups as channels,
with scales of 1 and shifts of 0, and behind it a product and a sum with those of the channels.
"""

from __future__ import annotations

from opbuild.dtypes import NARROW_FLOATS
from opbuild.graph.passes.cleanup import eliminate_dead
from opbuild.graph.passes.rewriter import NewGraph
from opbuild.graph.types import Graph, Node

POSITIONS = 3
"""Axes from which on there are positions behind batches and channels."""


def fuse_group_normalization(graph: Graph) -> Graph:
    """Replace ``reshaped(InstanceNormalization(reshaped(x), 1, 0)) * scale + shift`` by a GroupNormalization.

    ``scale`` and ``shift`` are constants with one number for each channel; nothing else reads what lies between. Where
    each step is rounded to 16 bits, the steps stay.
    """
    steps, to = _Steps(graph), NewGraph(graph)
    for node in graph.nodes:
        added = steps.factor(node, "Mul") if not node.domain and node.op_type == "Add" else None
        scaled = None if added is None else steps.factor(added[0], "Reshape")
        found = None if scaled is None else steps.normalised(scaled[0])
        if added is None or scaled is None or found is None:
            to.nodes.append(node)
            continue
        norm, first = found
        x, channels = first.inputs[0], graph.types[node.outputs[0]].shape[1]
        of = to.at(node)
        vectors = (of.reshaped(name, (channels,)) for name in (scaled[1], added[1]))
        attrs = {"num_groups": graph.types[norm.inputs[0]].shape[1], "epsilon": norm.attrs.get("epsilon", 1e-5)}
        of("GroupNormalization", x, *vectors, output=node.outputs[0], **attrs)
        for each in (added[0], scaled[0], norm, first):
            to.nodes[-1] = to.nodes[-1].taking(each)
    return eliminate_dead(to.graph(graph))


class _Steps:
    """A graph, asked backwards for the steps of what is written out."""

    def __init__(self, graph: Graph) -> None:
        self._graph, self._producers, self._readers = graph, graph.producers(), graph.consumers()

    def factor(self, node: Node, op_type: str) -> tuple[Node, str] | None:
        """Return the step before a product or sum with one number for each channel, and these numbers."""
        types = self._graph.types
        result = types[node.outputs[0]]
        rank = len(result.shape)
        if rank < POSITIONS:
            return None
        each = (result.shape[1], *(1,) * (rank - 2))
        for before, numbers in (node.inputs, node.inputs[::-1]):
            step = self._made(before, op_type)
            if step is not None and numbers in self._graph.constants and types[before] == result:
                return (step, numbers) if types[numbers].shape in (each, (1, *each)) else None
        return None

    def normalised(self, last: Node) -> tuple[Node, Node] | None:
        """Return the normalisation of groups before the last Reshape, and the first Reshape, if they are that."""
        types, constants = self._graph.types, self._graph.constants
        norm = self._made(last.inputs[0], "InstanceNormalization")
        first = None if norm is None else self._made(norm.inputs[0], "Reshape")
        if norm is None or first is None:
            return None
        whole, rows = types[first.inputs[0]], types[norm.inputs[0]].shape
        is_same = whole == types[last.outputs[0]] and whole.dtype not in NARROW_FLOATS
        if not is_same or rows[0] != whole.shape[0] or whole.shape[1] % rows[1]:
            return None
        scale, shift = (constants.get(name) for name in norm.inputs[1:3])
        return (norm, first) if scale is not None and shift is not None and all(scale == 1) and not any(shift) else None

    def _made(self, name: str, op_type: str) -> Node | None:
        """Return the node of a type that assigns a value which nothing but the next step reads."""
        node = self._producers.get(name)
        if node is None or node.domain or node.op_type != op_type:
            return None
        return None if name in self._graph.outputs or len(self._readers[name]) != 1 else node
