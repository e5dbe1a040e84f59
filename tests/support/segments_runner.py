"""Runs a model in segments on the host backend: walks, breaks, symbols and the driver, without kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import onnx
import pytest

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
from opbuild.platform.background import is_behind_calls
from opbuild.programs import ModelPrograms
from opbuild.report import Clock, Report
from opbuild.runtime.binding import Binding, Shapes
from opbuild.runtime.endpoint import Endpoint
from opbuild.runtime.executor import Executor
from opbuild.runtime.network import Network
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
        bound = self._segments.bind_again(shapes, None)
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

    def for_one_size(self, shapes: Shapes) -> Binding:
        """Return the network for some shapes alone, as one that others compute until its kernels are there."""
        graph = self._source.graph(shapes, Clock())
        follows = None if graph.follows is None else break_from_json(break_to_json(graph.follows))
        return Binding(_executor(graph, follows), Report("segments", pending=1), is_new=True)

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


class Tiers:
    """What stands in for ``Programs``: others compute segments until these are made behind calls.

    Args:
        patch: Puts it there.
        is_there: Tells of a segment's digest whether it has its own kernels from the beginning.
        make: Called when such are made.

    Attributes:
        made: Digests of the segments that got them.
        waited: Digests of the segments that calls waited for.
        told: Warnings.
    """

    def __init__(
        self,
        patch: pytest.MonkeyPatch,
        is_there: Callable[[str], bool] = lambda _: False,
        make: Callable[[], object] = lambda: None,
    ) -> None:
        self.made, self.waited, self.told = set[str](), list[str](), list[str]()
        self._is_there, self._make = is_there, make
        patch.setattr("opbuild.programs.Programs", partial(_InTiers, self))

    def network(self, model: onnx.ModelProto) -> Network:
        """Return a model as a network."""
        source = cast("Any", _Model(load_model(model)))
        inputs = [Endpoint(name, TensorType(dtype, shape or ())) for name, dtype, shape in source.declaration.inputs]
        setup = SimpleNamespace(
            config=SimpleNamespace(record_shapes=""), warn=lambda *said: self.told.append(str(said))
        )
        programs = ModelPrograms(cast("Any", SimpleNamespace(setup=setup)), source, inputs, (), is_open=True)
        return Network("segments", inputs, [each.name for each in source.declaration.outputs], programs.bind)

    def has_kernels(self, digest: str) -> bool:
        """Return whether a segment has its own kernels, which it gets if nobody waits."""
        if is_behind_calls():
            self._make()
            self.made.add(digest)
        else:
            self.waited.append(digest)
        return digest in self.made or self._is_there(digest)


class _InTiers(_Programs):
    def __init__(self, tiers: Tiers, session: Any, source: Source, *, is_open: bool) -> None:
        super().__init__(source, Counter(), Counter())
        self._tiers = tiers

    def bind(self, shapes: Shapes) -> Binding:
        return super().bind(shapes) if self._tiers.has_kernels(str(self._source.digest)) else self.for_one_size(shapes)


class _Executor(HostExecutor):
    def __init__(self, graph: Graph, follows: GraphBreak | None) -> None:
        super().__init__(graph)
        self.follows = follows


class _Model:
    """A model as ``ModelSource`` has it."""

    edited = keeps = False
    digest = "model"

    def __init__(self, model: OnnxModel) -> None:
        self._model = model
        inputs = tuple(Declared(name, *each) for name, each in model.inputs.items())
        self.declaration = Declaration("m", inputs, tuple(Declared(name, "", None) for name in model.outputs), ())

    def types(self, shapes: Shapes) -> dict[str, TensorType]:
        return {each.name: TensorType(each.dtype, s) for each, s in zip(self.declaration.inputs, shapes, strict=True)}

    def remember(self) -> None:
        """Nothing is kept for another process."""

    def release(self) -> None:
        """It has no file."""

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
