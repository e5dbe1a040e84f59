"""ONNX models in: ``load_model`` reads and checks, ``OnnxModel.bind`` makes the graph for given input shapes.

A model's protobuf nodes, checked against their schemas, become a block for ``frontend.walk``. What has no shape rule of
opbuild's own is typed by onnx. An operator that ONNX defines by others may be replaced by them (``frontend.expansion``
tells which).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import numpy as np

from opbuild.dtypes import is_float
from opbuild.errors import DTypeError, InvalidModelError, OpbuildError, RunError, ShapeError, UnsupportedOperatorError
from opbuild.frontend import onnx_node
from opbuild.frontend.binding import FunctionCall, NodeBinder
from opbuild.frontend.block import Remainder, UntypedGraph, UntypedPort, begin, blocks
from opbuild.frontend.expansion import function_of, is_foreign, may_take_function, takes_function
from opbuild.frontend.onnx_messages import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto
from opbuild.frontend.onnx_node import in_order
from opbuild.frontend.onnx_read import DataFiles, Source, dtype_name, external_tensors, opsets, read_model, to_array
from opbuild.frontend.onnx_schemas import newest_opset
from opbuild.frontend.open_values import Types, Values, example_array, example_type, is_open_value
from opbuild.frontend.rewritten import REWRITES
from opbuild.frontend.walk import BY_DATA, Walked, walk
from opbuild.graph.breaks import HOST_VALUE, is_tensor
from opbuild.graph.passes.fold import Evaluate
from opbuild.graph.passes.infer import check_sizes, has_rule, infer_node
from opbuild.graph.shape_rules import ONNX_DTYPES
from opbuild.graph.tables import MAPPED
from opbuild.graph.types import Array, Graph, Node, TensorType
from opbuild.kernel.opdesc import FREE
from opbuild.platform.locks import lazy_property
from opbuild.platform.records import NamedTuple, dataclass


class DeclaredValue(NamedTuple):
    """The declaration of an input or output of a model.

    Attributes:
        dtype: Element type, a numpy name; ``object`` for a sequence, an optional value or text.
        shape: Its shape: -1 for an open extent, None for an open rank.
    """

    dtype: str
    shape: tuple[int, ...] | None

    @property
    def may_decide(self) -> bool:
        """Whether it is open, or such as decide shapes: integers or truth values of rank 1 at most."""
        return self.shape is None or FREE in self.shape or (len(self.shape) <= 1 and not is_float(self.dtype))


@dataclass(frozen=True, eq=False)
class OnnxModel:
    """A model that was read, before its input shapes are known.

    Attributes:
        name: The file's stem, or the graph's name.
        inputs: The inputs, initializers excluded, in the model's order.
        outputs: The outputs' names, in the model's order.
    """

    name: str
    inputs: Mapping[str, DeclaredValue]
    outputs: tuple[str, ...]
    _proto: ModelProto
    _files: DataFiles

    @property
    def declared_outputs(self) -> tuple[DeclaredValue | None, ...]:
        """The declaration of each output, or else the one that onnx infers; None where neither tells.

        Nothing is inferred where inputs and operators leave nothing open: binding tells the types of such a network.
        """
        outputs = self._proto.graph.output
        is_open = any(each.may_decide for each in self.inputs.values())
        is_open = is_open or any(node.op_type in BY_DATA for node in self._proto.graph.node)
        if is_open and not all(value.type.tensor_type.HasField("shape") for value in outputs):
            outputs = _inferred_outputs(self._proto) or outputs
        return tuple(map(_declared_if_known, outputs))

    @property
    def external_files(self) -> tuple[str, ...]:
        """The files that hold external data, relative to the model, in the order in which they are first named."""
        entries = (entry for tensor in external_tensors(self._proto.graph) for entry in tensor.external_data)
        return tuple(dict.fromkeys(entry.value for entry in entries if entry.key == "location"))

    def bind(self, input_shapes: Mapping[str, tuple[int, ...]], evaluate: Evaluate) -> Graph:
        """Return the model's graph for inputs of given shapes, in the newest operator set.

        Args:
            input_shapes: Shapes by input name, that fit what the model declares (``models`` sees to it); they
                win over the file's. Inputs that the file fixes may be left out.
            evaluate: Evaluates a node whose inputs are known: ``(node, arrays, opset) -> arrays``.

        Returns:
            A graph in which every type is static and each output is assigned by a node.

        Raises:
            ShapeError: If a shape is missing or a node's inputs do not fit; the message names the input or the node.
            DTypeError: If an element type is not supported.
            UnsupportedOperatorError: If an operator is unknown, or the network can only be bound in segments.
            InvalidModelError: If the graph is not valid.
        """
        walked = self.walk(input_shapes, evaluate)
        if walked.follows is not None:
            hint = "opbuild.compile binds such networks as they run"
            raise UnsupportedOperatorError(walked.follows.why, hint).at(walked.follows.node)
        return walked.graph

    def walk(self, input_shapes: Mapping[str, tuple[int, ...]], evaluate: Evaluate) -> Walked:
        """Return the first segment of the network for inputs of given shapes; arguments and errors as ``bind``."""
        with only_own_errors():
            opset = opsets(self._proto).get("", newest_opset())
            remainder = begin(self.block, self._input_types(input_shapes), opset)
            return walk(remainder, self._binder(evaluate), self.name, whole=True)

    def go_on(self, remainder: Remainder, evaluate: Evaluate) -> Walked:
        """Return the next segment of the model's network.

        Raises:
            ModelError: If a node is not valid.
        """
        with only_own_errors():
            return walk(remainder, self._binder(evaluate), self.name, whole=False)

    @lazy_property
    def block(self) -> UntypedGraph:
        """The model's graph."""
        return to_block(self._proto.graph, self._files, opsets(self._proto))

    def _binder(self, evaluate: Evaluate) -> Binder:
        return Binder(self._proto, self._files, newest_opset(), evaluate)

    def _input_types(self, given: Mapping[str, tuple[int, ...]]) -> dict[str, TensorType]:
        types: dict[str, TensorType] = {}
        for name, declared in self.inputs.items():
            shape = given.get(name, declared.shape)
            known = (1, 3, 224, 224) if shape is None else shape
            extents = [extent if extent >= 0 else 1 for extent in known]
            if shape is None or extents != list(shape):
                raise ShapeError(
                    f"input {name!r} has the shape {'any rank' if shape is None else list(shape)}, which is open",
                    f"give it: input_shapes={{{name!r}: {tuple(extents)}}}",
                    command=f'give it: --shape "{name}:{",".join(map(str, extents))}"',
                )
            types[name] = TensorType(declared.dtype, tuple(extents))
            if problem := types[name].problem:
                raise ShapeError(f"input {name!r}: {problem}", "give it a smaller shape")
        return types


