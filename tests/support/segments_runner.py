"""Runs a model in segments on the host backend: walks, breaks, symbols and the driver, without kernels."""

from __future__ import annotations

from collections import Counter
from typing import Any, cast

import numpy as np
import onnx

from opbuild.backend.evaluate import evaluate
from opbuild.frontend.block import Remainder
from opbuild.frontend.models.declaration import Declaration, Declared
from opbuild.frontend.onnx_model import OnnxModel, load_model
from opbuild.frontend.open_values import example_array, example_type
from opbuild.frontend.walk import Walked
from opbuild.graph.breaks import GraphBreak, break_from_json, break_to_json, is_tensor
from opbuild.graph.formulas import Formulas, Numbers
from opbuild.graph.tables import Table
from opbuild.graph.types import TABLE, Graph, TensorType
from opbuild.pipeline.segmented import Segments
from opbuild.pipeline.source import FirstSegment, Source
from opbuild.pipeline.symbolic_lowering import symbolic_shapes
from opbuild.report import Clock, Report
from opbuild.runtime.binding import Binding, Shapes
from opbuild.runtime.executor import Executor
from support.walk_runner import HostExecutor


class SegmentsRunner:
    """A model in segments that computes with numpy. It is what makes the programs of its segments.

    Attributes:
        programs_made: How many programs each segment has.
        bound: How often each segment was bound, by its digest.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self._model = _Model(load_model(model))
        source = cast("Any", self._model)
        self._first = FirstSegment(source, self._model.declaration.shapes)
        self.bound: Counter[str] = Counter()
        self._segments = Segments(source, self._first, self)
        self._programs = self.programs(self._first)
        self.programs_made: Counter[str] = self._made

    def __call__(self, **feeds: Any) -> list[Any]:
        """Return the outputs for inputs by name."""
        values = [feeds[each.name] for each in self._model.declaration.inputs]
        shapes = tuple(value.shape for value in values)
        bound = self._segments.bind_again(shapes, lambda: None)
        if bound is None:
            bound = self._segments.bind(self._programs.bind(self._first.tensors(shapes)), shapes)
        return list(bound.executor.run(values))

    def programs(self, source: Source) -> _Programs:
        """Return the programs of a source."""
        return _Programs(source, self._made, self.bound)

    @property
    def _made(self) -> Counter[str]:
        found: Counter[str] = self.__dict__.setdefault("made", Counter())
        return found


class _Programs:
    """Walks a source with open extents once for each structure; its graphs are run at the size at hand."""

    def __init__(self, source: Source, made: Counter[str], bound: Counter[str]) -> None:
        self._source, self._made, self._bound = source, made, bound
        self._known: list[tuple[list[tuple[int, int]], Formulas, GraphBreak | None]] = []

    def bind(self, shapes: Shapes) -> Binding:
        """Return the network for some shapes; a program that is for them ends as walking at them does."""
        self._bound[str(self._source.digest)] += 1
        extents, opened, places = symbolic_shapes(self._source.declaration.shapes, shapes)
        graph = self._source.graph(opened, Clock())
        follows = None if graph.follows is None else break_from_json(break_to_json(graph.follows))
        for variables, formulas, known in self._known:
            if formulas([shapes[index][axis] for index, axis in variables]) is not None:
                assert _shown(known) == _shown(follows), "what comes after a segment differs where its conditions hold"
                return Binding(_executor(graph, known), Report("segments"))
        self._known.append((places, Numbers(extents).formulas(), follows))
        self._made[self._source.digest] += 1
        return Binding(_executor(graph, follows), Report("segments"), is_new=True)


class _Executor(HostExecutor):
    def __init__(self, graph: Graph, follows: GraphBreak | None) -> None:
        super().__init__(graph)
        self.follows = follows


class _Model:
    """A model as ``ModelSource`` has it."""

    edited = False
    digest = "model"

    def __init__(self, model: OnnxModel) -> None:
        self._model = model
        inputs = tuple(Declared(name, *each) for name, each in model.inputs.items())
        self.declaration = Declaration("m", inputs, tuple(Declared(name, "", None) for name in model.outputs), ())

    def types(self, shapes: Shapes) -> dict[str, TensorType]:
        return {each.name: TensorType(each.dtype, s) for each, s in zip(self.declaration.inputs, shapes, strict=True)}

    def walk(self, shapes: Shapes, _: Clock) -> Walked:
        return self._model.walk(dict(zip(self._model.inputs, shapes, strict=True)), evaluate)

    def go_on(self, remainder: Remainder, _: Clock) -> Walked:
        return self._model.go_on(remainder, evaluate)


def _executor(graph: Graph, follows: GraphBreak | None) -> Executor:
    types = {name: example_type(each) for name, each in graph.types.items()}
    made = [node for node in graph.nodes if (node.domain, node.op_type) == ("opbuild", TABLE)]
    constants = {name: _value(value, types[name]) for name, value in graph.constants.items()}
    for node in made:
        kind = types[node.outputs[0]]
        table = Table(node.text("table", ""), (*node.attrs["arguments"], kind.dtype)).example_value()
        constants[node.outputs[0]] = table.reshape(kind.shape)
    nodes = tuple(node for node in graph.nodes if node not in made)
    return cast("Executor", _Executor(graph.with_(nodes=nodes, types=types, constants=constants), follows))


def _value(value: Any, kind: TensorType) -> Any:
    return np.asarray(example_array(value, kind.dtype), kind.dtype) if is_tensor(kind) else value


def _shown(follows: GraphBreak | None) -> Any:
    return None if follows is None else {**break_to_json(follows), "why": ""}
