"""Binding in which operators that no kernel serves are replaced by the operators that ONNX defines them by."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import onnx

from opbuild.errors import ModelError, RunError
from opbuild.frontend import onnx_node
from opbuild.frontend.expansion import Body, HostCalls, Served, body_of, has_body
from opbuild.frontend.onnx_bind import Binder
from opbuild.frontend.onnx_read import DataFiles
from opbuild.frontend.onnx_single import to_proto
from opbuild.graph.passes.fold import Evaluate
from opbuild.graph.types import Array, Node, TensorType

NO_CALLS = HostCalls(0, 0)

MOST_COMPARED = 64
"""Elements of a constant that may decide whether kernels serve its reader, such as axes; larger ones are weights."""


class ExpandingBinder(Binder):
    """Builds one graph, in which an operator is replaced by its function if that leaves less to the host.

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
        model: onnx.ModelProto,
        files: DataFiles,
        opset: int,
        evaluate: Evaluate,
        served: Served | None,
        *,
        decided: dict[Hashable, bool] | None = None,
    ) -> None:
        super().__init__(model, files, opset, evaluate)
        self._arguments = (model, files, opset, evaluate, served)
        self._served = served
        self._decided = {} if decided is None else decided
        self._within = ""

    def _take(self, node: Node) -> None:
        body = self._better_body(node)
        if body is None:
            self._add(node)
        else:
            self._expand(node, body)

    def _better_body(self, node: Node) -> Body | None:
        """Return the function of a node if it leaves less to the host than the node itself, else None."""
        opset = self._opset_of(node)
        if self._served is None or not has_body(node, opset):
            return None
        for name in filter(None, node.inputs):
            self._load(name)
        types = [self._types[name] if name else None for name in node.inputs]
        formal = types[: len(types) - len(node.attrs.get("captures", ()))]
        known = _key(node, types, [self._constants.get(name) for name in node.inputs])
        if self._decided.get(known) is False:
            return None
        body = body_of(node, formal, opset)
        if known not in self._decided:
            self._decided[known] = body is not None and self._is_better(node, body)
        return body if self._decided[known] else None

    def _is_better(self, node: Node, body: Body) -> bool:
        alone = self._tried(node, None)
        if alone == NO_CALLS:
            return False
        expanded = self._tried(node, body)
        if expanded is None or alone is None:
            return expanded is not None
        return expanded == NO_CALLS or alone.foreign > 0

    def _tried(self, node: Node, body: Body | None) -> HostCalls | None:
        """Return what of a node or of its function no kernel serves; None if it can not be bound."""
        binder = ExpandingBinder(*self._arguments, decided=self._decided)
        names = dict.fromkeys(name for name in node.inputs if name)
        inputs = {name: self._types[name] for name in names if name not in self._constants}
        scope = binder.begin(inputs)
        for name in names:
            if name in self._constants:
                binder.tensor(name, partial(self._constants.__getitem__, name), scope)
        outputs = tuple(name for name in node.outputs if name)
        try:
            if body is None:
                binder._add(node)
            else:
                binder._expand(node, body)
            scope |= {name: name for name in outputs}
            return self._served(binder.finish("node", inputs, outputs, scope)) if self._served else None
        except (ModelError, RunError):
            return None

    # Replacing a node

    def _expand(self, node: Node, body: Body) -> None:
        """Add the nodes of a node's function in its place; their names begin with its name."""
        captured = node.attrs.get("captures", ())
        formal = node.inputs[: len(node.inputs) - len(captured)]
        scope = dict(zip(captured, node.inputs[len(formal) :], strict=True))
        scope |= dict.fromkeys(body.inputs, "") | dict(zip(body.inputs, formal, strict=False))
        with self._inside(node, body):
            for index, proto in enumerate(body.nodes):
                name = f"{node.name}/{onnx_node.describe(proto, index)}"
                onnx_node.check_node(proto, name, self._opsets)
                self._visit_proto(proto, name, scope)
        for result, output in zip(body.outputs, node.outputs, strict=False):
            if output:
                value = self._resolve(result, scope, node.op_type, node.name)
                self._add(Node("Identity", (value,), (output,), {}, f"{node.name}/{result}"))

    @contextmanager
    def _inside(self, node: Node, body: Body) -> Iterator[None]:
        """Read nodes in the operator sets of a function for a while, and begin the names of values with the node's."""
        before = self._opsets, self._source_opset, self._within
        self._opsets = {"": self._opset, **body.opsets}
        self._source_opset = self._opsets[""]
        self._within = f"{node.name}/"
        try:
            yield
        finally:
            self._opsets, self._source_opset, self._within = before

    def _unique(self, name: str) -> str:
        return super()._unique(self._within + name)


def _key(node: Node, types: Sequence[TensorType | None], constants: Sequence[Array | None]) -> Hashable:
    """Return what decides whether kernels serve a node."""
    anonymous = to_proto(node.with_(inputs=("",) * len(node.inputs), outputs=("",) * len(node.outputs), name=""))
    values = (
        None if value is None else value.tobytes() if value.size <= MOST_COMPARED else len(value.shape)
        for value in constants
    )
    asked = tuple(map(bool, node.outputs))
    return node.domain, anonymous.SerializeToString(deterministic=True), asked, tuple(types), tuple(values)
