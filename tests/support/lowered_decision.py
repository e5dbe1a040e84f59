"""What lowering says of operators that ONNX defines by others: which leave less to the host than their functions.

It decides slowly, by lowering a node and its function, what ``opbuild.frontend.expansion`` has in a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import onnx

from opbuild.backend.evaluate import evaluate
from opbuild.backend.host.evaluate import is_native
from opbuild.errors import ModelError, RunError
from opbuild.frontend.binding import FunctionCall
from opbuild.frontend.block import Frame, KnownValue, Remainder, UntypedPort, begin, computed
from opbuild.frontend.expansion import function_of, has_body
from opbuild.frontend.onnx_messages import FunctionProto
from opbuild.frontend.onnx_model import Binder, OnnxModel, load_model
from opbuild.frontend.open_values import example_array, example_type, is_open_value
from opbuild.frontend.walk import walk
from opbuild.graph.breaks import is_tensor
from opbuild.graph.passes.pipeline import optimize
from opbuild.graph.types import Graph, Node, TensorType
from opbuild.lowering.lower import lower
from opbuild.program import HostCall
from opbuild.target.level import LEVELS


class HostCalls(NamedTuple):
    """What of a graph no kernel serves.

    Attributes:
        calls: Calls of the host backend.
        foreign: Those of them that onnx's reference evaluator takes, and no implementation of opbuild's own.
    """

    calls: int
    foreign: int


NO_CALLS = HostCalls(0, 0)

INEXACT = frozenset(("MeanVarianceNormalization", "GroupNormalization", "LayerNormalization"))
"""Operators that keep their place whatever lowering says: their functions take the variance as the difference of two
means, which has few digits where the mean is large."""


def host_calls(graph: Graph) -> HostCalls:
    """Return how many calls of the host a graph needs."""
    calls = lower(optimize(graph, evaluate), LEVELS[0]).calls
    host = [call.node for call in calls if isinstance(call, HostCall) and not call.is_check]
    return HostCalls(len(host), sum(not is_native(node) for node in host))


class Decided(NamedTuple):
    """What was decided of a node that has a function.

    Attributes:
        node: The node.
        types: Its inputs' types.
        known: Which of its inputs are known.
        by_table: Whether the table has the function take the node's place.
        by_lowering: Whether lowering says so.
        alone: What of the node no kernel serves, None if it cannot be bound.
    """

    node: Node
    types: Sequence[TensorType | None]
    known: Sequence[bool]
    by_table: bool
    by_lowering: bool
    alone: HostCalls | None

    def __str__(self) -> str:
        node = f"{self.node.op_type}{dict(self.node.attrs)} of {[*map(str, self.types)]}, known {list(self.known)}"
        return f"{node}: the table says {self.by_table}, lowering {self.by_lowering} ({self.alone})"


class LoweringBinder(Binder):
    """Binds as lowering says, and notes what the table says."""

    def __init__(self, *arguments: Any, decided: list[Decided]) -> None:
        super().__init__(*arguments)
        self._arguments = arguments
        self.decided = decided

    def _function(self, node: Node) -> FunctionCall | None:
        by_table = super()._function(node)
        opset = self._opset_of(node)
        if not has_body(node, opset):
            return by_table
        types = [self.type_of(name) if name else None for name in node.inputs]
        if not all(each is None or is_tensor(each) for each in types):
            return by_table
        body = None
        if node.op_type not in INEXACT:
            body = function_of(node, types[: len(types) - len(node.attrs.get("captures", ()))], opset)
        alone = self._tried(node, None)
        is_better = body is not None and alone != NO_CALLS and self._is_better(node, body, alone)
        known = [name in self._constants for name in node.inputs]
        self.decided.append(Decided(node, types, known, by_table is not None, is_better, alone))
        return self._call(node, body) if body is not None and is_better else None

    def _is_better(self, node: Node, body: FunctionProto, alone: HostCalls | None) -> bool:
        """Return whether a function leaves less to the host than its node ``alone``; None: that cannot be bound."""
        foreign = alone is not None and alone.foreign > 0
        expanded = self._tried(node, body, repeats=foreign)
        if expanded is None or alone is None:
            return expanded is not None
        return expanded == NO_CALLS or foreign

    def _tried(self, node: Node, body: FunctionProto | None, *, repeats: bool = False) -> HostCalls | None:
        """Return the operators of a node or of its function without a kernel; None if it cannot be bound in one part.

        With ``repeats`` what stands before a loop is enough: its turns are bound when the network runs.
        """
        names = dict.fromkeys(name for name in node.inputs if name)
        inputs = {name: example_type(self._types[name]) for name in names if name not in self._constants}
        known = {name: self._known_example(name) for name in names if name in self._constants}
        outputs = tuple(UntypedPort(name) for name in node.outputs if name)
        binder = LoweringBinder(*self._arguments, decided=self.decided)
        try:
            if body is None:
                binder.restore(inputs, known)
                binder._add(node)
                graph = binder.segment("node", tuple(inputs), tuple(each.name for each in outputs))
            else:
                call = self._call(node, body)
                frame = Frame(call.block, "", 0, call.scope, call.opset)
                walked = walk(Remainder((frame,), inputs, known), binder, "node", whole=False)
                if walked.follows is None or walked.follows.kind not in (("end", "repeat") if repeats else ("end",)):
                    return None
                graph = walked.graph
            return host_calls(graph)
        except (ModelError, RunError):
            return None

    def _known_example(self, name: str) -> KnownValue:
        value = self._constants[name]
        return computed(example_array(value)) if is_open_value(value) else self.known(name)


def decisions(model: onnx.ModelProto) -> list[Decided]:
    """Return the decisions on the nodes of a model, and of its functions, that have a function.

    Raises:
        ModelError: If the model is not valid.
    """
    found: list[Decided] = []
    loaded: OnnxModel = load_model(model)
    proto, files, opset = loaded._proto, loaded._files, onnx.defs.onnx_opset_version()
    own = {each.domain: each.version for each in proto.opset_import}.get("", opset)
    binder = LoweringBinder(proto, files, opset, evaluate, decided=found)
    walk(begin(loaded.block, loaded._input_types({}), own), binder, "model", whole=True)
    return found
