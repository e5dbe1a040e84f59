"""PortableModel: a network before its input shapes are known, without onnx: plain nodes and arrays.

It tells which nodes need the onnx package, and the types of a network at several sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opbuild.errors import UnsupportedOperatorError
from opbuild.frontend.binding import NodeBinder
from opbuild.frontend.block import Block
from opbuild.frontend.remainder import begin
from opbuild.frontend.walk import Walked, walk
from opbuild.graph.passes.fold import Evaluate
from opbuild.graph.types import Graph, TensorType
from opbuild.platform.records import dataclass

MOST_NAMED = 8
"""Nodes that an error names."""


class NotPortableError(UnsupportedOperatorError):
    """Nodes that can not be bound without the model.

    Attributes:
        nodes: Why each can not, by name.
    """

    nodes: Mapping[str, str]

    @staticmethod
    def of(nodes: Mapping[str, str]) -> NotPortableError:
        """Return the error for nodes, each with the reason, by name."""
        shown = [f"{name} ({why})" for name, why in [*nodes.items()][:MOST_NAMED]]
        more = f" and {len(nodes) - MOST_NAMED} more" if len(nodes) > MOST_NAMED else ""
        error = NotPortableError(
            f"the network can not be bound to new shapes without its model: {', '.join(shown)}{more}",
            "give fixed shapes, or list them (dynamic_batch_size), so that each is bound when the file is written",
        )
        error.nodes = nodes
        return error


@dataclass(frozen=True, eq=False)
class PortableModel:
    """A network for any input shapes.

    Attributes:
        name: The network's name.
        inputs: Name and element type of each input, in the model's order.
        block: Its nodes, as the model has them, and its constants; graphs among the nodes' attributes are blocks too.
        source_opset: The operator set that the nodes speak.
        opset: The operator set that bound graphs speak.
    """

    name: str
    inputs: tuple[tuple[str, str], ...]
    block: Block
    source_opset: int
    opset: int

    def bind(self, shapes: Sequence[tuple[int, ...]], evaluate: Evaluate) -> Graph:
        """Return the graph for inputs of these shapes.

        Args:
            shapes: The shape of each input.
            evaluate: Evaluates a node whose inputs are known.

        Raises:
            ShapeError: If the shapes do not fit the network; the message names the node.
            UnsupportedOperatorError: If the network can only be bound in segments.
        """
        walked = self.walk(shapes, evaluate)
        if walked.follows is not None:
            raise UnsupportedOperatorError(walked.follows.why, "bind the network in segments")
        return walked.graph

    def walk(self, shapes: Sequence[tuple[int, ...]], evaluate: Evaluate) -> Walked:
        """Return the graph for inputs of these shapes, or the first segment of a network in segments.

        Raises:
            ModelError: If the shapes do not fit the network, or a node is not valid; the message names it.
        """
        types = {name: TensorType(dtype, shape) for (name, dtype), shape in zip(self.inputs, shapes, strict=True)}
        return walk(begin(self.block, types, self.source_opset), self._binder(evaluate), self.name, whole=True)

    def _binder(self, evaluate: Evaluate) -> NodeBinder:
        return NodeBinder(self.source_opset, self.opset, evaluate)
