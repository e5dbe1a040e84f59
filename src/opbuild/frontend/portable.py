"""PortableModel: a network before its input shapes are known, without onnx: plain nodes and arrays.

It goes into an offline model, and binds there to any input shapes on a machine that lacks the onnx package.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from opbuild.dtypes import numpy_dtype
from opbuild.errors import UnsupportedOperatorError
from opbuild.frontend.binding import NodeBinder
from opbuild.frontend.block import Block, Declared, blocks
from opbuild.frontend.rest import Rest, begin
from opbuild.frontend.walk import Walked, walk
from opbuild.graph.node_json import node_from_json, node_to_json
from opbuild.graph.passes.fold import Evaluate
from opbuild.graph.types import DTYPES, Array, Graph, Node, TensorType
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
            UnsupportedOperatorError: If the network can only be bound in parts.
        """
        walked = self.walk(shapes, evaluate)
        if walked.cut is not None:
            raise UnsupportedOperatorError(walked.cut.why, "bind the network in parts")
        return walked.graph

    def walk(self, shapes: Sequence[tuple[int, ...]], evaluate: Evaluate) -> Walked:
        """Return the graph for inputs of these shapes, or the first part of a network in parts.

        Raises:
            ModelError: If the shapes do not fit the network, or a node is not valid; the message names it.
        """
        types = {name: TensorType(dtype, shape) for (name, dtype), shape in zip(self.inputs, shapes, strict=True)}
        return walk(begin(self.block, types, self.source_opset), self._binder(evaluate), self.name, whole=True)

    def go_on(self, rest: Rest, evaluate: Evaluate) -> Walked:
        """Return the next part of a network in parts.

        Raises:
            ModelError: If a node is not valid; the message names it.
        """
        return walk(rest, self._binder(evaluate), self.name, whole=False)

    def _binder(self, evaluate: Evaluate) -> NodeBinder:
        return NodeBinder(self.source_opset, self.opset, evaluate)

    @property
    def tensors(self) -> tuple[Array, ...]:
        """The constants of all blocks, in the order in which ``from_json`` takes them."""
        return tuple(_tensors(self.block))

    def to_json(self) -> dict[str, Any]:
        """Return everything but the contents of ``tensors`` as JSON values.

        Raises:
            ValueError: If a node has an attribute that JSON can not hold.
        """
        return {
            "name": self.name,
            "inputs": [list(each) for each in self.inputs],
            "block": _block_to_json(self.block),
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
        left = iter(contents)
        try:
            found = PortableModel(
                name=str(parts["name"]),
                inputs=tuple((str(name), _dtype(dtype)) for name, dtype in parts["inputs"]),
                block=_block_from_json(parts["block"], left),
                source_opset=int(parts["source_opset"]),
                opset=int(parts["opset"]),
            )
        except (LookupError, TypeError, AttributeError, OverflowError, RecursionError, StopIteration) as error:
            raise ValueError(f"not a network: {error!r}") from error
        if next(left, None) is not None:
            raise ValueError("not a network: it has more constants than it names")
        return found


def _tensors(block: Block) -> Iterator[Array]:
    yield from (read() for read in block.tensors.values())
    for node in block.nodes:
        for inner in blocks(node):
            yield from _tensors(inner)


def _block_to_json(block: Block) -> dict[str, Any]:
    arrays = {name: read() for name, read in block.tensors.items()}
    return {
        "tensors": [[name, array.dtype.name, list(array.shape)] for name, array in arrays.items()],
        "nodes": [_node_to_json(node) for node in block.nodes],
        "inputs": [list(each) for each in block.inputs],
        "outputs": [list(each) for each in block.outputs],
    }


def _node_to_json(node: Node) -> dict[str, Any]:
    inner = {name: value for name, value in node.attrs.items() if isinstance(value, Block)}
    bare = node.with_(attrs={name: value for name, value in node.attrs.items() if name not in inner})
    written = node_to_json(bare)
    return written | {"blocks": [[name, _block_to_json(block)] for name, block in inner.items()]} if inner else written


def _block_from_json(parts: Any, contents: Iterator[Array]) -> Block:
    tensors = {str(name): _tensor(dtype, shape, next(contents)) for name, dtype, shape in parts["tensors"]}
    return Block(
        nodes=tuple(_node_from_json(node, contents) for node in parts["nodes"]),
        tensors={name: lambda array=array: array for name, array in tensors.items()},  # type: ignore[misc]
        inputs=tuple(_declared(*each) for each in parts["inputs"]),
        outputs=tuple(_declared(*each) for each in parts["outputs"]),
    )


def _node_from_json(parts: Any, contents: Iterator[Array]) -> Node:
    node = node_from_json(parts)
    inner = {str(name): _block_from_json(block, contents) for name, block in parts.get("blocks", ())}
    return node.with_(attrs={**node.attrs, **inner}) if inner else node


def _declared(name: Any, dtype: Any, shape: Any) -> Declared:
    extents = None if shape is None else tuple(int(extent) for extent in shape)
    return Declared(str(name), _dtype(dtype) if dtype else "", extents)


def _tensor(dtype: Any, shape: Any, content: Array) -> Array:
    return content.view(numpy_dtype(_dtype(dtype))).reshape([int(extent) for extent in shape])


def _dtype(name: Any) -> str:
    if name not in DTYPES:
        raise ValueError(f"{name!r} is no element type")
    return str(name)
