"""Source: whatever gives graphs for the shapes of its inputs: a model, a graph, a segment, a subgraph of torch's.

Segments are the pieces of a network between graph breaks. What comes behind a break is named by the break and by the
answer to it, but for the numbers in that. Those numbers and its inputs' extents are open. So it is lowered once, and
bound to what data bring by numbers.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Protocol

from opbuild.errors import BuildError
from opbuild.frontend.models.declaration import Declaration, Declared
from opbuild.frontend.models.source import ModelSource
from opbuild.graph.breaks import Answer, GraphBreak, is_tensor
from opbuild.graph.types import MOST_DIMENSIONS, Graph, TensorType
from opbuild.kernel.free import FREE
from opbuild.platform.locks import lazy_property
from opbuild.report import Clock
from opbuild.runtime.binding import Shapes
from opbuild.runtime.shape_pattern import ShapePattern

if TYPE_CHECKING:
    from opbuild.frontend.block import Remainder
    from opbuild.frontend.walk import Walked


class Source(Protocol):
    """See the module.

    Attributes:
        keeps: Whether what it is read from, once read, is kept for the next graph.
    """

    keeps: bool

    @property
    def declaration(self) -> Declaration:
        """The declaration of the source: its name, and its inputs; an extent of -1 may differ from call to call."""

    @property
    def digest(self) -> str | None:
        """Digest of all that decides its results; None if there is none."""

    @property
    def edited(self) -> bool:
        """Whether it may differ from the file that was read; raises ``ModelError`` if it surely does."""

    def graph(self, shapes: Shapes, clock: Clock) -> Graph:
        """Return its graph for the shapes of its inputs, whose extents may be symbolic.

        Raises:
            ModelError: If it does not fit the shapes.
        """

    def forget(self) -> None:
        """Keep what it was read from no longer."""

    def reading(self) -> AbstractContextManager[None]:
        """Hold what is read meanwhile as it is, until the end."""


class GraphSource:
    """A graph as a source: it is for one input signature.

    Args:
        graph: The graph.
        is_stored: Whether its network may be stored.
    """

    edited = False

    def __init__(self, graph: Graph, *, is_stored: bool = True) -> None:
        self._graph, self._is_stored, self.keeps = graph, is_stored, True

    @property
    def declaration(self) -> Declaration:
        """The graph's name, inputs and outputs."""
        inputs, outputs = (
            tuple(Declared(name, self._graph.types[name].dtype, self._graph.types[name].shape) for name in names)
            for names in (self._graph.inputs, self._graph.outputs)
        )
        return Declaration(self._graph.name, inputs, outputs, ())

    @property
    def digest(self) -> str | None:
        """Digest of the graph; None if it has a part without a digest, or is not to be stored."""
        from opbuild.graph.node_json import graph_digest

        try:
            return graph_digest(self._graph) if self._is_stored else None
        except ValueError:
            return None

    def graph(self, shapes: Shapes, clock: Clock) -> Graph:
        """Return the graph."""
        return self._graph

    def forget(self) -> None:
        """Nothing is kept that the caller does not have."""

    def reading(self) -> AbstractContextManager[None]:
        """Nothing is read that may change."""
        return nullcontext()


NUMBERS = ""
"""What stands for a segment's inputs for the numbers that it is given: a name that no value has."""


class Segment:
    """The segment behind a graph break, as a source of graphs.

    Args:
        model: The model.
        types: The types of its inputs in one call.
        follows: The break before it.
        answer: What that waited for in this call; other calls have other numbers in it.
        is_body: Whether it is the body of the break's loop.
        before: The segment before it, as the front end has it.

    Attributes:
        keeps: Not used: what it is made from is kept anyway.
        declaration: Its inputs; -1 where an extent is not the same in all calls, as far as that is known.
    """

    keeps = True

    def __init__(
        self,
        model: ModelSource,
        types: Mapping[str, TensorType],
        follows: GraphBreak,
        answer: Answer,
        *,
        is_body: bool,
        before: Walk,
    ) -> None:
        self._model, self._answer, self._place, self._is_body = model, answer.without_numbers(), follows.path, is_body
        self._before: Walk | None = before
        self._remainder: Remainder | None = None
        self._state = begins_with(follows, is_body=is_body)
        shapes = {} if is_body else follows.shapes
        inputs = [Declared(name, each.dtype, _opened(each.shape, shapes.get(name))) for name, each in types.items()]
        if answer.numbers:
            free = (*(0,) * MOST_DIMENSIONS, *(FREE,) * len(answer.numbers))
            inputs.append(Declared(NUMBERS, "int64", free))
        self.declaration = Declaration(model.declaration.name, tuple(inputs), (), ())

    @lazy_property
    def key(self) -> Hashable:
        """The identity of the segment in one model: all that decides what it computes, and what it declares."""
        return self._state, self._answer.key, self.declaration.inputs

    def fits(self, shapes: Shapes) -> bool:
        """Whether its inputs, but for the numbers that it is given, may have these shapes."""
        return self._pattern.fits(shapes)

    @lazy_property
    def _pattern(self) -> ShapePattern:
        return ShapePattern([each.shape or () for each in self.declaration.inputs if each.name != NUMBERS])

    @lazy_property
    def digest(self) -> str:
        """Digest of all that decides what it computes, but for the shapes that it declares."""
        return self._answer.digest(f"{self._model.digest} {self._state}")

    @property
    def edited(self) -> bool:
        """Whether the model is no longer the one that was read."""
        return self._model.edited

    def graph(self, shapes: Shapes, clock: Clock) -> Graph:
        """Return its graph for the shapes of its inputs, with the break behind it."""
        walked = self.walk(shapes, clock)
        return walked.graph.with_(follows=walked.follows)

    def walk(self, shapes: Shapes, clock: Clock) -> Walked:
        """Return it as the front end has it, with the break behind it."""
        given = {each.name: TensorType(each.dtype, s) for each, s in zip(self.declaration.inputs, shapes, strict=True)}
        numbers = given.pop(NUMBERS, TensorType("int64", ())).shape[MOST_DIMENSIONS:]
        answer = self._answer.with_numbers(numbers)
        return self._model.go_on(self._remainder_before(clock).answered(answer, self._place).with_types(given), clock)

    def forget(self) -> None:
        """Do nothing; see ``keeps``."""

    def reading(self) -> AbstractContextManager[None]:
        """Hold the model's files."""
        return self._model.reading()

    def _remainder_before(self, clock: Clock) -> Remainder:
        if self._before is not None:
            walked = self._before(clock)
            self._remainder, self._before = walked.body if self._is_body else walked.remainder, None
        if self._remainder is None:
            raise BuildError(f"nothing comes after {self._place}", "this is an error in opbuild; please report it")
        return self._remainder


