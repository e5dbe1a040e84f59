"""Binding: a model and the shapes of its inputs to a graph in which every type is static.

Nodes are taken in order; each is checked, upgraded to the newest operator set, typed, and evaluated if all its inputs
are known, because later shapes may depend on its value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import GraphProto, NodeProto, TensorProto

from opbuild.errors import InvalidModelError, ModelError, RunError, UnsupportedOperatorError
from opbuild.frontend import onnx_node
from opbuild.frontend.onnx_read import to_array
from opbuild.frontend.onnx_single import infer_single
from opbuild.frontend.onnx_upgrade import upgrade
from opbuild.graph.passes.cleanup import eliminate_dead
from opbuild.graph.passes.fold import RANDOM, Evaluate, static_value
from opbuild.graph.passes.infer import has_rule, infer_node, type_of
from opbuild.graph.types import Array, Graph, Node, TensorType


class Binder:
    """Builds one graph; made for each call of ``OnnxModel.bind``."""

    def __init__(self, model: onnx.ModelProto, folder: Path | None, opset: int, evaluate: Evaluate) -> None:
        self._opsets = {("" if o.domain == "ai.onnx" else o.domain): o.version for o in model.opset_import}
        self._opset = opset
        self._source_opset = self._opsets.get("", opset)
        self._folder = folder
        self._evaluate = evaluate
        self._nodes: list[Node] = []
        self._types: dict[str, TensorType] = {}
        self._constants: dict[str, Array] = {}
        self._tensors: dict[str, TensorProto] = {}

    def bind(self, name: str, graph: GraphProto, inputs: Mapping[str, TensorType]) -> Graph:
        """Return the graph of the model for inputs of these types."""
        self._types.update(inputs)
        scope = {each: each for each in inputs}
        self._walk(graph, scope)
        outputs = tuple(value.name for value in graph.output)
        for output in outputs:
            self._finish(output, scope, inputs)
        return self._pruned(name, tuple(inputs), outputs)

    # Scope, as the upgrades see it

    def constant(self, value: Array) -> str:
        """Add a constant and return its name."""
        name = self.fresh("constant")
        self._constants[name], self._types[name] = value, type_of(value)
        return name

    def fresh(self, name: str) -> str:
        """Return an unused name that begins with ``name``."""
        index = len(self._types)
        while (found := f"{name}#{index}") in self._types or found in self._tensors:
            index += 1
        return found

    def type_of(self, name: str) -> TensorType:
        """Return the type of a value."""
        self._load(name)
        return self._types[name]

    # Walking

    def _walk(self, graph: GraphProto, scope: dict[str, str]) -> None:
        for tensor in graph.initializer:
            unique = self._unique(tensor.name)
            scope[tensor.name] = unique
            self._tensors[unique] = tensor
        for index, proto in enumerate(graph.node):
            name = onnx_node.describe(proto, index)
            onnx_node.check_node(proto, name, self._opsets)
            self._visit(proto, name, scope)

    def _visit(self, proto: NodeProto, name: str, scope: dict[str, str]) -> None:
        if proto.op_type == "Constant" and proto.domain in ("", "ai.onnx"):
            unique = self._unique(proto.output[0])
            scope[proto.output[0]] = unique
            self._constants[unique] = _constant(proto, name, self._folder)
            self._types[unique] = type_of(self._constants[unique])
            return
        inputs = tuple(self._resolve(each, scope, proto, name) if each else "" for each in proto.input)
        if proto.op_type == "Identity" and inputs[0]:
            scope[proto.output[0]] = inputs[0]
            return
        if proto.op_type == "If":
            self._load(inputs[0])
            if inputs[0] in self._constants:
                self._inline(proto, bool(self._constants[inputs[0]].reshape(-1)[0]), scope)
                return
        attrs = onnx_node.read_attributes(proto, self._folder)
        node = onnx_node.make_node(proto, name, attrs, inputs)
        outputs = tuple(self._unique(each) if each else "" for each in proto.output)
        scope.update((a, b) for a, b in zip(proto.output, outputs, strict=True) if a)
        node = node.with_(outputs=outputs)
        captured = onnx_node.captures(proto)
        if any(True for _ in onnx_node.subgraphs(proto)):
            more = tuple(self._resolve(each, scope, proto, name) for each in captured)
            self._add(
                node.with_(inputs=(*inputs, *more), attrs={**attrs, "captures": captured, "opset": self._source_opset})
            )
            return
        for each in upgrade(node, self._source_opset, self):
            self._add(each)

    def _inline(self, proto: NodeProto, condition: bool, scope: dict[str, str]) -> None:
        wanted = "then_branch" if condition else "else_branch"
        branch = next(attribute.g for attribute in proto.attribute if attribute.name == wanted)
        inner = dict(scope)
        self._walk(branch, inner)
        for output, value in zip(proto.output, branch.output, strict=True):
            scope[output] = self._resolve(value.name, inner, proto, proto.name)

    def _resolve(self, name: str, scope: Mapping[str, str], proto: NodeProto, where: str) -> str:
        found = scope.get(name)
        if found is None:
            raise InvalidModelError(
                f"{proto.op_type} node {where!r} reads {name!r}, which nothing before it assigns",
                "nodes must stand in an order in which each value is assigned before it is read",
            )
        return found

    def _unique(self, name: str) -> str:
        return self.fresh(name) if name in self._types or name in self._tensors else name

    def _load(self, name: str) -> None:
        if name not in self._types:
            value = to_array(self._tensors[name], self._folder)
            self._constants[name], self._types[name] = value, type_of(value)

    # Typing and evaluating one node

    def _add(self, node: Node) -> None:
        for name in node.inputs:
            if name:
                self._load(name)
        types = [self._types[name] if name else None for name in node.inputs]
        constants = [self._constants.get(name) for name in node.inputs]
        found = self._infer(node, types, constants)
        self._types.update((name, each) for name, each in zip(node.outputs, found, strict=False) if name)
        known = self._known(node, types, constants)
        if known is None:
            self._nodes.append(node)
            return
        for name, value in zip(node.outputs, known, strict=False):
            if name:
                self._constants[name], self._types[name] = value, type_of(value)

    def _infer(
        self, node: Node, types: Sequence[TensorType | None], constants: Sequence[Array | None]
    ) -> tuple[TensorType, ...]:
        opset = self._opset_of(node)
        problem: ModelError
        try:
            if has_rule(node):
                return infer_node(node, types, constants)
            return infer_single(node, types, constants, opset)
        except UnsupportedOperatorError as error:
            problem = error
        if all(value is not None for value, each in zip(constants, types, strict=True) if each is not None):
            try:
                return tuple(type_of(value) for value in self._evaluate(node, constants, opset))
            except (RunError, ModelError):
                raise problem from None
        raise problem

    def _opset_of(self, node: Node) -> int:
        return int(node.attrs.get("opset", self._opset))

    def _known(
        self, node: Node, types: Sequence[TensorType | None], constants: Sequence[Array | None]
    ) -> Sequence[Array] | None:
        if node.domain or node.op_type in RANDOM:
            return None
        if node.op_type in ("Shape", "Size"):
            return (static_value(node, types[0] or self._types[node.inputs[0]]),)
        if any(value is None for value, each in zip(constants, types, strict=True) if each is not None):
            return None
        if node.op_type == "ConstantOfShape":
            made = self._types[node.outputs[0]]
            scalar = np.asarray(node.attrs.get("value", 0.0)).astype(made.dtype).reshape(-1)[0]
            return (np.broadcast_to(scalar, made.shape),)
        try:
            return self._evaluate(node, constants, self._opset_of(node))
        except (RunError, ModelError):
            return None

    # The end

    def _finish(self, output: str, scope: Mapping[str, str], inputs: Mapping[str, TensorType]) -> None:
        """Give each output a node of its own, whatever it is an alias of."""
        value = scope.get(output)
        if value is None:
            raise InvalidModelError(f"output {output!r} is not assigned by any node", "export the model again")
        self._load(value)
        if value == output and value not in self._constants and value not in inputs:
            return
        if value == output:  # an output that is an input or a constant: its name must be assigned by a node
            moved = self.fresh(value)
            if value in inputs:
                raise InvalidModelError(
                    f"output {output!r} is also an input", "put an Identity node between them, with another name"
                )
            self._constants[moved], self._types[moved] = self._constants.pop(value), self._types[value]
            value = moved
        self._types[output] = self._types[value]
        self._nodes.append(Node("Identity", (value,), (output,), {}, f"{output}/output"))

    def _pruned(self, name: str, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Graph:
        graph = Graph(name, tuple(self._nodes), inputs, outputs, self._types, self._constants, self._opset)
        return eliminate_dead(graph)


def _constant(proto: NodeProto, name: str, folder: Path | None) -> Array:
    attrs: dict[str, Any] = onnx_node.read_attributes(proto, folder)
    if isinstance(attrs.get("value"), np.ndarray):
        return np.asarray(attrs["value"])
    for key, dtype in (
        ("value_float", "float32"),
        ("value_floats", "float32"),
        ("value_int", "int64"),
        ("value_ints", "int64"),
    ):
        if key in attrs:
            return np.asarray(attrs[key], dtype)
    raise UnsupportedOperatorError(
        f"Constant node {name!r} holds {', '.join(attrs) or 'nothing'}, which opbuild does not support",
        "use a dense numeric tensor",
    )
