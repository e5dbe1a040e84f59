"""Gradients inside a trace: the backward pass is recorded behind the operators that it differentiates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from opbuild.dtypes import is_float
from opbuild.frontend.cell import Symbol, Trace
from opbuild.graph.gradients.reverse import WHOLE, gradients
from opbuild.graph.graph_builder import GraphBuilder, Value
from opbuild.graph.passes.composite import decompose
from opbuild.graph.types import Array, Node


def record_gradients(trace: Trace, start: int, outputs: Sequence[Symbol], wanted: Sequence[Symbol]) -> list[Symbol]:
    """Record the gradients of the sum of all elements of some values.

    Args:
        trace: What is recorded.
        start: The number of operators that were recorded before those that are differentiated.
        outputs: The values; those of integers count for nothing.
        wanted: What its gradients are asked for by.

    Returns:
        The gradients, zeros where nothing flows back.

    Raises:
        UnsupportedOperatorError: If an operator on the way has no gradient; the message names it and its node.
    """
    trace.rewrite(start, partial(decompose, kept=WHOLE))
    nodes = tuple(trace.nodes[start:])
    scope = _Scope(trace, nodes)
    of = GraphBuilder("gradient", scope)
    counts = Counter(each.name for each in outputs)
    types = {each.name: each.type for each in outputs if is_float(each.type.dtype)}
    seeds = {name: of.filled(float(counts[name]), kind.dtype, kind.shape) for name, kind in types.items()}
    own = {name: partial(_own, trace, flow) for name, flow in trace.own_gradients.items()}
    found = gradients(nodes, scope, seeds, [each.name for each in wanted], trace.regions, own)
    return [Symbol(each.name, each.type, trace) for each in found]


def _own(trace: Trace, flow: Callable[[Symbol], Sequence[Symbol | None]], gradient: Value) -> Sequence[Value | None]:
    found = flow(Symbol(gradient.name, gradient.type, trace))
    return [None if each is None else Value(each.name, each.type) for each in found]


class _Scope:
    """A trace as functions that write operators see it."""

    def __init__(self, trace: Trace, nodes: Sequence[Node]) -> None:
        self._trace = trace
        self.type_of, self.value_of, self.fresh = trace.type_of, trace.value_of, trace.unique
        self._producers = {name: node for node in nodes for name in node.outputs}

    def constant(self, value: Array) -> str:
        return self._trace.constant(value).name

    def append(self, node: Node) -> None:
        self._trace.append(node)
        self._producers.update(dict.fromkeys(node.outputs, node))

    def producer(self, name: str) -> Node | None:
        return self._producers.get(name)
