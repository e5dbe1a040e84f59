"""Binding an ONNX model: its protobuf nodes, checked against their schemas, become a block for ``frontend.walk``.

What has no shape rule of opbuild's own is typed by onnx. An operator that ONNX defines by others may be replaced by
them (``frontend.expansion`` tells which).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from opbuild.errors import RunError
from opbuild.frontend import onnx_node
from opbuild.frontend.binding import FunctionCall, NodeBinder
from opbuild.frontend.block import UntypedGraph, UntypedPort, blocks
from opbuild.frontend.expansion import function_of, is_foreign, may_take_function, takes_function
from opbuild.frontend.onnx_messages import FunctionProto, GraphProto, ModelProto, NodeProto, ValueInfoProto
from opbuild.frontend.onnx_read import DataFiles, opsets, to_array
from opbuild.frontend.open_values import Types, Values, example_array, example_type, is_open_value
from opbuild.frontend.rewritten import REWRITES
from opbuild.graph.breaks import is_tensor
from opbuild.graph.label_tables import MAPPED
from opbuild.graph.passes.fold import Evaluate
from opbuild.graph.passes.infer import check_sizes, has_rule, infer_node
from opbuild.graph.shape_rules import ONNX_DTYPES
from opbuild.graph.types import Array, Node, TensorType

Tensors = dict[str, Callable[[], Array]]

MOST_TURNS = 1000
"""Turns of a loop that is evaluated while a network is built."""


class Binder(NodeBinder):
    """Builds the graph of one segment of a model, whose tensors are in files."""

    def __init__(self, model: ModelProto, files: DataFiles, opset: int, evaluate: Evaluate) -> None:
        super().__init__(opsets(model).get("", opset), opset, _ending(evaluate))
        self._files = files

    def add(self, nodes: Sequence[Node], outputs: Sequence[str] = ()) -> FunctionCall | None:
        """Take nodes as ``NodeBinder`` does; as a function, if one of several has no other definition than its own."""
        if len(nodes) < 2 or not any(is_foreign(each, self.opset) for each in nodes):
            return super().add(nodes, outputs)
        block = UntypedGraph(tuple(nodes), {}, (), tuple(map(UntypedPort, outputs)))
        return FunctionCall(block, {name: name for name in block.free}, self.opset)

    def _function(self, node: Node) -> FunctionCall | None:
        opset = self._opset_of(node)
        if not may_take_function(node, opset):
            return None
        types = [self.type_of(name) if name else None for name in node.inputs]
        if not all(each is None or is_tensor(each) for each in types):
            return None
        examples = [each and example_type(each) for each in types]
        pairs = zip(node.inputs, types, strict=True)
        values = [example_array(self._constants.get(name), each.dtype if each else "") for name, each in pairs]
        if not takes_function(node, examples, values):
            return None
        function = function_of(node, types[: len(types) - len(node.attrs.get("captures", ()))], opset)
        return None if function is None else self._call(node, function)

    def _call(self, node: Node, function: FunctionProto) -> FunctionCall:
        """Return the function of a node as a call taken in its place; names of its nodes begin with the node's."""
        captured = node.attrs.get("captures", ())
        formal = node.inputs[: len(node.inputs) - len(captured)]
        scope = dict(zip(captured, node.inputs[len(formal) :], strict=True))
        scope |= dict.fromkeys(function.input, "") | dict(zip(function.input, formal, strict=False))
        given = {("" if each.domain == "ai.onnx" else each.domain): each.version for each in function.opset_import}
        versions = {"": self.opset, **given}
        asked = (name if output else "" for name, output in zip(function.output, node.outputs, strict=False))
        graph = GraphProto(node=function.node, output=[ValueInfoProto(name=name) for name in asked])
        return FunctionCall(to_block(graph, self._files, versions, f"{node.name}/"), scope, versions[""])

    def _typed(self, node: Node, types: Types, constants: Values) -> tuple[TensorType, ...]:
        if has_rule(node.domain, node.op_type):
            return infer_node(node, types, constants)
        from opbuild.frontend.onnx_single import infer_single  # by onnx, which most networks start without

        known = [None if is_open_value(value) else value for value in constants]
        found = infer_single(node, types, known, self._opset_of(node))
        check_sizes(node, found)
        return found


def to_block(graph: GraphProto, files: DataFiles, versions: Mapping[str, int], prefix: str = "") -> UntypedGraph:
    """Return a graph of a model as a block; the nodes' names begin with a prefix.

    Raises:
        UnsupportedOperatorError: If an operator is unknown.
        InvalidModelError: If a node does not fit its schema.
    """
    tensors: Tensors = {tensor.name: partial(to_array, tensor, files) for tensor in graph.initializer}
    maps = {value.name: value.type.map_type for value in graph.input if value.type.HasField("map_type")}
    inputs = tuple(_declared(value) for value in graph.input if value.name not in tensors)
    nodes = [_node(proto, index, files, versions, prefix) for index, proto in enumerate(graph.node)]
    nodes = [_with_map(node, maps) for node in nodes] if maps else nodes
    written = tuple(other for node in nodes for other in _written(node, tensors))
    return UntypedGraph(written, tensors, inputs, tuple(map(_declared, graph.output)))


def _written(node: Node, tensors: Tensors) -> Sequence[Node]:
    """Return the nodes that are written in place of one, if it has graphs; others are where types are known."""
    if not any(blocks(node)) or not REWRITES.serves(node.domain, node.op_type):
        return (node,)
    from opbuild.frontend.rewriting import Untyped, rewrite

    return rewrite(node, Untyped(node.name, tensors))


def _node(proto: NodeProto, index: int, files: DataFiles, versions: Mapping[str, int], prefix: str) -> Node:
    name = prefix + onnx_node.describe(proto, index)
    onnx_node.check_node(proto, name, versions)
    node = onnx_node.make_node(proto, name, files)
    graphs = {name: value for name, value in node.attrs.items() if isinstance(value, GraphProto)}
    if not graphs:
        return node
    blocks = {name: to_block(graph, files, versions, prefix) for name, graph in graphs.items()}
    return node.with_(attrs={**node.attrs, **blocks})


def _with_map(node: Node, maps: Mapping[str, Any]) -> Node:
    """Return a node that knows the type of the values in a map that it reads."""
    kind = maps.get(node.inputs[0]) if node.inputs else None
    if kind is None:
        return node
    return node.with_(attrs={**node.attrs, MAPPED: ONNX_DTYPES.get(kind.value_type.tensor_type.elem_type, "object")})


def _declared(value: ValueInfoProto) -> UntypedPort:
    tensor = value.type.tensor_type
    if value.type.WhichOneof("value") != "tensor_type":
        return UntypedPort(value.name)
    extents = tuple(dim.dim_value if dim.HasField("dim_value") else -1 for dim in tensor.shape.dim)
    shape = extents if tensor.HasField("shape") else None
    return UntypedPort(value.name, ONNX_DTYPES.get(tensor.elem_type, ""), shape)


def _ending(evaluate: Evaluate) -> Evaluate:
    """Return the function that evaluates no loop that may take long: folding must end while one waits for it."""

    def evaluated(node: Node, inputs: Values, opset: int) -> Sequence[Array]:
        turns = inputs[0] if node.op_type == "Loop" else np.zeros(1)
        is_long = turns is None or turns.size != 1 or int(turns.reshape(-1)[0]) > MOST_TURNS
        if is_long or any(block.has_loop for block in blocks(node)):
            raise RunError(f"Loop node {node.name!r} may run for long", "it is evaluated when the network runs")
        return evaluate(node, inputs, opset)

    return evaluated
