"""What the front end asks of lowering while it binds a model: which operators no kernel serves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opbuild.backend.evaluate import evaluate
from opbuild.graph.types import Graph
from opbuild.kernel.level import LEVELS

if TYPE_CHECKING:
    from opbuild.frontend.expansion import HostCalls


def host_calls(graph: Graph) -> HostCalls:
    """Return how many calls of the host a graph needs.

    Which operators have kernels does not depend on the level: there is a variant without limits for each.

    Args:
        graph: A typed graph, as the front end makes them.

    Raises:
        ModelError: If the graph can not be expressed.
    """
    from opbuild.frontend.expansion import HostCalls
    from opbuild.graph.elementwise import elementwise_of

    if all(elementwise_of(node, graph.types, graph.constants) for node in graph.nodes):
        return HostCalls(0, 0)  # most that is asked for: an activation for each shape that a network has it for
    from opbuild.graph.passes.pipeline import optimize
    from opbuild.lowering.lower import lower
    from opbuild.program import HostCall

    calls = lower(optimize(graph, evaluate), LEVELS[0]).calls
    host = [call.node for call in calls if isinstance(call, HostCall) and not call.is_check]
    if not host:
        return HostCalls(0, 0)
    from opbuild.backend.host.evaluate import is_native  # a network that kernels serve needs no host

    return HostCalls(len(host), sum(not is_native(node) for node in host))
