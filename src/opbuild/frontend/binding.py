"""Binding without onnx: nodes and the shapes of inputs to a graph in which every type is static.

Nodes are taken in order; each is upgraded to the newest operator set, typed, and evaluated if all its inputs are
known, because later shapes may depend on its value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from opbuild.errors import InvalidModelError, ModelError, RunError, UnsupportedOperatorError
from opbuild.frontend.onnx_upgrade import upgrade
from opbuild.frontend.open_values import evaluate_open, fixed, is_data, is_open_value, table_slice
from opbuild.graph.extents import is_open
from opbuild.graph.passes.blame import blaming
from opbuild.graph.passes.bounded import Bounded
from opbuild.graph.passes.cleanup import eliminate_dead
from opbuild.graph.passes.fold import RANDOM, Evaluate, static_value
from opbuild.graph.passes.infer import infer_node, type_of
from opbuild.graph.types import DTYPES, Array, Graph, Node, TensorType

Names = dict[str, str]
"""What each name of the model is called in the graph that is made."""


class NodeBinder:
    """Builds one graph from nodes that call values by the model's names.

    Args:
        source_opset: The operator set that the model speaks.
        opset: The newest operator set, which the graph speaks.
        evaluate: Evaluates a node whose inputs are known.
    """

    def __init__(self, source_opset: int, opset: int, evaluate: Evaluate) -> None:
        self._source_opset = source_opset
        self._opset = opset
        self._evaluate = Bounded(evaluate)
        self._nodes: list[Node] = []
        self._types: dict[str, TensorType] = {}
        self._constants: dict[str, Array] = {}
        self._tensors: dict[str, Callable[[], Array]] = {}

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

    def begin(self, inputs: Mapping[str, TensorType]) -> Names:
        """Declare the graph's inputs and return the names that are known from now on."""
        self._types.update(inputs)
        return {each: each for each in inputs}

    def tensor(self, name: str, read: Callable[[], Array], scope: Names) -> None:
        """Declare a constant of the model, which is read when a node needs it."""
        scope[name] = unique = self._unique(name)
        self._tensors[unique] = read

    def visit(self, node: Node, scope: Names) -> None:
        """Take the next node, whose inputs and outputs have the model's names.

        Raises:
            ModelError: If it is not valid; the message names it.
        """
        with blaming(node):
            self._visit(node, scope)

    def _visit(self, node: Node, scope: Names) -> None:
        if node.op_type == "Constant" and not node.domain:
            scope[node.outputs[0]] = unique = self._unique(node.outputs[0])
            self._constants[unique] = _contents(node)
            self._types[unique] = type_of(self._constants[unique])
            return
        inputs = self._resolved(node.inputs, scope, node)
        if node.op_type == "Identity" and not node.domain and inputs[0]:
            scope[node.outputs[0]] = inputs[0]
            return
        outputs = self._declare(node.outputs, scope)
        if (inputs, outputs) != (node.inputs, node.outputs):
            node = node.with_(inputs=inputs, outputs=outputs)
        for each in upgrade(node, self._source_opset, self):
            self._add(each)

    def _declare(self, outputs: Sequence[str], scope: Names) -> tuple[str, ...]:
        """Return the names under which a node assigns its outputs."""
        unique = tuple(self._unique(each) if each else "" for each in outputs)
        scope.update((a, b) for a, b in zip(outputs, unique, strict=True) if a)
        return unique

    def _resolved(self, names: Sequence[str], scope: Names, node: Node) -> tuple[str, ...]:
        return tuple(self._resolve(each, scope, node.op_type, node.name) if each else "" for each in names)

    def _resolve(self, name: str, scope: Mapping[str, str], op_type: str, where: str) -> str:
        found = scope.get(name)
        if found is None:
            raise InvalidModelError(
                f"{op_type} node {where!r} reads {name!r}, which nothing before it assigns",
                "nodes must stand in an order in which each value is assigned before it is read",
            )
        return found

    def _unique(self, name: str) -> str:
        return self.fresh(name) if name in self._types or name in self._tensors else name

    def _load(self, name: str) -> None:
        if name not in self._types:
            value = self._tensors[name]()
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
            self._nodes.append(self._running(node, constants))
            return
        for name, value, kind in zip(node.outputs, known, found, strict=False):
            if name and is_open_value(value):
                self._constants[name], self._types[name] = value, TensorType(kind.dtype, value.shape)
            elif name:
                self._constants[name], self._types[name] = value, type_of(value)

    def _infer(
        self, node: Node, types: Sequence[TensorType | None], constants: Sequence[Array | None]
    ) -> tuple[TensorType, ...]:
        problem: ModelError
        try:
            return self._typed(node, types, constants)
        except UnsupportedOperatorError as error:
            problem = error
        if all(value is not None for value, each in zip(constants, types, strict=True) if each is not None):
            try:
                found = tuple(map(type_of, self._evaluate(node, constants, self._opset_of(node), ())))
            except (RunError, ModelError):
                raise problem from None
            if all(each.dtype in DTYPES for each in found):
                return found
        raise problem

    def _typed(
        self, node: Node, types: Sequence[TensorType | None], constants: Sequence[Array | None]
    ) -> tuple[TensorType, ...]:
        """Return the types of a node's outputs by opbuild's own rules."""
        return infer_node(node, types, constants)

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
        found = [self._types[name] for name in node.outputs if name]
        if any(is_open(each.shape) for each in found):
            return None
        if any(map(is_open_value, constants)):
            known = self._known_open(node, constants, found)
            if known is not None:
                return known
            constants = [self._fixed(name, value) for name, value in zip(node.inputs, constants, strict=True)]
        if node.op_type == "ConstantOfShape":
            type_ = self._types[node.outputs[0]]
            scalar = np.asarray(node.attrs.get("value", 0.0)).astype(type_.dtype).reshape(-1)[0]
            return (np.broadcast_to(scalar, type_.shape),)
        try:
            return self._evaluate(node, constants, self._opset_of(node), found)
        except (RunError, ModelError):
            return None

    # Open extents

    def _known_open(
        self, node: Node, constants: Sequence[Array | None], types: Sequence[TensorType]
    ) -> Sequence[Array] | None:
        found = evaluate_open(node, constants, self._opset_of(node), types, self._evaluate)
        if found is None:
            return None
        pairs = zip(found, types, strict=True)
        return [value if is_open_value(value) else value.astype(each.dtype) for value, each in pairs]

    def _fixed(self, name: str, value: Array | None) -> Array | None:
        return value if value is None or not is_open_value(value) else fixed(value, self._types[name].dtype)

    def _running(self, node: Node, constants: Sequence[Array | None]) -> Node:
        """Return a node that is left to run: of open values it reads no data, and what it fills or counts is a view."""
        if not node.domain and node.op_type in ("ConstantOfShape", "Range"):
            node = self._as_view(node, constants)
        inputs = [
            self._as_data(name) if is_data(node, index) and is_open_value(self._constants.get(name)) else name
            for index, name in enumerate(node.inputs)
        ]
        return node if tuple(inputs) == node.inputs else node.with_(inputs=tuple(inputs))

    def _as_data(self, name: str) -> str:
        """Return a value that a kernel can read in place of an open one: a number is an element of a table."""
        value, kind = self._constants[name], self._types[name]
        number = value.reshape(-1).tolist()[0] if value.size else 0
        table = table_slice((number, number + 1, 1), kind.dtype) if value.size == 1 else None
        if table is None:
            self._constants[name] = fixed(value, kind.dtype)
            return name
        places = [self.constant(np.array([place], object)) for place in (number, number + 1)]
        element, read = self.fresh(name), (self.constant(table), *places, self.constant(np.zeros(1, np.int64)))
        self._types[element] = TensorType(kind.dtype, (1,))
        self._nodes.append(Node("Slice", read, (element,), {}, f"{name}/extent"))
        if not kind.shape:
            flat, element = element, self.fresh(name)
            self._types[element] = kind
            self._nodes.append(Node("Squeeze", (flat,), (element,), {}, f"{name}/number"))
        return element

    def _as_view(self, node: Node, constants: Sequence[Array | None]) -> Node:
        if node.op_type == "ConstantOfShape":
            value = np.asarray(node.attrs.get("value", np.zeros(1, np.float32))).reshape(1)
            return node.with_(op_type="Expand", inputs=(self.constant(value), node.inputs[0]), attrs={}, proto=None)
        if any(value is None for value in constants):
            return node
        bounds = [value.reshape(-1).tolist()[0] for value in constants if value is not None]
        table = table_slice(bounds, self._types[node.outputs[0]].dtype)
        if table is None:
            return node
        places = [self.constant(np.array([bound], object if is_open([bound]) else np.int64)) for bound in bounds]
        axes = self.constant(np.zeros(1, np.int64))
        inputs = (self.constant(table), places[0], places[1], axes, places[2])
        return node.with_(op_type="Slice", inputs=inputs, attrs={}, proto=None)

    # The end

    def finish(
        self, name: str, inputs: Mapping[str, TensorType], outputs: tuple[str, ...], scope: Mapping[str, str]
    ) -> Graph:
        """Return the graph; an output that has another name in the model's scope is assigned by a node."""
        names = dict(scope)
        for output in dict.fromkeys(outputs):
            self._finish(output, names)
        graph = Graph(name, tuple(self._nodes), tuple(inputs), outputs, self._types, self._constants, self._opset)
        return eliminate_dead(graph)

    def _finish(self, output: str, scope: Names) -> None:
        value = scope.get(output)
        if value is None:
            raise InvalidModelError(f"output {output!r} is not assigned by any node", "export the model again")
        self._load(value)
        if value == output:  # perhaps an input or a constant
            return
        if output in self._types:  # a value inside a branch had the name before
            self._rename(output, scope)
        self._types[output] = self._types[value]
        self._nodes.append(Node("Identity", (value,), (output,), {}, f"{output}/output"))

    def _rename(self, value: str, scope: Names) -> None:
        """Give a value another name, wherever it is named."""
        moved = self.fresh(value)
        scope.update({name: moved for name, each in scope.items() if each == value})
        self._types[moved] = self._types[value]
        if value in self._constants:
            self._constants[moved] = self._constants.pop(value)
        for index, node in enumerate(self._nodes):
            if value in node.inputs or value in node.outputs:
                inputs, outputs = (
                    tuple(moved if name == value else name for name in names) for names in (node.inputs, node.outputs)
                )
                self._nodes[index] = node.with_(inputs=inputs, outputs=outputs)


def _contents(node: Node) -> Array:
    """Return the value of a Constant node."""
    attrs = node.attrs
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
        f"Constant node {node.name!r} holds {', '.join(attrs) or 'nothing'}, which opbuild does not support",
        "use a dense numeric tensor",
    )
