"""Weights that a network changes lie in the blocks that its convolutions read, where all that touches them may.

Gradients, moments and whatever else is computed from them one element at a time lie as they do, so such computations
stay as they are. What else reads a value, or takes the sum of it, needs it as it was, and so none of these is moved.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from opbuild.graph.elementwise import elementwise_of
from opbuild.graph.types import Graph, Node, TensorType
from opbuild.graph.weight_layout import block_shape


def weights_in_blocks(graph: Graph, block: int, free: Sequence[int]) -> tuple[Graph, list[int]]:
    """Return a graph with ``updates``, not fused, whose states lie in blocks where they may, and which inputs do.

    Weights whose channels fill no block stay as they are. ``free`` are the positions of the inputs that may.
    """
    kinds = {graph.types[graph.inputs[given]] for given in free}
    whole = (each for each in kinds if len(each.shape) == 4 and each.size > 0 and each.dtype == "float32")
    wanted = frozenset(each.shape for each in whole if not (each.shape[0] % block or each.shape[1] % block))
    moved = _blocked_values(graph, wanted, {graph.inputs[given] for given in free}) if wanted else frozenset()
    places = [place for place, name in enumerate(graph.inputs) if name in moved]
    return (_rewritten(graph, moved, block) if places else graph), places


class _Groups:
    """Values that lie alike."""

    def __init__(self) -> None:
        self._parents: dict[str, str] = {}
        self.fixed, self.read = set[str](), set[str]()

    def of(self, name: str) -> str:
        """Return the representative of the group of a value."""
        while name in self._parents:
            name = self._parents[name]
        return name

    def join(self, one: str, other: str) -> None:
        """Say that two values lie alike."""
        one, other = self.of(one), self.of(other)
        if one != other:
            self._parents[one] = other


def _blocked_values(graph: Graph, wanted: frozenset[tuple[int, ...]], free: Set[str]) -> frozenset[str]:
    """Return the values that lie in blocks: whole groups that convolutions read, and of which nothing stays plain."""
    groups, types = _Groups(), graph.types
    names = [name for name, kind in types.items() if kind.shape in wanted]
    members = frozenset(names)
    for node in graph.nodes:
        own = [name for name in (*node.inputs, *node.outputs) if name in members]
        if own and _keeps_places(node, graph):
            for name in own[1:]:
                groups.join(own[0], name)
        elif own:
            groups.fixed.update(_fixed(node, own))
            groups.read.update(_weights_of(node, own))
    changed = {graph.outputs[output]: graph.inputs[given] for output, given in graph.updates}
    for output, given in changed.items():
        if output in members:
            groups.join(output, given)
    groups.fixed.update(members.intersection(graph.constants))
    groups.fixed.update(members.intersection(graph.inputs).difference(free))
    groups.fixed.update(members.intersection(graph.outputs).difference(changed))
    groups.fixed.update(name for name in names if types[name].dtype != "float32")
    fixed, read = ({groups.of(name) for name in found} for found in (groups.fixed, groups.read))
    return frozenset(name for name in names if groups.of(name) in read - fixed)


def _keeps_places(node: Node, graph: Graph) -> bool:
    """Return whether each element of a result is computed from the elements in its place, and from single numbers."""
    shape = graph.types[node.outputs[0]].shape
    operands = [graph.types[name] for name in node.inputs if name]
    if any(each.shape != shape and (each.size != 1 or len(each.shape) > len(shape)) for each in operands):
        return False
    return node.op_type == "Identity" or elementwise_of(node, graph.types, graph.constants) is not None


def _weights_of(node: Node, own: list[str]) -> Iterator[str]:
    """Yield the operands that a node reads as the weights of a convolution of one group."""
    if not node.domain and node.op_type in ("Conv", "ConvTranspose") and int(node.attrs.get("group", 1)) == 1:
        yield from {node.inputs[1]}.intersection(own)


def _fixed(node: Node, own: list[str]) -> set[str]:
    """Return the values of a node, that does more than compute elements, that cannot lie otherwise."""
    is_gradient = (node.domain, node.op_type) == ("opbuild", "ConvWeightGradient")
    free = {*_weights_of(node, own), *(node.outputs if is_gradient else ())}
    others = [name for place, name in enumerate(node.inputs) if is_gradient or place != 1]
    return set(own).difference(free).union(set(own).intersection(others))


def _rewritten(graph: Graph, moved: frozenset[str], block: int) -> Graph:
    """Return the graph with values in blocks, which are taken apart in front of convolutions."""
    types, nodes, plain = dict(graph.types), list[Node](), dict[str, str]()
    types |= {name: TensorType(types[name].dtype, block_shape(types[name].shape, block)) for name in moved}
    for node in graph.nodes:
        if node.op_type == "ConvWeightGradient" and node.outputs[0] in moved:
            nodes.append(node.with_(attrs={**node.attrs, "block": block}, proto=None))
        elif node.op_type in ("Conv", "ConvTranspose") and node.inputs[1] in moved:
            weights = node.inputs[1]
            if weights not in plain:
                plain[weights] = f"{weights}/plain"
                types[plain[weights]] = graph.types[weights]
                nodes.append(Node("PlainWeights", (weights,), (plain[weights],), {}, plain[weights], "opbuild"))
            inputs = (node.inputs[0], plain[weights], *node.inputs[2:])
            nodes.append(node.with_(inputs=inputs, proto=None))
        else:
            nodes.append(node)
    return graph.with_(nodes=tuple(nodes), types=types)
