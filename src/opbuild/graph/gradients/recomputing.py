"""Recomputation: parts of the forward pass that are computed again for the backward pass, instead of being kept."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from opbuild.graph.graph_builder import Scope
from opbuild.graph.types import COLLECTIVES, Node


class Recomputing:
    """The nodes of a forward pass as a backward pass reads them: those of a region are written again.

    A region is written where the backward pass first comes to it, from what the region read. So only that lives until
    then. What nobody reads of it is removed with other dead nodes. What communicates is not repeated.

    Args:
        nodes: The forward pass.
        scope: Where to write.
        regions: The number of the region that assigned a value, by the value's name.
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