def begins_with(follows: GraphBreak, *, is_body: bool) -> str:
    """The digest of what comes behind a break, or of the body of its loop, but for what it waited for."""
    return follows.body.state if is_body and follows.body else follows.state


class FirstSegment:
    """The segment before a network's first graph break, as a source of graphs.

    Args:
        model: The model.
        declared: The shapes of its inputs, -1 where an extent is open.

    Attributes:
        declaration: Its inputs that are tensors.
    """

    def __init__(self, model: ModelSource, declared: Sequence[Sequence[int]]) -> None:
        inputs = zip(model.declaration.inputs, declared, strict=True)
        self._inputs = [Declared(name, dtype, tuple(shape)) for (name, dtype, _), shape in inputs]
        self._model = model
        self._is_whole = False
        tensors = tuple(each for each in self._inputs if _is_tensor(each))
        self.declaration = Declaration(model.declaration.name, tensors, (), ())

    @property
    def keeps(self) -> bool:
        """Whether the model, once read, is kept for the next graph."""
        return self._model.keeps

    @keeps.setter
    def keeps(self, keeps: bool) -> None:
        self._model.keeps = keeps

    @property
    def digest(self) -> str:
        """Digest of the model."""
        return self._model.digest

    @property
    def edited(self) -> bool:
        """Whether the model is no longer the one that was read."""
        return self._model.edited

    def tensors(self, shapes: Shapes) -> Shapes:
        """Return the shapes of its inputs that are tensors, given those of the model's."""
        return tuple(shape for each, shape in zip(self._inputs, shapes, strict=True) if _is_tensor(each))

    def graph(self, shapes: Shapes, clock: Clock) -> Graph:
        """Return its graph for the shapes of its inputs, with the break behind it."""
        walked = self.walk(shapes, clock)
        return walked.graph.with_(follows=walked.follows)

    def walk(self, shapes: Shapes, clock: Clock) -> Walked:
        """Return it as the front end has it, with the break behind it."""
        given = iter(shapes)
        walked = self._model.walk(tuple(next(given) if _is_tensor(each) else () for each in self._inputs), clock)
        self._is_whole = walked.follows is None
        return walked

    def forget(self) -> None:
        """Give back the memory of the model, unless something comes behind a break."""
        if self._is_whole:
            self._model.forget()

    def reading(self) -> AbstractContextManager[None]:
        """Hold the model's files."""
        return self._model.reading()


class Walk:
    """A segment that is bound, as the front end has it: read when the next one is new."""

    def __init__(self, segment: Segment | FirstSegment, shapes: Shapes, follows: GraphBreak) -> None:
        self._segment, self._shapes, self._state = segment, shapes, _state(follows)
        self._found: Walked | None = None

    def __call__(self, clock: Clock) -> Walked:
        """Return it, without its graph.

        Raises:
            BuildError: If it does not end as it did when it was bound.
        """
        self._found = self._found or self._walk_segment(clock)
        if self._found is None:
            raise BuildError(
                f"what comes after a segment of {self._segment.declaration.name} is not what was stored with it",
                "remove its cache folder and build it again",
            )
        return self._found

    def _walk_segment(self, clock: Clock) -> Walked | None:
        from opbuild.pipeline.symbolic_lowering import symbolic_first, symbolic_shapes  # stored starts need neither

        symbolic = symbolic_shapes(self._segment.declaration.shapes, self._shapes).shapes
        return symbolic_first(lambda: self._as_bound(symbolic, clock), lambda _: self._as_bound(self._shapes, clock))

    def _as_bound(self, shapes: Shapes, clock: Clock) -> Walked | None:
        found = self._segment.walk(shapes, clock)
        return found.without_graph() if found.follows is not None and _state(found.follows) == self._state else None


def _state(follows: GraphBreak) -> Hashable:
    return follows.state, follows.symbols, follows.body and follows.body.state


def _opened(shape: Sequence[int], known: Sequence[int] | None) -> tuple[int, ...]:
    """Return a shape with -1 where an extent is not known to be the same in all calls."""
    if known is None or len(known) != len(shape):
        return (FREE,) * len(shape)
    return tuple(extent if fixed == extent else FREE for extent, fixed in zip(shape, known, strict=True))


def _is_tensor(declared: Declared) -> bool:
    return is_tensor(TensorType(declared.dtype, ()))
