"""Runs a model in parts on the host backend: what the front end cuts and the driver joins, without kernels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast
from unittest.mock import patch

import onnx

from opbuild.backend.evaluate import evaluate
from opbuild.frontend.binding import NodeBinder
from opbuild.frontend.onnx_bind import Binder
from opbuild.frontend.onnx_model import OnnxModel, load_model
from opbuild.frontend.walk import Walked
from opbuild.graph.cut import Answer, cut_from_json, cut_to_json, type_of_value
from opbuild.graph.types import Graph, TensorType
from opbuild.program import Port
from opbuild.report import Clock, Report
from opbuild.runtime.blocks import Blocks
from opbuild.runtime.executor import Executor
from opbuild.runtime.in_parts import InParts
from opbuild.runtime.parts import KnownParts, Part, Parts
from support.graph_runner import run_graph


@contextmanager
def operators_kept() -> Iterator[None]:
    """Leave each operator as it is while a model is bound, also one whose function is better."""
    with patch.object(Binder, "_function", NodeBinder._function), patch.object(Binder, "add", NodeBinder.add):
        yield


class PartsRunner:
    """A model in parts that computes with numpy, each operator by its own implementation.

    Attributes:
        cuts: What came after each part that was bound, in the order in which they were bound.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model: OnnxModel = load_model(model)
        self.cuts: list[str] = []
        self._parts = Parts(self._next, evaluate, KnownParts())
        self._first: dict[Any, InParts] = {}

    def __call__(self, **feeds: Any) -> list[Any]:
        """Return the outputs for inputs by name."""
        values = [feeds[name] for name in self.model.inputs]
        types = {name: type_of_value(value) for name, value in zip(self.model.inputs, values, strict=True)}
        key = tuple(types.items())
        if key not in self._first:
            with operators_kept():
                walked = self.model.walk({name: each.shape for name, each in types.items()}, evaluate)
            if walked.cut is None:
                return run_graph(walked.graph, feeds)
            self._first[key] = InParts(self._part(walked), self._parts, types, self.model.outputs)
        return self._first[key].run(values)

    def _next(self, part: Part, answer: Answer, types: Mapping[str, TensorType], body: bool) -> Part:
        walked = part.walked(Clock())
        rest = walked.body if body else walked.rest
        with operators_kept():
            found = self._part(self.model.go_on(rest.answered(answer, part.cut.path), evaluate))
        assert {port.name: port.type for port in found.executor.inputs} == types
        return found

    def _part(self, walked: Walked) -> Part:
        assert walked.cut is not None
        cut = cut_from_json(cut_to_json(walked.cut))  # as another process has it
        self.cuts.append(f"{cut.kind} {cut.op_type}".strip())
        return Part(cast("Executor", HostExecutor(walked.graph)), cut, Report("parts"), lambda _: walked)


class HostExecutor:
    """Runs a graph as an executor does."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.arena_size = 0
        self.blocks: Blocks[Any] = Blocks()
        self.inputs, self.outputs = (
            tuple(Port(name, graph.types[name], 0) for name in names) for names in (graph.inputs, graph.outputs)
        )

    def run(self, inputs: list[Any]) -> list[Any]:
        """Return the graph's outputs, fresh."""
        return [each.copy() for each in run_graph(self._graph, dict(zip(self._graph.inputs, inputs, strict=True)))]
