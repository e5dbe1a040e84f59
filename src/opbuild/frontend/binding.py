"""Binding without onnx: nodes and the shapes of inputs to a graph in which every type is static.

Nodes are taken in order; each is upgraded to the newest operator set, typed, and evaluated if all its inputs are
known, because later shapes may depend on its value.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from opbuild.dtypes import numpy_dtype
from opbuild.errors import InvalidModelError, ModelError, RunError, UnsupportedOperatorError
from opbuild.frontend.block import KnownValue, Names, UntypedGraph, blocks, computed
from opbuild.frontend.onnx_upgrade import upgrade
from opbuild.frontend.open_values import Types, Values, decides, evaluate_open, fixed, is_data, is_open_value
from opbuild.frontend.rewriting import rewrite
from opbuild.frontend.rewritten import REWRITES
from opbuild.graph.breaks import HOST_VALUE, bound_of
from opbuild.graph.extents import as_extent, is_open
from opbuild.graph.graph_builder import NodeBuilder, Scope, integers
from opbuild.graph.indices import DOMAIN, HINT, LOSSES, UNCHECKED, Bounds, bounds_of, outside
from opbuild.graph.passes.cleanup import eliminate_dead
from opbuild.graph.passes.fold import DEQUANTIZE, RANDOM, Bounded, Evaluate, static_value
from opbuild.graph.passes.indices import is_inside, with_input
from opbuild.graph.passes.infer import has_rule, infer_node, node_error_context, type_of
from opbuild.graph.shape_rules import NoTensorError, UnknownTypeError, UnknownValueError
from opbuild.graph.symbolic_numbers import bits_of
from opbuild.graph.tables import numbers_of, table_slice
from opbuild.graph.types import DTYPES, IN_RANGE, TABLE, Array, Graph, Node, TensorType
from opbuild.platform.records import NamedTuple

_EMPTY_LISTS = (TensorType("int64", (0,)), TensorType("int32", (0,)))


class FunctionCall(NamedTuple):
    """A function that is taken in the place of a node.

    Attributes:
        block: Its nodes.
        scope: What its inputs are called in the graph.
        opset: The operator set that its nodes speak.
    """

    block: UntypedGraph
    scope: Names
    opset: int


class NodeBinder:
    """Builds one graph, of the newest operator set, from nodes of another one that call values by the model's names."""

    def __init__(self, source_opset: int, opset: int, evaluate: Evaluate) -> None:
        self._nodes: list[Node] = []
        self._types: dict[str, TensorType] = {}
        self._constants: dict[str, Array] = {}
        self._bounds: tuple[str, ...] = ()
        self._deferred: dict[str, Node] = {}  # what makes a value that follows from extents, but not as a formula
        self._tables: dict[str, str] = {}  # what an open value is called where it is data
        self.source_opset = source_opset
        self.opset = opset
        self._evaluate = Bounded(evaluate)
        self._tensors: dict[str, Callable[[], Array]] = {}
        self._origins: dict[str, str] = {}
        self._producers: dict[str, Node] = {}
        self._within = ""

    # Scope, as the upgrades see it

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

    def value_of(self, name: str) -> Array | None:
        """Return a value if it is known when the network is built."""
        self._load(name)
        self.settle(name)
        return self._constants.get(name)

    def append(self, node: Node) -> None:
        """Add a node of the newest operator set that has its names."""
        self.add((node,))
        self._producers.update(dict.fromkeys(node.outputs, node))

    def producer(self, name: str) -> Node | None:
        """Return the node that was appended and assigns a value."""
        return self._producers.get(name)

    # Walking

    def begin(self, inputs: Mapping[str, TensorType]) -> Names:
        """Declare the graph's inputs and return the names that are known from now on."""
        self._types.update(inputs)
        return {each: each for each in inputs}

    def tensor(self, name: str, read: Callable[[], Array], scope: Names, origin: str = "") -> None:
        """Declare a constant of the model, which is read when a node needs it; ``origin`` says which one it is."""
        scope[name] = unique = self._unique(name)
        self._tensors[unique] = read
        if origin:
            self._origins[unique] = origin

    def read_as(self, opset: int, within: str) -> None:
        """Take the next nodes as ones of an operator set, and begin the names of their values with a text."""
        self.source_opset, self._within = opset, within

    def resolved(self, names: Sequence[str], scope: Names, node: Node) -> tuple[str, ...]:
        """Return the names of the values that a node reads.

        Raises:
            InvalidModelError: If one is not known.
        """
        for name in names:
            if name and scope.get(name) is None:
                problem = f"{node.op_type} node {node.name!r} reads {name!r}, which nothing before it assigns"
                hint = "nodes must stand in an order in which each value is assigned before it is read"
                raise InvalidModelError(problem, hint)
        return tuple(scope[name] if name else "" for name in names)

    def restore(self, types: Mapping[str, TensorType], known: Mapping[str, KnownValue]) -> None:
        """Declare the values with which a segment begins: those that are given when it runs, and constants."""
        self._types.update(types)
        self._bounds = tuple(name for name in known if ">=" in name)
        for name, each in known.items():
            if each.dtype:
                self.assign([name], [each.read()], [TensorType(each.dtype, ())])
            else:
                self._tensors[name], self._origins[name] = each.read, each.origin

    def known(self, name: str) -> KnownValue:
        """Return a constant as another segment reads it."""
        origin = self._origins.get(name)
        if origin is None:
            return computed(self.value(name), self._types[name].dtype)
        if name in self._constants:
            return KnownValue(origin, partial(self._constants.__getitem__, name))
        return KnownValue(origin, self._tensors[name])

    def open_value(self, name: str) -> Array | None:
        """Return a constant that follows from open extents; None if it is another value."""
        found = self._constants.get(name)
        return found if is_open_value(found) else None

    def is_known(self, name: str) -> bool:
        """Return whether a value is a constant."""
        return name in self._constants or name in self._tensors

    def is_no_tensor(self, name: str) -> bool:
        """Return whether a value is known to be text, or something else that kernels cannot read."""
        return name in self._types and self._types[name].dtype == HOST_VALUE.dtype

    def value(self, name: str) -> Array:
        """Return a constant."""
        self._load(name)
        self.settle(name)
        return self._constants[name]

    def visit(self, node: Node, scope: Names) -> FunctionCall | None:
        """Take the next node, whose inputs and outputs have the model's names.

        Returns:
            The function to be taken in its place, if there is a better one; the node itself is not taken then.

        Raises:
            UnknownTypeError: If its types cannot be told yet.
            ModelError: If it is not valid; the message names it.
        """
        with node_error_context(node):
            return self._visit(node, scope)

    def _visit(self, node: Node, scope: Names) -> FunctionCall | None:
        if node.op_type == "Constant" and not node.domain:
            scope[node.outputs[0]] = unique = self._unique(node.outputs[0])
            self._constants[unique] = _contents(node)
            self._types[unique] = type_of(self._constants[unique])
            return None
        inputs = self.resolved(node.inputs, scope, node)
        if node.op_type == "Identity" and not node.domain and inputs[0]:
            scope[node.outputs[0]] = inputs[0]
            return None
        outputs = self.declare(node.outputs, scope)
        if (inputs, outputs) != (node.inputs, node.outputs):
            node = node.with_(inputs=inputs, outputs=outputs)
        if not REWRITES.serves(node.domain, node.op_type):
            return self.add(upgrade(checked(node, self), self.source_opset, self), outputs)
        try:
            written = rewrite(node, self)
        except UnknownTypeError as error:
            error.stopped = node
            raise
        return self.add(written, outputs)

    def add(self, nodes: Sequence[Node], outputs: Sequence[str] = ()) -> FunctionCall | None:
        """Take nodes of the newest operator set that compute one of the model, under the names of the graph.

        Where one reads or makes what is no tensor, that one and what reads its results are all that waits for it.

        Args:
            nodes: The nodes.
            outputs: What they compute of the model, for who takes a function in their place.

        Returns:
            The function to be taken in the place of a single one, if there is a better one.

        Raises:
            UnknownTypeError, ModelError: If the types of one cannot be told yet, or one is not valid.
        """
        call = self._function(nodes[0]) if len(nodes) == 1 else None
        late: list[Node] = []
        problems: list[UnknownTypeError] = []
        for each in nodes if call is None else ():
            try:
                if not any(set(each.inputs).intersection(other.outputs) for other in late):
                    self._add(each)
                    continue
            except UnknownTypeError as error:
                error.stopped, error.nodes = each, tuple(nodes)
                if not isinstance(error, NoTensorError):
                    problems.clear()  # they would be kept by this frame, and it by the error
                    raise
                problems.append(error)
            late.append(each)
        if problems:
            problems[0].nodes = tuple(late)
            raise problems.pop(0)
        return call

    def _function(self, node: Node) -> FunctionCall | None:
        """Return the function that is to be taken in the place of a node, None for the node itself."""
        return None

    def evaluated(self, node: Node, inputs: Values) -> Sequence[Array]:
        """Return the outputs of a node whose inputs are known.

        Raises:
            RunError, ModelError: If they cannot be computed, or not in bounded time and memory.
        """
        found = self._evaluate(node, inputs, self._opset_of(node), ())
        if not all(isinstance(each, np.ndarray) and each.dtype.name in DTYPES for each in found):
            problem = f"{node.op_type} node {node.name!r} makes no tensors"
            raise RunError(problem, "it is evaluated when the network runs")
        return found

    def assign(self, names: Sequence[str], values: Sequence[Array], types: Sequence[TensorType] = ()) -> None:
        """Declare computed values as constants; ``types`` are needed of those that follow from open extents."""
        for index, (name, value) in enumerate(zip(names, values, strict=False)):
            if name:
                found = TensorType(types[index].dtype, value.shape) if is_open_value(value) else type_of(value)
                self._constants[name], self._types[name] = value, found

    def declare(self, outputs: Sequence[str], scope: Names) -> tuple[str, ...]:
        """Return the names under which a node assigns its outputs."""
        unique = tuple(self._unique(each) if each else "" for each in outputs)
        scope.update((a, b) for a, b in zip(outputs, unique, strict=True) if a)
        return unique

    def _unique(self, name: str) -> str:
        name = self._within + name
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
        node = self._with_empty_lists(node)
        types = [self._types[name] if name else None for name in node.inputs]
        if HOST_VALUE in types:
            raise NoTensorError(f"{node.op_type} node {node.name!r} reads a value that is no tensor", "give it tensors")
        constants = [self._constants.get(name) for name in node.inputs]
        try:
            found = self._infer(node, types, constants)
        except UnknownTypeError as error:
            if not self.settle_inputs(node, error):
                raise
            self._add(node)
            return
        self._types.update((name, each) for name, each in zip(node.outputs, found, strict=False) if name)
        known = self._known_values(node, types, constants)
        if known is None and self._fix_deciding(node, types, constants):
            self._add(node)
            return
        if known is None:
            self.defer(node)
            self._append(self.running(node, constants))
            return
        self.assign(node.outputs, known, found)

    def _with_empty_lists(self, node: Node) -> Node:
        """Return a node whose empty lists of integers, of axes say, are constants: nobody needs to wait for those."""
        if not any(self._is_empty_list(name) for name in node.inputs[1:]):
            return node
        empty = {name for name in node.inputs[1:] if self._is_empty_list(name)}
        made = (self.constant(np.zeros(0, self._types[x].dtype)) if x in empty else x for x in node.inputs[1:])
        return node.with_(inputs=(node.inputs[0], *made))

    def _is_empty_list(self, name: str) -> bool:
        return bool(name) and name not in self._constants and self._types[name] in _EMPTY_LISTS

    def _append(self, node: Node) -> None:
        """Add a node to the graph, all values of which are tensors that kernels can read."""
        for name in (*node.inputs, *node.outputs):
            if name and self._types[name].dtype not in DTYPES:
                problem = f"{node.op_type} node {node.name!r}: {name!r} is text, which kernels cannot read"
                raise NoTensorError(problem, "make the inputs of this node constants, or use numbers for text")
        self._nodes.append(node)

    def _fix_deciding(self, node: Node, types: Types, constants: Values) -> bool:
        """Make open values that decide more of a node than extents those of the size at hand; return whether any did.

        Axes do, and the length of a window.
        """
        deciding = [
            name
            for index, (name, value) in enumerate(zip(node.inputs, constants, strict=True))
            if is_open_value(value) and decides(node, index) and self._is_needed(node, index, types, constants)
        ]
        for name in deciding:
            self.fix(name)
        return bool(deciding)

    def _is_needed(self, node: Node, index: int, types: Types, constants: Values) -> bool:
        """Return whether the types of a node's outputs are not known without the value of an input."""
        try:
            self._infer(node, types, [None if place == index else each for place, each in enumerate(constants)])
        except (ModelError, UnsupportedOperatorError):
            return True
        return False

    def _infer(self, node: Node, types: Types, constants: Values) -> tuple[TensorType, ...]:
        try:
            return self._typed(node, types, constants)
        except UnsupportedOperatorError:
            if all(value is not None for value, each in zip(constants, types, strict=True) if each is not None):
                with contextlib.suppress(RunError, ModelError):
                    return tuple(map(type_of, self.evaluated(node, self.fixed_values(node.inputs, constants))))
            raise

    def _typed(self, node: Node, types: Types, constants: Values) -> tuple[TensorType, ...]:
        """Return the types of a node's outputs; where there is no rule of opbuild's own, evaluating it tells them."""
        if has_rule(node.domain, node.op_type):
            return infer_node(node, types, constants)
        problem = f"{node.op_type} node {node.name!r}: the types of its results are known when it is evaluated"
        raise UnknownTypeError(problem, "install onnx, and build the model itself")

    def _opset_of(self, node: Node) -> int:
        return int(node.attrs.get("opset", self.opset))

    def _known_values(self, node: Node, types: Types, constants: Values) -> Sequence[Array] | None:
        if node.domain or node.op_type in RANDOM or node.op_type == DEQUANTIZE:
            return None
        if node.op_type in ("Shape", "Size"):
            return (static_value(node, types[0] or self._types[node.inputs[0]]),)
        if any(value is None for value, each in zip(constants, types, strict=True) if each is not None):
            return None
        found = [self._types[name] for name in node.outputs if name]
        if any(is_open(each.shape) for each in found):
            return None
        if any(map(is_open_value, constants)):
            evaluate = partial(self._evaluate, types=None)
            return evaluate_open(node, constants, self._opset_of(node), found, evaluate)
        if node.op_type == "ConstantOfShape":
            type_ = self._types[node.outputs[0]]
            scalar = np.asarray(node.attrs.get("value", 0.0)).astype(numpy_dtype(type_.dtype)).reshape(-1)[0]
            return (np.broadcast_to(scalar, type_.shape),)
        try:
            return self._evaluate(node, constants, self._opset_of(node), found)
        except (RunError, ModelError):
            return None

    # What follows from open extents

    def bounded_value(self, name: str, least: int) -> int | None:
        """Return the greater of a value and an extent, if that is known alone; see ``GraphBreak.least``."""
        for known in self._bounds:
            bound = bound_of(known, name)
            if bound is not None and (self._types[bound[0]].shape[bound[1]] if bound[0] else 0) <= least:
                return max(least, as_extent(self.value(known).reshape(-1)[0]))
        return None

    def constant(self, value: Array) -> str:
        """Add a constant and return its name."""
        name = self.fresh("constant")
        self._constants[name], self._types[name] = value, type_of(value)
        return name

    def fixed_values(self, names: Sequence[str], values: Values) -> list[Array | None]:
        """Return values, those that are open as the numbers of the size at hand."""
        return [
            value if value is None or not is_open_value(value) else fixed(value, self._types[name].dtype)
            for name, value in zip(names, values, strict=True)
        ]

    # What runs although it follows from extents alone

    def defer(self, node: Node) -> None:
        """Take note of a node that is to run, if all that it reads is known or follows from extents."""
        reads = [name for name in node.inputs if name]
        if not all(name in self._constants or name in self._deferred for name in reads):
            return
        has_open = any(name in self._deferred or is_open_value(self._constants.get(name)) for name in reads)
        if has_open and not (node.domain or node.op_type in RANDOM or any(blocks(node))):
            self._deferred.update((name, node) for name in node.outputs if name)

    def settle_inputs(self, node: Node, error: UnknownTypeError) -> bool:
        """Evaluate the values that decide a node's types, at the example size, and return whether there are any."""
        names = (node.inputs[error.index],) if isinstance(error, UnknownValueError) else node.inputs
        settled = [self.settle(name) or self.fix(name) for name in dict.fromkeys(names)]
        return any(settled)

    def fix(self, name: str) -> bool:
        """Make an open value that of the size at hand, and return whether it was open."""
        value = self._constants.get(name)
        if value is None or not is_open_value(value):
            return False
        self._constants[name] = fixed(value, self._types[name].dtype)
        return True

    def settle(self, name: str) -> bool:
        """Make a constant of a value that follows from extents, that of the size at hand; return whether it is one."""
        node = self._deferred.get(name)
        if node is None:
            return False
        try:
            values = [self.value(each) if each else None for each in node.inputs]
            types = [self._types[each] if each else None for each in node.inputs]
            found = self._known_values(node, types, values) if any(map(is_open_value, values)) else None
            if found is None:
                found = self.evaluated(node, self.fixed_values(node.inputs, values))
        except (RunError, ModelError, LookupError):
            found = ()
        for each in node.outputs:
            self._deferred.pop(each, None)
        if not found:
            return False
        self._nodes = [each for each in self._nodes if set(node.outputs).isdisjoint(each.outputs)]
        self.assign(node.outputs, found, [self._types.get(each, TensorType("", ())) for each in node.outputs])
        return True

    # What reads such values

    def running(self, node: Node, constants: Values) -> Node:
        """Return a node that is left to run: of open values it reads data as tables, and mere movements are views."""
        node = self._with_sure_indices(node)
        if not node.domain and node.op_type in ("ConstantOfShape", "Gather", "Range"):
            node = self._as_view(node, constants)
        inputs = [
            self._as_data(name) if is_data(node, index) and is_open_value(self._constants.get(name)) else name
            for index, name in enumerate(node.inputs)
        ]
        return node if tuple(inputs) == node.inputs else node.with_(inputs=tuple(inputs))

    def _with_sure_indices(self, node: Node) -> Node:
        """Return a node whose open indices are in range, which is a condition; others are refused when it runs."""
        bounds = bounds_of(node, lambda index: self._types[node.inputs[index]].shape)
        value = None if bounds is None else self._constants.get(node.inputs[bounds.input])
        if bounds is None or value is None or not is_open_value(value) or not is_inside(value, bounds):
            return node
        return node.with_(attrs={**node.attrs, UNCHECKED: 1})

    def _as_data(self, name: str) -> str:
        """Return a value that a kernel can read in place of an open one: a table of its numbers."""
        if name not in self._tables:
            value, dtype, label = self._constants[name], self._types[name].dtype, f"{name}/numbers"
            self._tables[name] = found = self.fresh(label)
            self._types[found] = TensorType(dtype, value.shape)
            attrs = {"table": "numbers", "arguments": (numbers_of(value, dtype),)}
            self._nodes.append(Node(TABLE, (), (found,), attrs, label, "opbuild"))
        return self._tables[name]

    def _as_view(self, node: Node, constants: Values) -> Node:
        if node.op_type == "ConstantOfShape":
            value = np.asarray(node.attrs.get("value", np.zeros(1, np.float32))).reshape(1)
            return node.with_(op_type="Expand", inputs=(self.constant(value), node.inputs[0]), attrs={}, proto=None)
        if node.op_type == "Gather":
            return self._as_slice(node)
        if any(value is None for value in constants):
            return node
        return self._range(node, [value.reshape(-1).tolist()[0] for value in constants if value is not None])

    def _range(self, node: Node, bounds: Sequence[Any]) -> Node:
        """Return a node for consecutive numbers, or ones at equal distances: a part of a table, or a table."""
        kind = self._types[node.outputs[0]]
        table = table_slice(bounds, kind.dtype)
        if table is not None:
            return self._slice_node(node, self.constant(table), 0, bounds)
        start, _, delta = map(bits_of, bounds) if np.issubdtype(np.dtype(kind.dtype), np.floating) else bounds
        attrs = {"table": "evenly", "arguments": (start, delta, *kind.shape)}
        return node.with_(op_type=TABLE, domain="opbuild", inputs=(), attrs=attrs, proto=None)

    def _as_slice(self, node: Node) -> Node:
        """Return the node of a gather at open indices: a slice of the data where they lie at equal distances."""
        indices, kind = self._constants.get(node.inputs[1]), self._types[node.outputs[0]]
        shape = self._types[node.inputs[0]].shape
        axis = int(node.attrs.get("axis", 0)) % len(shape)
        if indices is None or not node.attrs.get(UNCHECKED) or not indices.size or indices.ndim > 1:
            return node
        places = [place + shape[axis] if place < 0 else place for place in indices.reshape(-1).tolist()]
        step, *others = [later - place for place, later in pairwise(places)] or [1]
        if is_open([step, *others]) or step == 0 or any(other != step for other in others):
            return node
        end = places[-1] + 1 if step > 0 else places[-1] - 1 if places[-1] > 0 else -(2**62)
        if indices.ndim:
            return self._slice_node(node, node.inputs[0], axis, (places[0], end, step))
        whole = self.fresh(node.outputs[0])
        self._types[whole] = TensorType(kind.dtype, (*shape[:axis], 1, *shape[axis + 1 :]))
        self._nodes.append(self._slice_node(node.with_(outputs=(whole,)), node.inputs[0], axis, (places[0], end, step)))
        axes = self.constant(np.array([axis]))
        return node.with_(op_type="Squeeze", inputs=(whole, axes), attrs={}, proto=None)

    def _slice_node(self, node: Node, data: str, axis: int, bounds: Sequence[Any]) -> Node:
        """Return a node as the Slice of one axis by a start, an end and a step."""
        start, end, step = (self.constant(integers([bound])) for bound in bounds)
        inputs = (data, start, end, self.constant(np.array([axis])), step)
        return node.with_(op_type="Slice", inputs=inputs, attrs={}, proto=None)

    # The end

    def segment(self, name: str, inputs: Sequence[str], outputs: tuple[str, ...]) -> Graph:
        """Return the nodes so far as a graph that gives some of its values."""
        for output in outputs:
            self._load(output)
        graph = Graph(name, tuple(self._nodes), tuple(inputs), outputs, self._types, self._constants, self.opset)
        return eliminate_dead(graph)

    def finish(
        self, name: str, inputs: Mapping[str, TensorType], outputs: tuple[str, ...], scope: Mapping[str, str]
    ) -> Graph:
        """Return the graph; an output that has another name in the model's scope is assigned by a node."""
        wanted = {output: self._assigned(output, scope) for output in outputs}
        # A value inside a branch may have had an output's name before.
        moved = self._renamed([output for output, value in wanted.items() if value != output and output in self._types])
        for output, value in wanted.items():
            if value != output:  # else it is made under its name, or is perhaps an input or a constant
                source = moved.get(value, value)
                self._types[output] = self._types[source]
                self._nodes.append(Node("Identity", (source,), (output,), {}, f"{output}/output"))
        return self.segment(name, tuple(inputs), outputs)

    def _assigned(self, output: str, scope: Mapping[str, str]) -> str:
        """Return the name of the value of an output, which is known from now on."""
        value = scope.get(output)
        if value is None:
            raise InvalidModelError(f"output {output!r} is not assigned by any node", "export the model again")
        self._load(value)
        return value

    def _renamed(self, values: Sequence[str]) -> dict[str, str]:
        """Give values other names, wherever they are named, and return those."""
        moved: dict[str, str] = {}
        for value in values:
            moved[value] = other = self.fresh(value)
            self._types[other] = self._types[value]
            if value in self._constants:
                self._constants[other] = self._constants.pop(value)
        for index, node in enumerate(self._nodes if moved else ()):
            inputs, outputs = (tuple(moved.get(name, name) for name in names) for names in (node.inputs, node.outputs))
            if (inputs, outputs) != (node.inputs, node.outputs):
                self._nodes[index] = node.with_(inputs=inputs, outputs=outputs)
        return moved


