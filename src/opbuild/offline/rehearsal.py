"""Rehearsal: which segments a network may have, told by running it on made-up values, without computing any.

A segment's results are made up from their types; only what stands at the graph breaks is evaluated, and loops are
driven. So each run goes from segment to segment as a real one does, whatever the breaks wait for. Values are all false,
all true, or at random: results of no, some and all elements are met. The branches of an If are taken in turn, and so
are a node that waits for values and one that is evaluated on the host instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice, product
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from opbuild.dtypes import numpy_dtype
from opbuild.errors import ModelError, OpbuildError, ShapeError
from opbuild.graph.cut import Answer, Cut
from opbuild.graph.extents import at_hand
from opbuild.graph.types import Array, Graph, Node, TensorType
from opbuild.pipeline.segments import FirstSegment, Segment, SegmentBinder, Walk
from opbuild.pipeline.source import Source
from opbuild.pipeline.templates import open_shapes
from opbuild.platform.records import dataclass, field
from opbuild.program import Port
from opbuild.report import Clock, Report
from opbuild.runtime.binding import Binding, Shapes
from opbuild.runtime.blocks import Blocks
from opbuild.runtime.executor import Evaluate, Executor
from opbuild.runtime.parts import BindNext, KnownParts, Part, Parts

if TYPE_CHECKING:
    from opbuild.models.source import ModelSource

CHANCES = (0.0, 1.0, 0.5)
"""How likely a made-up value is true in the first runs, and in all others."""

QUIET_RUNS, MOST_RUNS = 3, 64
"""So many runs in a row that meet no new segment end the rehearsal, and so many in all."""

LONG, LONGEST = 64, 4096
"""Segments run after which all made-up values are false, which ends loops, and after which a run ends."""

MOST_GUESSES, MOST_LISTED = 256, 64
"""Combinations of values that are tried where some decide shapes, and elements of a list that does."""


@dataclass(eq=False)
class Met:
    """A segment that a call may have.

    Attributes:
        source: The segment.
        cuts: What came after it, for each of the sizes at which it was met.
        certain: The sizes that calls surely have if they come here: no data decided them.
    """

    source: FirstSegment | Segment
    cuts: dict[Shapes, Cut | None] = field(default_factory=dict)
    certain: dict[Shapes, None] = field(default_factory=dict)

    def bind(self, shapes: Shapes) -> Binding:
        """Return the segment for some shapes, with nothing that runs it."""
        clock = Clock()
        declared = [each.shape or () for each in self.source.declaration.inputs]
        try:
            graph = self.source.graph(open_shapes(declared, shapes).shapes, clock)
        except OpbuildError:
            raise
        except Exception:  # from what does not know symbolic extents
            graph = self.source.graph(shapes, clock)
        self.cuts[shapes] = graph.follows
        return Binding(cast("Executor", _Stand(self, shapes, graph)), Report(graph.name), is_new=True)


class _MetSegments:
    """The segments that were met."""

    def __init__(self) -> None:
        self.found: dict[Any, Met] = {}

    def programs(self, source: Source) -> Met:
        """Return a segment."""
        key = source.digest, source.declaration.inputs
        return self.found.setdefault(key, Met(cast("Segment", source)))


def rehearse(
    model: ModelSource, first: FirstSegment, sizes: Iterable[Shapes], evaluate: Evaluate, most: int = 1
) -> list[Met]:
    """Return segments that a network may have, its first one first.

    Args:
        model: The model.
        first: Its first segment.
        sizes: Shapes of the model's inputs.
        evaluate: The host backend.
        most: For how many of them it is run.

    Raises:
        ShapeError: If the network takes none of the sizes.
    """
    rehearsal, problem = _Rehearsal(model, first, evaluate), ShapeError("there is no size in the ranges")
    for shapes in sizes:
        try:
            most -= rehearsal.run_at(shapes)
        except ShapeError as error:  # a size that the network itself does not take
            problem = error.with_traceback(None)
        if not most:
            break
    try:
        if not rehearsal.met or not rehearsal.met[0].cuts:
            raise problem
        return rehearsal.met
    finally:
        rehearsal.end()
        del problem  # its traceback has this frame: a cycle


class _Enough(Exception):  # noqa: N818 - it ends a run, and is no error
    """A run met enough segments."""


class _Rehearsal:
    def __init__(self, model: ModelSource, first: FirstSegment, evaluate: Evaluate) -> None:
        self._segments = _MetSegments()
        self._model, self._first = model, first
        self._binder = SegmentBinder(model, first, self._segments)
        self._evaluate = evaluate
        self._parts = _Parts(self._next, self._evaluated)
        self._maker = _Maker()
        self._has_body: set[Part] = set()
        self._certain: set[Part] = set()

    @property
    def met(self) -> list[Met]:
        """The segments that were met."""
        return [*self._segments.found.values()]

    @property
    def _known(self) -> int:
        return sum(len(each.cuts) for each in self.met)

    def run_at(self, shapes: Shapes) -> bool:
        """Run the network at one size until nothing new is met; return that it takes the size."""
        met, given = self._segments.programs(self._first), self._first.tensors(shapes)
        bound = met.bind(given)
        met.certain[given] = None
        cut, quiet = met.cuts[given], 0
        if cut is None:
            return True
        part = self._made(Part(bound.executor, cut, bound.report, Walk(self._first, given, cut)), is_certain=True)
        for number in range(MOST_RUNS):
            known = self._known
            self._run(part, number)
            quiet = quiet + 1 if self._known == known else 0
            if quiet == QUIET_RUNS and number >= len(CHANCES):
                break
        return True

    def end(self) -> None:
        """Let go of what calls back: a cycle."""
        del self._parts

    def _run(self, part: Part, number: int) -> None:
        """Run the network once, as far as made-up values lead."""
        self._maker.begin(number)
        inputs = {port.name: self._maker.made(port.type) for port in part.executor.inputs}
        try:
            self._parts.run(part, inputs)
        except (OpbuildError, _Enough):  # values that do not go together, as made-up ones may not
            return

    def _next(self, part: Part, answer: Answer, types: Mapping[str, TensorType], body: bool) -> Part:
        for guess in _guesses(answer):
            try:
                found = self._binder.bind_next(part, guess, types, body)
            except ModelError as error:
                problem = error.with_traceback(None)
            else:
                is_first_turn = body and part not in self._has_body
                self._has_body.update([part] if body else [])
                follows = is_first_turn or (part.cut.kind == "values" and part.cut.op_type == "If")
                return self._made(found, is_certain=part in self._certain and follows)
        try:
            raise problem
        finally:
            del problem  # its traceback has this frame: a cycle

    def _made(self, part: Part, *, is_certain: bool) -> Part:
        """Return a part that makes up its results."""
        stand = cast("_Stand", part.executor)
        stand.make = self._maker.results
        if is_certain:
            self._certain.add(part)
            stand.met.certain[stand.shapes] = None
        return part

    def _evaluated(self, node: Node, inputs: Sequence[Any], opset: int) -> Sequence[Any]:
        """Evaluate a node on made-up values, or on other lists of sizes and places if it does not take those."""
        extents = [extent for value in inputs[:1] for extent in np.shape(value)]
        places = [place for place, value in enumerate(inputs) if _is_list(value)]
        problem: OpbuildError | None = None
        for lists in islice(_combined([inputs[place] for place in places], extents), MOST_GUESSES):
            tried = dict(zip(places, lists, strict=True))
            try:
                return self._evaluate(node, [tried.get(place, value) for place, value in enumerate(inputs)], opset)
            except OpbuildError as error:
                problem = problem or error.with_traceback(None)
        try:
            raise problem or _Enough
        finally:
            del problem


class _Maker:
    """Makes up values."""

    def __init__(self) -> None:
        self.begin(0)

    def begin(self, number: int) -> None:
        """Begin a run."""
        self._random, self._count = np.random.default_rng(number), 0
        self._chance = CHANCES[min(number, len(CHANCES) - 1)]

    def made(self, type_: TensorType) -> Array:
        """Return a made-up value."""
        chance = self._chance if self._count < LONG else 0.0
        dtype = numpy_dtype(type_.dtype)
        if type_.dtype == "bool":
            return self._random.random(type_.shape) < chance
        if np.issubdtype(dtype, np.integer):
            most = 1 if chance in (0.0, 1.0) else 4
            return (self._random.integers(0, most, type_.shape) + (chance == 1.0)).astype(dtype)
        return (self._random.random(type_.shape) * (chance > 0)).astype(dtype)

    def results(self, types: Sequence[TensorType]) -> list[Array]:
        """Return made-up results of a segment.

        Raises:
            _Enough: If the run met enough segments.
        """
        self._count += 1
        if self._count > LONGEST:
            raise _Enough
        return [self.made(each) for each in types]


class _Parts(Parts):
    """Parts in which what a break may wait for is taken in turn: either branch of an If, values, or none."""

    def __init__(self, bind: BindNext, evaluate: Evaluate) -> None:
        super().__init__(bind, evaluate, KnownParts())
        self._taken: Counter[str] = Counter()

    def _decided(
        self, part: Part, decided: Mapping[str, Array], symbols: tuple[int, ...], values: Mapping[str, Any]
    ) -> Part:
        turn = self._taken[part.cut.state]
        self._taken[part.cut.state] += 1
        if part.cut.op_type == "If":
            decided = {name: np.full_like(value, turn % 2 == 0) for name, value in decided.items()}
        elif part.cut.can_wait and turn % 4 == 3:
            return self._on_host(part, symbols, values)
        return super()._decided(part, decided, symbols, values)


class _Stand:
    """Stands for what runs a segment.

    Attributes:
        make: Makes up values of types.
    """

    arena_size = 0
    make: Callable[[Sequence[TensorType]], list[Array]]

    def __init__(self, met: Met, shapes: Shapes, graph: Graph) -> None:
        types = {n: TensorType(each.dtype, tuple(map(at_hand, each.shape))) for n, each in graph.types.items()}
        self.inputs, self.outputs = (
            tuple(Port(name, types[name], 0) for name in names) for names in (graph.inputs, graph.outputs)
        )
        self.met, self.shapes, self.follows = met, shapes, graph.follows
        self.blocks: Blocks[Any] = Blocks()

    def run(self, inputs: Sequence[Any]) -> list[Array]:
        """Return made-up results."""
        return self.make([port.type for port in self.outputs])


def _guesses(answer: Answer) -> Iterator[Answer]:
    """Yield an answer, and, if it is of made-up values, others that may fit the network better."""
    lists = {name: value for name, value in answer.values.items() if _is_list(value)}
    for each in islice(_combined([*lists.values()]), MOST_GUESSES):
        yield answer._replace(values={**answer.values, **dict(zip(lists, each, strict=True))})


def _combined(values: Sequence[Array], extents: Sequence[int] = ()) -> Iterator[tuple[Array, ...]]:
    """Yield lists of integers, and what may stand in their places."""
    yield tuple(values)
    if values:
        yield from product(*(_lists(value, extents) for value in values))


def _is_list(value: Any) -> bool:
    """Return whether a value may be a list of sizes, axes or places."""
    return isinstance(value, np.ndarray) and value.dtype.kind in "iu" and value.ndim <= 1 and value.size <= MOST_LISTED


def _lists(like: Array, extents: Sequence[int]) -> list[Array]:
    """Return lists of sizes, axes or places; among them are even parts of some extents."""
    count = like.size
    last = [0] * (count - 1) + [-1]
    found = [[1] * count, range(count), [0] * count, [2] * count, last, [*last[1:], 1], range(-count, 0)]
    found += [[*[extent // count] * (count - 1), extent - extent // count * (count - 1)] for extent in extents if count]
    lists = dict.fromkeys(tuple(each) for each in found if len(each) == count)
    return [np.array(each).astype(like.dtype).reshape(like.shape) for each in lists]
