"""Reverse-mode differentiation: the walk back through a network, from its results to the inputs asked for.

Each node's rule turns the gradients of its outputs into those of its inputs. Gradients of a value that several nodes
read are added up in the order of the nodes, from the last to the first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest

from opbuild.dtypes import is_float
from opbuild.errors import UnsupportedOperatorError
from opbuild.graph.constants import Deferred
from opbuild.graph.gradients.registry import CONSTANT, RULES, Backward
from opbuild.graph.graph_builder import GraphBuilder, Scope, Value
from opbuild.graph.passes.cleanup import eliminate_dead
from opbuild.graph.passes.composite import decompose
from opbuild.graph.passes.rewriter import NewGraph
from opbuild.graph.types import COLLECTIVES, Array, Graph, Node


class ExtendedGraph(NewGraph):
    """A graph to whose end operators are written."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.nodes.extend(graph.nodes)
        self.producers.update(graph.producers())
        self._shared: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def constant(self, value: Array | Deferred, name: str = "gradient/constant") -> str:
        """Add a constant and return its name; equal small ones are one."""
        if isinstance(value, Deferred) or value.dtype == object or value.nbytes > 256:
            return super().constant(value, name)
        key = (value.dtype.name, value.shape, value.tobytes())
        if key not in self._shared:
            self._shared[key] = super().constant(value, name)
        return self._shared[key]


class Recomputing:
    """The nodes of a forward pass as a backward pass reads them: those of a region are written again.

    A region is written where the backward pass first comes to it, from what the region read. So only that lives until
    then. What nobody reads of it is removed with other dead nodes. What communicates is not repeated. ``regions`` has
    the number of the region that assigned a value, by the value's name.
    """

    def __init__(self, nodes: Sequence[Node], scope: Scope, regions: Mapping[str, int]) -> None:
        self._scope = scope
        self._region: dict[str, int] = {}
        self._nodes: dict[int, list[Node]] = defaultdict(list)
        self._names: dict[str, str] = {}
        for node in nodes if regions else ():
            region = regions.get(node.outputs[0])
            if region is not None and node.domain != COLLECTIVES:
                self._region[node.outputs[0]] = region
                self._nodes[region].append(node)

    def node(self, node: Node) -> Node:
        """Return a node with the names that its values have in the backward pass."""
        region = self._region.get(node.outputs[0])
        if region is None:
            return node
        for each in self._nodes.pop(region, ()):
            self._write(each)
        return self._renamed(node)

    def _write(self, node: Node) -> None:
        self._names.update((name, self._scope.fresh(f"{name}/again")) for name in node.outputs if name)
        self._scope.append(self._renamed(node))

    def _renamed(self, node: Node) -> Node:
        inputs, outputs = (tuple(self._names.get(name, name) for name in each) for each in (node.inputs, node.outputs))
        return node.with_(inputs=inputs, outputs=outputs, name=f"{node.name}/again")


OwnGradient = Callable[[Value], Sequence["Value | None"]]
"""Writes the gradients of a node's inputs, given that of its output."""


WHOLE = frozenset({"BatchNormalization"})
"""Composite operators that are differentiated whole: by fewer passes over the data than what they are made of."""


def differentiate(graph: Graph, wanted: Sequence[str], output: str = "") -> Graph:
    """Return a typed graph with more outputs: a gradient for each wanted input or constant, perhaps zeros.

    An output is differentiated, by default the first, whose elements count as their sum.

    Raises:
        UnsupportedOperatorError: If an operator on the way has no gradient; the message names it and its node.
    """
    graph = decompose(graph, WHOLE)
    scope = ExtendedGraph(graph)
    of = GraphBuilder("gradient", scope)
    start = of.value(output or graph.outputs[0])
    seeds = {start.name: of.filled(1.0, start.dtype, start.shape)}
    found = gradients(graph.nodes, scope, seeds, wanted)
    names = tuple(of("Identity", each).name for each in found)
    return eliminate_dead(scope.graph(graph).with_(outputs=(*graph.outputs, *names)))


def gradients(
    nodes: Sequence[Node],
    scope: Scope,
    seeds: Mapping[str, Value],
    wanted: Sequence[str],
    regions: Mapping[str, int] | None = None,
    own: Mapping[str, OwnGradient] | None = None,
) -> list[Value]:
    """Write the backward pass of some nodes; return the wanted values' gradients, zeros where nothing flows back.

    Args:
        nodes: The nodes, in their order; composite operators are decomposed, but for ``WHOLE``.
        scope: Where to write.
        seeds: Gradients to begin with, by the names of the values that they are of.
        wanted: Names of values.
        regions: As for ``Recomputing``: what is computed again instead of being kept.
        own: What takes the place of the rule of a node, by the name of its output.

    Raises:
        UnsupportedOperatorError: As ``differentiate``.
    """
    RULES.load()
    reached = _depending(nodes, scope, wanted)
    again = Recomputing(nodes, scope, regions or {})
    known: dict[str, Value] = {name: seed for name, seed in seeds.items() if name in reached}
    for node in reversed(nodes):
        outputs = [known.get(name) for name in node.outputs]
        if any(outputs) and any(name in reached for name in node.inputs):
            _step(node, again.node(node), outputs, reached, known, scope, (own or {}).get(node.outputs[0]))
    of = GraphBuilder("gradient", scope)
    return [known.get(name) or of.zeros(of.value(name)) for name in wanted]


def _step(
    node: Node, again: Node, outputs: Sequence[Value | None], reached: set[str], known: dict[str, Value], scope: Scope,
    own: OwnGradient | None,
) -> None:  # fmt: skip
    """Add the gradients of one node's inputs, given those of its outputs; ``again`` has its values now."""
    wanted = tuple(name in reached for name in node.inputs)
    of = Backward(f"{node.name}/gradient", scope, again, outputs, wanted)
    found = own(outputs[0]) if own is not None and outputs[0] is not None else _rule(of)
    for name, wants, part in zip_longest(node.inputs, wanted, found):
        if wants and part is not None:
            cast = of.cast(part, scope.type_of(name).dtype)
            known[name] = of("Add", known[name], cast) if name in known else cast


def _rule(of: Backward) -> Sequence[Value | None]:
    node = of.node
    rule = RULES.get((node.domain, node.op_type))
    if rule is None:
        raise UnsupportedOperatorError(
            f"{node.op_type} node {node.name!r} has no gradient",
            "stop the gradient before it (stop_gradient), or write it with other operators",
        ).at(node.name)
    return rule(of)


def _depending(nodes: Sequence[Node], scope: Scope, wanted: Sequence[str]) -> set[str]:
    """Return the values that depend on the inputs asked for so that a gradient could flow back: floats."""
    reached = set(wanted)
    for node in nodes:
        if (node.domain, node.op_type) not in CONSTANT and any(name in reached for name in node.inputs if name):
            reached.update(name for name in node.outputs if name and is_float(scope.type_of(name).dtype))
    return reached
