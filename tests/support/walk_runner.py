"""Runs a model in segments on the host backend: what the front end breaks and the driver joins, without kernels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast
from unittest.mock import patch

import onnx

from opbuild.backend.evaluate import evaluate
from opbuild.frontend.binding import NodeBinder
from opbuild.frontend.onnx_model import Binder, OnnxModel, load_model
from opbuild.frontend.walk import Walked
from opbuild.graph.breaks import Answer, break_from_json, break_to_json, type_of_value
from opbuild.graph.types import Graph, TensorType
from opbuild.pipeline.segmented import BoundSegment, SegmentedNetwork, Segments
from opbuild.program import Port
from opbuild.report import Clock, Report
from opbuild.runtime.blocks import Blocks
from opbuild.runtime.executor import Executor
from opbuild.runtime.record import Ports
from support.graph_runner import run_graph


@contextmanager
def operators_kept() -> Iterator[None]:
    """Leave each operator as it is while a model is bound, also one whose function is better."""
    with patch.object(Binder, "_function", NodeBinder._function), patch.object(Binder, "add", NodeBinder.add):
        yield


class WalkRunner:
    """A model in segments that computes with numpy, each operator by its own implementation.

    Attributes:
        breaks: What came after each segment that was bound, in the order in which they were bound.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model: OnnxModel = load_model(model)
        self.breaks: list[str] = []
        self._segments = _Walked(self)
        self._first: dict[Any, SegmentedNetwork] = {}

    def __call__(self, **feeds: Any) -> list[Any]:
        """Return the outputs for inputs by name."""
        values = [feeds[name] for name in self.model.inputs]
        types = {name: type_of_value(value) for name, value in zip(self.model.inputs, values, strict=True)}
        key = tuple(types.items())
        if key not in self._first:
            with operators_kept():
                walked = self.model.walk({name: each.shape for name, each in types.items()}, evaluate)
            if walked.follows is None:
                return run_graph(walked.graph, feeds)
            self._first[key] = SegmentedNetwork(self.segment(walked), self._segments, types, self.model.outputs)
        return self._first[key].run(values)

    def next(
        self, segment: BoundSegment, answer: Answer, types: Mapping[str, TensorType], *, is_body: bool
    ) -> BoundSegment:
        """Return the segment behind another one."""
        walked = segment.walked(Clock())
        remainder = walked.body if is_body else walked.remainder
        with operators_kept():
            walked = self.model.go_on(remainder.answered(answer, segment.follows.path), evaluate)
        found = self.segment(walked, answer.numbers)
        assert {port.name: port.type for port in found.executor.inputs} == types
        return found

    def segment(self, walked: Walked, numbers: tuple[int, ...] = ()) -> BoundSegment:
        """Return a segment that numpy computes, and that was given some numbers."""
        assert walked.follows is not None
        follows = break_from_json(break_to_json(walked.follows))  # as another process has it
        self.breaks.append(f"{follows.kind} {follows.op_type}".strip())
        executor = cast("Executor", HostExecutor(walked.graph))
        return BoundSegment(executor, follows, Report("segments"), cast("Any", lambda _: walked), numbers=numbers)


class _Walked(Segments):
    """Segments that are walked at the sizes at hand, each time that they are met."""

    def __init__(self, runner: WalkRunner) -> None:
        super().__init__(*cast("tuple[Any, Any, Any]", (None, None, None)))
        self._runner = runner

    def _bind_next(
        self, segment: BoundSegment, answer: Answer, types: Mapping[str, TensorType], *, is_body: bool
    ) -> BoundSegment:
        return self._runner.next(segment, answer, types, is_body=is_body)


class HostExecutor:
    """Runs a graph as an executor does."""

    is_filled = False

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.arena_size = 0
        self.blocks: Blocks[Any] = Blocks()
        self.inputs, self.outputs = (
            Ports.of(Port(name, graph.types[name], 0) for name in names) for names in (graph.inputs, graph.outputs)
        )
        self.step_count = len(graph.nodes)

    def run(self, inputs: list[Any], given: Sequence[Any] = ()) -> list[Any]:
        """Return the graph's outputs, fresh."""
        return [each.copy() for each in run_graph(self._graph, dict(zip(self._graph.inputs, inputs, strict=True)))]
