"""Binding in which operators that no kernel serves are replaced by the operators that ONNX defines them by."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from google.protobuf.message import Message  # type: ignore[import-untyped]

from opbuild.errors import ModelError, RunError
from opbuild.frontend.binding import Call
from opbuild.frontend.block import Block, Declared
from opbuild.frontend.expansion import Body, HostCalls, Served, body_of, has_body
from opbuild.frontend.known import Known, computed
from opbuild.frontend.onnx_bind import Binder, to_block
from opbuild.frontend.onnx_messages import GraphProto, ModelProto, ValueInfoProto
from opbuild.frontend.onnx_read import DataFiles
from opbuild.frontend.open_values import is_open_value, type_at_hand, value_at_hand
from opbuild.frontend.rest import Frame, Rest
from opbuild.frontend.walk import walk
from opbuild.graph.constants import array_digest
from opbuild.graph.cut import is_tensor
from opbuild.graph.passes.fold import Evaluate
from opbuild.graph.types import Array, Attribute, Node, TensorType

NO_CALLS = HostCalls(0, 0)

FUNCTIONS = frozenset(("LinearAttention",))
"""Operators that only their functions compute, of those that are written for others."""

MOST_COMPARED = 64
"""Elements of a constant that may decide whether kernels serve its reader, such as axes; larger ones are weights."""


class ExpandingBinder(Binder):
    """Builds one graph, in which an operator is replaced by its function if that leaves less to the host.

    Either is right at any size; which one is better is tried at the size at hand.

    Args:
        model: The model.
        files: Where its tensors are.
        opset: The newest operator set, which the graph speaks.
        evaluate: Evaluates a node whose inputs are known.
        served: Tells what of a graph no kernel serves; None replaces nothing.
        decided: Which functions are better than their nodes, as far as it is known.
    """

    def __init__(
        self,
        model: ModelProto,
        files: DataFiles,
        opset: int,
        evaluate: Evaluate,
        served: Served | None,
        *,
        decided: dict[Hashable, bool] | None = None,
    ) -> None:
        super().__init__(model, opset, evaluate)
        self._arguments = (model, files, opset, evaluate, served)
        self._served = served
        self._files = files
        self._decided = {} if decided is None else decided

    def add(self, nodes: Sequence[Node], outputs: Sequence[str] = ()) -> Call | None:
        """Take nodes as ``NodeBinder`` does; as a function, if one of several has no implementation but its own."""
        if self._served is None or len(nodes) < 2 or not any(map(_is_function_only, nodes)):
            return super().add(nodes, outputs)
        block = Block(tuple(nodes), {}, (), tuple(map(Declared, outputs)))
        return Call(block, {name: name for name in block.free}, self.opset)

    def _function(self, node: Node) -> Call | None:
        body = self._better_body(node)
        return None if body is None else self._call(node, body)

    def _better_body(self, node: Node) -> Body | None:
        """Return the function of a node if it leaves less to the host than the node itself, else None."""
        opset = self._opset_of(node)
        if self._served is None or not has_body(node, opset):
            return None
        types = [self.type_of(name) if name else None for name in node.inputs]
        if not all(each is None or is_tensor(each) for each in types):
            return None
        pairs = zip(node.inputs, types, strict=True)
        formal = types[: len(types) - len(node.attrs.get("captures", ()))]
        values = [value_at_hand(self._constants.get(name), each.dtype if each else "") for name, each in pairs]
        known = _key(node, [each and type_at_hand(each) for each in types], values)
        if known not in self._decided:
            alone = self._tried(node, None)
            body = None if alone == NO_CALLS else body_of(node, formal, opset)
            self._decided[known] = body is not None and self._is_better(node, body, alone)
        return body_of(node, formal, opset) if self._decided[known] else None

    def _is_better(self, node: Node, body: Body, alone: HostCalls | None) -> bool:
        """Return whether a function leaves less to the host than its node ``alone``; None: that can not be bound."""
        foreign = alone is not None and alone.foreign > 0
        expanded = self._tried(node, body, repeats=foreign)
        if expanded is None or alone is None:
            return expanded is not None
        return expanded == NO_CALLS or foreign

    def _tried(self, node: Node, body: Body | None, *, repeats: bool = False) -> HostCalls | None:
        """Return what of a node or of its function no kernel serves; None if it can not be bound in one part.

        With ``repeats`` what stands before a loop is enough: its turns are bound when the network runs.
        """
        names = dict.fromkeys(name for name in node.inputs if name)
        inputs = {name: type_at_hand(self._types[name]) for name in names if name not in self._constants}
        known = {name: self._known_at_hand(name) for name in names if name in self._constants}
        outputs = tuple(Declared(name) for name in node.outputs if name)
        binder = ExpandingBinder(*self._arguments, decided=self._decided)
        try:
            if body is None:
                binder.restore(inputs, known)
                binder._add(node)
                graph = binder.part("node", tuple(inputs), tuple(each.name for each in outputs))
            else:
                call = self._call(node, body)
                frame = Frame(call.block, "", 0, call.scope, call.opset)
                walked = walk(Rest((frame,), inputs, known), binder, "node", whole=False)
                if walked.cut is None or walked.cut.kind not in (("end", "repeat") if repeats else ("end",)):
                    return None
                graph = walked.graph
            return self._served(graph) if self._served else None
        except (ModelError, RunError):
            return None

    def _known_at_hand(self, name: str) -> Known:
        value = self._constants[name]
        return computed(value_at_hand(value, self._types[name].dtype)) if is_open_value(value) else self.known(name)

    def _call(self, node: Node, body: Body) -> Call:
        """Return the function of a node as what is taken in its place; names of its nodes begin with the node's."""
        captured = node.attrs.get("captures", ())
        formal = node.inputs[: len(node.inputs) - len(captured)]
        scope = dict(zip(captured, node.inputs[len(formal) :], strict=True))
        scope |= dict.fromkeys(body.inputs, "") | dict(zip(body.inputs, formal, strict=False))
        opsets = {"": self.opset, **body.opsets}
        asked = (name if output else "" for name, output in zip(body.outputs, node.outputs, strict=False))
        graph = GraphProto(node=body.nodes, output=[ValueInfoProto(name=name) for name in asked])
        return Call(to_block(graph, self._files, opsets, f"{node.name}/"), scope, opsets[""])


def _is_function_only(node: Node) -> bool:
    """Return whether no kernel serves a node, but its function's nodes."""
    return not node.domain and node.op_type in FUNCTIONS


def _key(node: Node, types: Sequence[TensorType | None], constants: Sequence[Array | None]) -> Hashable:
    """Return what decides whether kernels serve a node."""
    values = (
        None if value is None else array_digest(value) if value.size <= MOST_COMPARED else len(value.shape)
        for value in constants
    )
    asked = tuple(map(bool, node.outputs))
    attrs = node.proto or tuple((name, _hashable(value)) for name, value in sorted(node.attrs.items()))
    return node.domain, node.op_type, len(node.inputs), attrs, asked, tuple(types), tuple(values)


def _hashable(value: Attribute) -> Hashable:
    if isinstance(value, np.ndarray):
        return array_digest(value)
    if isinstance(value, Message):
        value = value.SerializeToString(deterministic=True)
    hashable: Hashable = tuple(map(_hashable, value)) if isinstance(value, tuple) else value
    return hashable
