"""PortableModel: a network before its input shapes are known, without onnx: plain nodes and arrays.

It goes into an offline model, and binds there to any input shapes on a machine that lacks the onnx package.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opbuild.dtypes import numpy_dtype
from opbuild.errors import UnsupportedOperatorError
from opbuild.frontend.binding import NodeBinder
from opbuild.graph.node_json import node_from_json, node_to_json
from opbuild.graph.passes.fold import Evaluate
from opbuild.graph.types import DTYPES, Array, Graph, Node, TensorType

Declared = tuple[str, str]
"""Name and element type of an input."""

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
        inputs: The inputs in the model's order.
        outputs: Names of the outputs in the model's order.
        nodes: Operators in topological order, as the model has them.
        tensors: The model's constants.
        source_opset: The operator set that ``nodes`` speak.
        opset: The operator set that bound graphs speak.
    """

    name: str
    inputs: tuple[Declared, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    tensors: Mapping[str, Array]
    source_opset: int
    opset: int

    def bind(self, shapes: Sequence[tuple[int, ...]], evaluate: Evaluate) -> Graph:
        """Return the graph for inputs of these shapes.

        Args:
            shapes: The shape of each input.
            evaluate: Evaluates a node whose inputs are known.

        Raises:
            ShapeError: If the shapes do not fit the network; the message names the node.
            UnsupportedOperatorError: If an operator has no shape rule, or its shape is known only at run time.
        """
        types = {name: TensorType(dtype, shape) for (name, dtype), shape in zip(self.inputs, shapes, strict=True)}
        binder = NodeBinder(self.source_opset, self.opset, evaluate)
        scope = binder.begin(types)
        for name, array in self.tensors.items():
            binder.tensor(name, lambda array=array: array, scope)  # type: ignore[misc]
        for node in self.nodes:
            binder.visit(node, scope)
        return binder.finish(self.name, types, self.outputs, scope)

    def to_json(self) -> dict[str, Any]:
        """Return everything but the contents of ``tensors`` as JSON values.

        Raises:
            ValueError: If a node has an attribute that JSON can not hold.
        """
        return {
            "name": self.name,
            "inputs": [list(each) for each in self.inputs],
            "outputs": list(self.outputs),
            "nodes": [node_to_json(node) for node in self.nodes],
            "tensors": [[name, array.dtype.name, list(array.shape)] for name, array in self.tensors.items()],
            "source_opset": self.source_opset,
            "opset": self.opset,
        }

    @staticmethod
    def from_json(parts: Any, contents: Sequence[Array]) -> PortableModel:
        """Return the model that ``to_json`` wrote.

        Args:
            parts: What it returned.
            contents: The bytes of each of ``tensors``, ``uint8``, in order.

        Raises:
            ValueError: If it is not such a model.
        """
        try:
            return PortableModel(
                name=str(parts["name"]),
                inputs=tuple((str(name), _dtype(dtype)) for name, dtype in parts["inputs"]),
                outputs=tuple(map(str, parts["outputs"])),
                nodes=tuple(node_from_json(node) for node in parts["nodes"]),
                tensors={
                    str(name): data.view(numpy_dtype(_dtype(dtype))).reshape([int(extent) for extent in shape])
                    for (name, dtype, shape), data in zip(parts["tensors"], contents, strict=True)
                },
                source_opset=int(parts["source_opset"]),
                opset=int(parts["opset"]),
            )
        except (KeyError, TypeError, AttributeError, IndexError, OverflowError) as error:
            raise ValueError(f"not a network: {error!r}") from error


def _dtype(name: Any) -> str:
    if name not in DTYPES:
        raise ValueError(f"{name!r} is no element type")
    return str(name)