def load_model(source: Source) -> OnnxModel:
    """Read an ONNX model.

    Args:
        source: A path, the file's bytes, or a ``ModelProto``. External data is looked for beside the path.

    Raises:
        InvalidModelError: If it cannot be read or is not an ONNX model.
        DTypeError: If an input's element type is not supported.
        UnsupportedOperatorError: If the operator set is newer than the onnx package knows.
    """
    with only_own_errors():
        proto, files, name = read_model(source)
        proto = in_order(proto)
        if proto.functions:
            from opbuild.frontend.onnx_node import inlined

            proto = inlined(proto)
        known = {tensor.name for tensor in proto.graph.initializer}
        _check_inputs(proto.graph)
        inputs = {value.name: _declared(value) for value in proto.graph.input if value.name not in known}
        return OnnxModel(name, inputs, tuple(value.name for value in proto.graph.output), proto, files)


def _check_inputs(graph: GraphProto) -> None:
    seen = set[str]()
    for name in (value.name for value in graph.input):
        if not name or name in seen:
            problem = f"input {name!r} is declared twice" if name else "an input has no name"
            raise InvalidModelError(problem, "give each input a name of its own and export again")
        seen.add(name)


@contextmanager
def only_own_errors() -> Iterator[None]:
    """Turn errors of onnx and protobuf for a damaged model, which may be of any type, into an error of opbuild."""
    try:
        yield
    except (OpbuildError, MemoryError):
        raise
    except Exception as error:
        problem = f"the model is not valid: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
        raise InvalidModelError(problem, "check it with onnx.checker.check_model, and export it again") from error


