"""Dry run: which segments a network may have, told by running it on made-up values, without computing any.

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
from opbuild.graph.breaks import Answer, GraphBreak
from opbuild.graph.extents import example_value
from opbuild.graph.types import Array, Graph, Node, TensorType
from opbuild.pipeline.segmented import BoundSegment, Segments
from opbuild.pipeline.source import FirstSegment, Segment, Source, Walk
from opbuild.pipeline.symbolic_lowering import symbolic_first, symbolic_shapes
from opbuild.platform.records import dataclass, field
from opbuild.program import Port
from opbuild.report import Clock, Report
from opbuild.runtime.binding import Binding, Shapes, Unserved
from opbuild.runtime.blocks import Blocks
from opbuild.runtime.executor import Executor
from opbuild.runtime.record import Ports

if TYPE_CHECKING:
    from opbuild.frontend.models.source import ModelSource

CHANCES = (0.0, 1.0, 0.5)
"""How likely a made-up value is true in the first runs, and in all others."""

QUIET_RUNS, MOST_RUNS = 3, 64
"""So many runs in a row that meet no new segment end the dry run, and so many in all."""

LONG, LONGEST = 64, 4096
"""Segments run after which all made-up values are false, which ends loops, and after which a run ends."""

BEYOND = 4
"""How far beyond an extent a made-up number goes: so many tokens are chosen after those that are given."""

MOST_GUESSES, MOST_LISTED = 256, 64
"""Combinations of values that are tried where some decide shapes, and elements of a list that does."""


@dataclass(eq=False)
class VisitedSegment:
    """A segment that a call may have.

    Attributes:
        source: The segment.
        breaks: What came after it, for each of the sizes at which it was met.
        certain: The sizes that calls surely have if they come here: no data decided them.
    """

    source: FirstSegment | Segment
    breaks: dict[Shapes, GraphBreak | None] = field(default_factory=dict)
    certain: dict[Shapes, None] = field(default_factory=dict)

    def bind(self, shapes: Shapes) -> Binding:
        """Return the segment for some shapes, with nothing that runs it."""
        clock, symbolic = Clock(), symbolic_shapes(self.source.declaration.shapes, shapes).shapes
        graph = symbolic_first(lambda: self.source.graph(symbolic, clock), lambda _: self.source.graph(shapes, clock))
        self.breaks[shapes] = graph.follows
        return Binding(cast("Executor", _MadeUpExecutor(self, shapes, graph)), Report(graph.name), is_new=True)


class _VisitedSegments:
    """The segments that were visited."""

    def __init__(self) -> None:
        self.found: dict[Any, VisitedSegment] = {}

    def programs(self, source: Source) -> VisitedSegment:
        """Return a segment."""
        key = source.digest, source.declaration.inputs
        return self.found.setdefault(key, VisitedSegment(cast("Segment", source)))


def dry_run(model: ModelSource, first: FirstSegment, sizes: Iterable[Shapes], most: int = 1) -> list[VisitedSegment]:
    """Return segments that a network may have, its first one first; it is run at so many of the sizes as it takes.

    Raises:
        ShapeError: If the network takes none of the sizes.
    """
    run, problem = _DryRun(model, first), ShapeError("there is no size in the ranges")
    for shapes in sizes:
        try:
            most -= run.run_at(shapes)
        except ShapeError as error:  # a size that the network itself does not take
            problem = error.with_traceback(None)
        if not most:
            break
    try:
        if not run.visited or not run.visited[0].breaks:
            raise problem
        return run.visited
    finally:
        del problem  # its traceback has this frame: a cycle


class _EnoughSegments(Exception):  # noqa: N818 - it ends a run, and is no error
    """A run visited enough segments."""


class _DryRun(Segments):
    """Segments whose breaks take each outcome in turn: either branch of an If, values, or none."""

    def __init__(self, model: ModelSource, first: FirstSegment) -> None:
        self._sources = _VisitedSegments()
        super().__init__(model, first, self._sources)
        self._maker = _Maker()
        self._has_body: set[BoundSegment] = set()
        self._certain: set[BoundSegment] = set()
        self._taken: Counter[str] = Counter()

    @property
    def visited(self) -> list[VisitedSegment]:
        """The segments that were visited."""
        return [*self._sources.found.values()]

    @property
    def _count(self) -> int:
        return sum(len(each.breaks) for each in self.visited)

    def run_at(self, shapes: Shapes) -> bool:
        """Run the network at one size until nothing new is met; return that it takes the size."""
        met, given = self._sources.programs(self._first), self._first.tensors(shapes)
        bound = met.bind(given)
        met.certain[given] = None
        follows, quiet = met.breaks[given], 0
        if follows is None:
            return True
        walked = Walk(self._first, given, follows)
        segment = self._with_made_up_results(
            BoundSegment(bound.executor, follows, bound.report, walked), is_certain=True
        )
        for number in range(MOST_RUNS):
            count = self._count
            self._run_once(segment, number)
            quiet = quiet + 1 if self._count == count else 0
            if quiet == QUIET_RUNS and number >= len(CHANCES):
                break
        return True

    def _run_once(self, segment: BoundSegment, number: int) -> None:
        """Run the network once, as far as made-up values lead."""
        self._maker.begin(number)
        inputs = {port.name: self._maker.made(port.type) for port in segment.executor.inputs}
        if number >= len(CHANCES):
            self._lengthen(inputs, number)
        try:
            self.run(segment, inputs)
        except (OpbuildError, _EnoughSegments):  # values that do not go together, as made-up ones may not
            return

    def _lengthen(self, inputs: dict[str, Array], number: int) -> None:
        """Let numbers among inputs be beyond all extents, as that of all tokens is: all of them once, then some."""
        most = max((extent for each in inputs.values() for extent in np.shape(each)), default=0) + BEYOND
        numbers = [name for name, each in inputs.items() if each.size == 1 and each.dtype.kind in "iu"]
        for place, name in enumerate(numbers):
            if number == len(CHANCES) or (number >> place) % 2:
                inputs[name] = np.full_like(inputs[name], min(most, np.iinfo(inputs[name].dtype).max))

    def _bind_next(
        self, segment: BoundSegment, answer: Answer, types: Mapping[str, TensorType], *, is_body: bool
    ) -> BoundSegment | Unserved:
        for guess in _answers_to_try(answer):
            try:
                found = super()._bind_next(segment, guess, types, is_body=is_body)
            except ModelError as error:
                problem = error.with_traceback(None)
            else:
                is_first_turn = is_body and segment not in self._has_body
                self._has_body.update([segment] if is_body else [])
                is_sure = is_first_turn or (segment.follows.kind == "values" and segment.follows.op_type == "If")
                return self._with_made_up_results(
                    cast("BoundSegment", found), is_certain=segment in self._certain and is_sure
                )
        try:
            raise problem
        finally:
            del problem  # its traceback has this frame: a cycle

    def _with_made_up_results(self, segment: BoundSegment, *, is_certain: bool) -> BoundSegment:
        """Return a segment that makes up its results."""
        stand = cast("_MadeUpExecutor", segment.executor)
        stand.make = self._maker.results
        if is_certain:
            self._certain.add(segment)
            stand.visited.certain[stand.shapes] = None
        return segment

    def _following_segment(
        self, segment: BoundSegment, decided: Mapping[str, Array], symbols: tuple[int, ...], values: Mapping[str, Any]
    ) -> BoundSegment:
        follows = segment.follows
        turn = self._taken[follows.state]
        self._taken[follows.state] += 1
        if follows.op_type == "If":
            decided = {name: np.full_like(value, turn % 2 == 0) for name, value in decided.items()}
        elif follows.can_wait and turn % 4 == 3:
            return cast("BoundSegment", self._on_host(segment, symbols, values))
        return super()._following_segment(segment, decided, symbols, values)

    def _evaluate(self, node: Node, inputs: Sequence[Any], opset: int) -> Sequence[Any]:
        """Evaluate a node on made-up values, or on other lists of sizes and places if it does not take those.

        Then these are the values from here on: what comes later reads some of them, too.
        """
        extents = [extent for value in inputs[:1] for extent in np.shape(value)]
        places = [place for place, value in enumerate(inputs) if _is_list(value)]
        problem: OpbuildError | None = None
        for lists in islice(_combined([inputs[place] for place in places], extents), MOST_GUESSES):
            tried = dict(zip(places, lists, strict=True))
            try:
                found = super()._evaluate(node, [tried.get(place, value) for place, value in enumerate(inputs)], opset)
            except OpbuildError as error:
                problem = problem or error.with_traceback(None)
                continue
            for place, each in tried.items():
                if inputs[place].flags.writeable:
                    inputs[place][...] = each
            return found
        try:
            raise problem or _EnoughSegments
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
        """Return made-up results of a segment."""
        self._count += 1
        if self._count > LONGEST:
            raise _EnoughSegments
        return [self.made(each) for each in types]


class _MadeUpExecutor:
    """Stands for the executor of a segment."""

    arena_size = 0
    make: Callable[[Sequence[TensorType]], list[Array]]

    def __init__(self, visited: VisitedSegment, shapes: Shapes, graph: Graph) -> None:
        types = {n: TensorType(each.dtype, tuple(map(example_value, each.shape))) for n, each in graph.types.items()}
        self.inputs, self.outputs = (
            Ports.of(Port(name, types[name], 0) for name in names) for names in (graph.inputs, graph.outputs)
        )
        self.step_count = len(graph.nodes)
        self.visited, self.shapes, self.follows = visited, shapes, graph.follows
        self.blocks: Blocks[Any] = Blocks()

    def run(self, inputs: Sequence[Any], given: Sequence[Any] = ()) -> list[Array]:
        """Return made-up results."""
        return self.make([port.type for port in self.outputs])


def _answers_to_try(answer: Answer) -> Iterator[Answer]:
    """Yield an answer, and, if it is of made-up values, others that may fit the network better."""
    lists = {name: value for name, value in answer.values.items() if _is_list(value)}
    for each in islice(_combined([*lists.values()]), MOST_GUESSES):
        yield answer._replace(values={**answer.values, **dict(zip(lists, each, strict=True))})


def _combined(values: Sequence[Array], extents: Sequence[int] = ()) -> Iterator[tuple[Array, ...]]:
    """Yield lists of integers, and the values that may stand in their places: first in one place, then in all."""
    yield tuple(values)
    lists = [_lists(value, extents) for value in values]
    for place, others in enumerate(lists):
        yield from ((*values[:place], each, *values[place + 1 :]) for each in others)
    if len(values) > 1:
        yield from product(*lists)


def _is_list(value: Any) -> bool:
    """Return whether a value may be a list of sizes, axes or places."""
    return isinstance(value, np.ndarray) and value.dtype.kind in "iu" and value.ndim <= 1 and value.size <= MOST_LISTED


def _lists(like: Array, extents: Sequence[int]) -> list[Array]:
    """Return lists of sizes, axes or places; among them are even parts of some extents, and values beyond them."""
    count = like.size
    last = [0] * (count - 1) + [-1]
    found = [[1] * count, range(count), [0] * count, [2] * count, last, [*last[1:], 1], range(-count, 0)]
    found += [[*[extent // count] * (count - 1), extent - extent // count * (count - 1)] for extent in extents if count]
    found += [[max(extents) + BEYOND] * count] if extents else []
    lists = dict.fromkeys(tuple(each) for each in found if len(each) == count)
    return [np.array(each).astype(like.dtype).reshape(like.shape) for each in lists]
