"""The step from a graph to a program: one rule a node, the host backend where no rule serves."""

from __future__ import annotations

from opbuild.errors import ShapeError
from opbuild.graph.elementwise import split_attention, split_epilogue
from opbuild.graph.types import Graph, Node
from opbuild.graph.user_operators import find
from opbuild.lowering.context import Lowering, Options
from opbuild.lowering.implementations import ASKED, NotServedError, ask
from opbuild.program import Program
from opbuild.target.level import Level


def lower(graph: Graph, level: Level, options: Options | None = None) -> Program:
    """Lower a graph to a program of operator descriptors.

    Args:
        graph: An optimized graph; every value has a concrete shape.
        level: The level that the network is for.
        options: The user's decisions.

    Raises:
        ModelError: If a node cannot be expressed at all, or a tensor is too large.
    """
    _check_sizes(graph)
    lowering = Lowering(graph, level, options or Options())
    try:
        for node in graph.nodes:
            _lower_node(lowering, node)
        return lowering.finish()
    finally:
        lowering.forget()


def _check_sizes(graph: Graph) -> None:
    """Refuse tensors that kernels could not address; they would read and write elsewhere."""
    for name, type_ in graph.types.items():
        if type_.problem:
            raise ShapeError(f"{name!r}: {type_.problem}", "give inputs of smaller shapes")


def _lower_node(lowering: Lowering, node: Node) -> None:
    if not lowering.options.on_host.isdisjoint(node.outputs):
        lowering.host(node)
        return
    if find(node.domain, node.op_type) is not None:
        ask(lowering, (ASKED, "UserOperator"), node)
        return
    try:
        lowering.site = (node.name,)
        ask(lowering, (node.domain, node.op_type), node)
    except NotServedError as reason:
        parts: tuple[Node, ...] | None = split_attention(node)
        if parts is None:
            lowering.notes[node.name] = str(reason)
            parts = split_epilogue(node)
        if parts is None:
            lowering.host(node)
            return
        # The host knows nothing of epilogues: what was fused runs as a kernel of its own, perhaps the rest too.
        for part in parts:
            _lower_node(lowering, part)
