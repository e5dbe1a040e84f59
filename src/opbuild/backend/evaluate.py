"""Evaluates single nodes: on the host backend, which is loaded when it is first needed, or with the other ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from opbuild.graph.types import COLLECTIVES, Array, Node


def evaluate(node: Node, inputs: Sequence[Array | None], opset: int) -> Sequence[Array]:
    """Return a node's outputs for some inputs; None is an absent input."""
    if node.domain == COLLECTIVES:
        from opbuild.ranks.world import evaluate_collective

        return evaluate_collective(node, inputs)
    return _host()(node, inputs, opset)


@lru_cache(maxsize=1)
def _host() -> Callable[[Node, Sequence[Array | None], int], Sequence[Array]]:
    from opbuild.backend.host.evaluate import evaluate as evaluate_on_host

    return evaluate_on_host
