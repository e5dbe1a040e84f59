"""Binding an ONNX model: its protobuf nodes, checked against their schemas, become nodes for ``frontend.binding``.

Branches whose condition is known are followed; what has no shape rule of opbuild's own is typed by onnx.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import onnx
from onnx import GraphProto, NodeProto

from opbuild.errors import InvalidModelError, RunError
from opbuild.frontend import onnx_node
from opbuild.frontend.binding import Names, NodeBinder
from opbuild.frontend.onnx_read import DataFiles, opsets, to_array
from opbuild.frontend.onnx_single import infer_single
from opbuild.graph.passes.blame import blaming
from opbuild.graph.passes.fold import Evaluate
from opbuild.graph.passes.infer import check_sizes, has_rule
from opbuild.graph.types import Array, Graph, Node, TensorType

MOST_TURNS = 1000
"""Turns of a loop that is evaluated while a network is built."""


class Binder(NodeBinder):
    """Builds one graph; made for each call of ``OnnxModel.bind``."""

    def __init__(self, model: onnx.ModelProto, files: DataFiles, opset: int, evaluate: Evaluate) -> None:
        self._opsets = opsets(model)
        self._files = files
        super().__init__(self._opsets.get("", opset), opset, _ending(evaluate))

    def bind(self, name: str, graph: GraphProto, inputs: Mapping[str, TensorType]) -> Graph:
        """Return the graph of the model for inputs of these types."""
        scope = self.begin(inputs)
        self._walk(graph, scope)
        return self.finish(name, inputs, tuple(value.name for value in graph.output), scope)

    def _walk(self, graph: GraphProto, scope: Names) -> None:
        for tensor in graph.initializer:
            self.tensor(tensor.name, partial(to_array, tensor, self._files), scope)
        for index, proto in enumerate(graph.node):
            name = onnx_node.describe(proto, index)
            onnx_node.check_node(proto, name, self._opsets)
            self._visit_proto(proto, name, scope)

    def _visit_proto(self, proto: NodeProto, name: str, scope: Names) -> None:
        if proto.op_type == "If" and not proto.domain.removeprefix("ai.onnx"):
            known = self._condition(self._resolve(proto.input[0], scope, "If", name), name)
            if known is not None:
                self._inline(proto, name, known, scope)
                return
        node = onnx_node.make_node(proto, name, self._files)
        if not onnx_node.has_graphs(proto):
            self.visit(node, scope)
            return
        captured = onnx_node.captures(proto)
        inputs = self._resolved((*proto.input, *captured), scope, node)
        node = node.with_(inputs=inputs, outputs=self._declare(proto.output, scope))
        node = node.with_(attrs={**node.attrs, "captures": captured, "opset": self._source_opset})
        with blaming(node):
            self._take(node)

    def _condition(self, value: str, name: str) -> bool | None:
        """Return the condition of an If, None if it is known only at run time."""
        kind = self.type_of(value)
        if kind.dtype != "bool" or kind.size != 1:
            raise InvalidModelError(f"If node {name!r}: its condition is {kind}", "a condition is one bool")
        return bool(self._constants[value].reshape(-1)[0]) if value in self._constants else None

    def _inline(self, proto: NodeProto, name: str, condition: bool, scope: Names) -> None:
        wanted = "then_branch" if condition else "else_branch"
        branch = next(attribute.g for attribute in proto.attribute if attribute.name == wanted)
        inner = dict(scope)
        self._walk(branch, inner)
        for output, value in zip(proto.output, branch.output, strict=True):
            scope[output] = self._resolve(value.name, inner, proto.op_type, name)

    def _typed(
        self, node: Node, types: Sequence[TensorType | None], constants: Sequence[Array | None]
    ) -> tuple[TensorType, ...]:
        if has_rule(node.domain, node.op_type):
            return super()._typed(node, types, constants)
        found = infer_single(node, types, constants, self._opset_of(node))
        check_sizes(node, found)
        return found


def _ending(evaluate: Evaluate) -> Evaluate:
    """Return the function that evaluates no loop that may take long: what is folded must end while one waits for it."""

    def evaluated(node: Node, inputs: Sequence[Array | None], opset: int) -> Sequence[Array]:
        turns = inputs[0] if node.op_type == "Loop" else np.zeros(1)
        is_long = turns is None or turns.size != 1 or int(turns.reshape(-1)[0]) > MOST_TURNS
        graphs = [value for value in node.attrs.values() if isinstance(value, GraphProto)]
        if is_long or any(map(onnx_node.has_loop, graphs)):
            raise RunError(f"Loop node {node.name!r} may run for long", "it is evaluated when the network runs")
        return evaluate(node, inputs, opset)

    return evaluated