def _contents(node: Node) -> Array:
    """Return the value of a Constant node."""
    attrs = node.attrs
    if isinstance(attrs.get("value"), np.ndarray):
        return np.asarray(attrs["value"])
    for kind, dtype in (("float", "float32"), ("int", "int64")):
        for key in (f"value_{kind}", f"value_{kind}s"):
            if key in attrs:
                return np.asarray(attrs[key], dtype)
    problem = f"Constant node {node.name!r} holds {', '.join(attrs) or 'nothing'}, which opbuild does not support"
    raise UnsupportedOperatorError(problem, "use a dense numeric tensor")


_CHECKED = frozenset((*LOSSES, "RotaryEmbedding"))
"""Operators of which a function may be taken that reads their indices in another way."""


def checked(node: Node, scope: Scope) -> Node:
    """Return a node that reads indices which were looked at by nodes that are written.

    Raises:
        InvalidModelError: If known ones are out of range.
    """
    if node.op_type not in _CHECKED:
        return node
    bounds = bounds_of(node, lambda index: scope.type_of(node.inputs[index]).shape)
    if bounds is None:
        return node
    number = node.attrs.get("ignore_index") if node.op_type in LOSSES else None  # the number of no class
    ignored = None if number is None or 0 <= number < bounds.counts[0] else int(number)
    known = scope.value_of(node.inputs[bounds.input])
    if known is None:
        return _range_check(NodeBuilder(node, scope), bounds, ignored)
    found = outside(known if ignored is None else known[known != ignored], bounds.counts, negative=bounds.negative)
    if found:
        raise InvalidModelError(f"node {node.name!r}: {found}", HINT)
    return node


def _range_check(of: NodeBuilder, bounds: Bounds, ignored: int | None) -> Node:
    given = of.input(bounds.input)
    attrs: dict[str, Any] = {"counts": bounds.counts, "negative": bounds.negative}
    if ignored is None:
        looked = of(IN_RANGE, given, domain=DOMAIN, **attrs)
    else:
        none, zero = (of.constant(each, given.dtype) for each in (ignored, 0))
        is_none = of("Equal", given, none)
        looked = of(IN_RANGE, of("Where", is_none, zero, given), domain=DOMAIN, **attrs)
        looked = of("Where", is_none, none, looked)
    return with_input(of.node, bounds.input, looked)
