"""Segments: the pieces of a network between graph breaks. Each is a source like any model.

What comes behind a break is named by the break and by the answer to it, but for the numbers in that. Those numbers and
its inputs' extents are open. So it is lowered once, and bound to what data bring by numbers.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from opbuild.errors import BuildError
from opbuild.graph.cut import Answer, Cut, is_tensor
from opbuild.graph.types import MOST_DIMENSIONS, Graph, TensorType
from opbuild.kernel.free import FREE
from opbuild.models.declaration import Declaration, Declared
from opbuild.models.source import ModelSource
from opbuild.platform.lazily import lazily
from opbuild.report import Clock
from opbuild.runtime.binding import Binding, Bound, Shapes

if TYPE_CHECKING:
    from opbuild.frontend.rest import Rest
    from opbuild.frontend.walk import Walked
    from opbuild.pipeline.source import Source
    from opbuild.runtime.parts import KnownParts, Part

MOST_SEGMENTS = 64
"""Segments of a network whose programs are kept."""

NUMBERS = ""
"""What stands for a segment's inputs for the numbers that it is given: a name that no value has."""


class BindsShapes(Protocol):
    """The programs of one source."""

    def bind(self, shapes: Shapes, /) -> Binding:
        """Return the network for some shapes."""


class MakesPrograms(Protocol):
    """What makes the programs of sources."""

    def programs(self, source: Source, /) -> BindsShapes:
        """Return the programs of a source, of which there is no other."""


class Segment:
    """What comes behind a graph break, as a source of graphs.

    Args:
        model: The model.
        types: The types of its inputs in one call.
        cut: The break before it.
        answer: What that waited for in this call; other calls have other numbers in it.
        is_body: Whether it is the body of the break's loop.
        before: Returns the segment before it, as the front end has it.

    Attributes:
        keeps: Not used: what it is made from is kept anyway.
        digest: Digest of all that decides what it computes, but for the shapes that it declares.
        declaration: Its inputs; -1 where an extent is not the same in all calls, as far as that is known.
    """

    keeps = True

    def __init__(
        self,
        model: ModelSource,
        types: Mapping[str, TensorType],
        cut: Cut,
        answer: Answer,
        *,
        is_body: bool,
        before: Callable[[Clock], Walked],
    ) -> None:
        self._model, self._answer, self._place, self._is_body = model, answer.without_numbers(), cut.path, is_body
        self._before: Callable[[Clock], Walked] | None = before
        self._remainder: Rest | None = None
        state = cut.body.state if is_body and cut.body else cut.state
        self.digest = self._answer.digest(f"{model.digest} {state}")
        shapes = {} if is_body else cut.shapes
        inputs = [Declared(name, each.dtype, _opened(each.shape, shapes.get(name))) for name, each in types.items()]
        if answer.numbers:
            free = (*(0,) * MOST_DIMENSIONS, *(FREE,) * len(answer.numbers))
            inputs.append(Declared(NUMBERS, "int64", free))
        self.declaration = Declaration(model.declaration.name, tuple(inputs), (), ())

    @property
    def edited(self) -> bool:
        """Whether the model is no longer the one that was read."""
        return self._model.edited

    def graph(self, shapes: Shapes, clock: Clock) -> Graph:
        """Return its graph for the shapes of its inputs, with the break behind it."""
        walked = self.walk(shapes, clock)
        return walked.graph.with_(follows=walked.cut)

    def walk(self, shapes: Shapes, clock: Clock) -> Walked:
        """Return it as the front end has it, with what comes behind it."""
        given = {each.name: TensorType(each.dtype, s) for each, s in zip(self.declaration.inputs, shapes, strict=True)}
        numbers = given.pop(NUMBERS, TensorType("int64", ())).shape[MOST_DIMENSIONS:]
        answer = self._answer.with_numbers(numbers)
        return self._model.go_on(self._remainder_before(clock).answered(answer, self._place).with_types(given), clock)

    def forget(self) -> None:
        """Do nothing; see ``keeps``."""

    def _remainder_before(self, clock: Clock) -> Rest:
        if self._before is not None:
            walked = self._before(clock)
            self._remainder, self._before = walked.body if self._is_body else walked.rest, None
        if self._remainder is None:
            raise BuildError(f"nothing comes after {self._place}", "this is an error in opbuild; please report it")
        return self._remainder