def _declared(value: ValueInfoProto) -> DeclaredValue:
    kind, tensor = value.type.WhichOneof("value"), value.type.tensor_type
    if kind is None:
        raise DTypeError(f"input {value.name!r} is a value of no type", "declare its type and export again")
    if kind != "tensor_type" or tensor.elem_type == TensorProto.STRING:
        return DeclaredValue(HOST_VALUE.dtype, ())
    dtype = dtype_name(tensor.elem_type, f"input {value.name!r}")
    shape = tuple(dim.dim_value if dim.HasField("dim_value") else FREE for dim in tensor.shape.dim)
    return DeclaredValue(dtype, tuple(max(each, FREE) for each in shape) if tensor.HasField("shape") else None)


def _declared_if_known(value: ValueInfoProto) -> DeclaredValue | None:
    try:
        declared = _declared(value)
    except DTypeError:  # the network may still compute it, as a type that is known then
        return None
    return declared if declared.dtype != HOST_VALUE.dtype else None


def _inferred_outputs(proto: ModelProto) -> Sequence[ValueInfoProto]:
    """Return the outputs as onnx infers them; none if it cannot."""
    from onnx import shape_inference

    try:
        return cast("Sequence[ValueInfoProto]", shape_inference.infer_shapes(proto).graph.output)
    except Exception:  # onnx raises RuntimeError, ValueError and its own types here
        return ()


Tensors = dict[str, Callable[[], Array]]

MOST_TURNS = 1000
"""Turns of a loop that is evaluated while a network is built."""


class Binder(NodeBinder):
    """Builds the graph of one segment of a model, whose tensors are in files."""

    def __init__(self, model: ModelProto, files: DataFiles, opset: int, evaluate: Evaluate) -> None:
        super().__init__(opsets(model).get("", opset), opset, _bounded_evaluation(evaluate))
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
    inputs = tuple(_port(value) for value in graph.input if value.name not in tensors)
    nodes = [_node(proto, index, files, versions, prefix) for index, proto in enumerate(graph.node)]
    nodes = [_with_map(node, maps) for node in nodes] if maps else nodes
    written = tuple(other for node in nodes for other in _written(node, tensors))
    return UntypedGraph(written, tensors, inputs, tuple(map(_port, graph.output)))


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


def _port(value: ValueInfoProto) -> UntypedPort:
    tensor = value.type.tensor_type
    if value.type.WhichOneof("value") != "tensor_type":
        return UntypedPort(value.name)
    extents = tuple(dim.dim_value if dim.HasField("dim_value") else -1 for dim in tensor.shape.dim)
    shape = extents if tensor.HasField("shape") else None
    return UntypedPort(value.name, ONNX_DTYPES.get(tensor.elem_type, ""), shape)


def _bounded_evaluation(evaluate: Evaluate) -> Evaluate:
    """Return the function that evaluates no loop that may take long: folding must end while one waits for it."""

    def evaluated(node: Node, inputs: Values, opset: int) -> Sequence[Array]:
        turns = inputs[0] if node.op_type == "Loop" else np.zeros(1)
        is_long = turns is None or turns.size != 1 or int(turns.reshape(-1)[0]) > MOST_TURNS
        if is_long or any(block.has_loop for block in blocks(node)):
            raise RunError(f"Loop node {node.name!r} may run for long", "it is evaluated when the network runs")
        return evaluate(node, inputs, opset)

    return evaluated