class FirstSegment:
    """What comes before a network's first graph break, as a source of graphs.

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
        return walked.graph.with_(follows=walked.cut)

    def walk(self, shapes: Shapes, clock: Clock) -> Walked:
        """Return it as the front end has it, with what comes behind it."""
        given = iter(shapes)
        walked = self._model.walk(tuple(next(given) if _is_tensor(each) else () for each in self._inputs), clock)
        self._is_whole = walked.cut is None
        return walked

    def forget(self) -> None:
        """Give back the memory of the model, unless something comes behind a break."""
        if self._is_whole:
            self._model.forget()


class SegmentBinder:
    """Binds the segments of one model as they are met. One thread at a time may use it.

    Args:
        model: The model.
        first: What comes before the first break.
        session: Makes the programs of each.
    """

    def __init__(self, model: ModelSource, first: FirstSegment, session: MakesPrograms) -> None:
        self._model, self._first, self._session = model, first, session
        self._met: OrderedDict[tuple[str, tuple[Declared, ...]], tuple[Segment, BindsShapes]] = OrderedDict()

    def bind(self, first: Binding, shapes: Shapes) -> Bound:
        """Return the network whose first segment was bound; or that, if nothing comes behind it."""
        cut = first.executor.follows
        if cut is None:
            return first
        from opbuild.backend.evaluate import evaluate
        from opbuild.runtime.in_parts import InParts
        from opbuild.runtime.parts import Part, Parts

        model = self._model
        walked = Walk(self._first, self._first.tensors(shapes), cut)
        part = Part(first.executor, cut, first.report, walked)
        results = [output.name for output in model.declaration.outputs]
        return InParts(part, Parts(self.bind_next, evaluate, self._known), model.types(shapes), results)

    def bind_next(self, part: Part, answer: Answer, types: Mapping[str, TensorType], body: bool) -> Part:
        """Return the part behind another one, or the first one of its loop's body; see ``runtime.parts.BindNext``."""
        from opbuild.runtime.parts import Part

        segment, programs = self._segment(part, answer, types, is_body=body)
        shapes: Shapes = tuple(each.shape for each in types.values())
        if answer.numbers:
            shapes = (*shapes, (*(0,) * MOST_DIMENSIONS, *answer.numbers))
        bound = programs.bind(shapes)
        follows = bound.executor.follows
        if follows is None:
            raise BuildError("a part of a network lacks its end", "this is an error in opbuild; please report it")
        walked = Walk(segment, shapes, follows)
        return Part(bound.executor, follows, bound.report, walked, not bound.is_new, answer.numbers)

    @lazily
    def _known(self) -> KnownParts:
        from opbuild.runtime.parts import KnownParts

        return KnownParts()

    def _segment(
        self, part: Part, answer: Answer, types: Mapping[str, TensorType], *, is_body: bool
    ) -> tuple[Segment, BindsShapes]:
        segment = Segment(self._model, types, part.cut, answer, is_body=is_body, before=part.walked)
        key = (segment.digest, segment.declaration.inputs)
        if key not in self._met:
            self._met[key] = segment, self._session.programs(segment)
            if len(self._met) > MOST_SEGMENTS:
                self._met.popitem(last=False)
        self._met.move_to_end(key)
        return self._met[key]


class Walk:
    """A segment that is bound, as the front end has it: read when what comes behind it is new.

    Args:
        segment: The segment.
        shapes: What it was bound for.
        follows: What it was bound with: the break behind it.
    """

    def __init__(self, segment: Segment | FirstSegment, shapes: Shapes, follows: Cut) -> None:
        self._segment, self._shapes, self._state = segment, shapes, _state(follows)
        self._found: Walked | None = None

    def __call__(self, clock: Clock) -> Walked:
        """Return it, without its graph.

        Raises:
            BuildError: If it does not end as it did when it was bound.
        """
        self._found = self._found or self._open(clock) or self._as_bound(self._shapes, clock)
        if self._found is None:
            raise BuildError(
                f"what comes after a part of {self._segment.declaration.name} is not what was stored with it",
                "remove its cache folder and build it again",
            )
        return self._found

    def _open(self, clock: Clock) -> Walked | None:
        from opbuild.pipeline.templates import open_shapes  # a stored start needs none of it

        declared = [each.shape or () for each in self._segment.declaration.inputs]
        with suppress(Exception):  # from what does not know open extents: then it was not bound so
            return self._as_bound(open_shapes(declared, self._shapes).shapes, clock)
        return None

    def _as_bound(self, shapes: Shapes, clock: Clock) -> Walked | None:
        found = self._segment.walk(shapes, clock)
        return found.without_graph() if found.cut is not None and _state(found.cut) == self._state else None


def _state(cut: Cut) -> Hashable:
    return cut.state, cut.symbols, cut.body and cut.body.state


def _opened(shape: Sequence[int], known: Sequence[int] | None) -> tuple[int, ...]:
    """Return a shape with -1 where an extent is not known to be the same in all calls."""
    if known is None or len(known) != len(shape):
        return (FREE,) * len(shape)
    return tuple(extent if fixed == extent else FREE for extent, fixed in zip(shape, known, strict=True))


def _is_tensor(declared: Declared) -> bool:
    return is_tensor(TensorType(declared.dtype, ()))
