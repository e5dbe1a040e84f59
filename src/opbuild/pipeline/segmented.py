"""A network in segments: bound as they are met, and run one after the other, with values by name between them.

Which segment comes next depends on what the graph break behind the last one waited for: some values, or the types of
what was evaluated on the host. All that were met are remembered, in bounded memory.
"""

from __future__ import annotations

import copy
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from opbuild.backend.evaluate import evaluate
from opbuild.errors import BuildError, OpbuildError, RunError, ShapeError
from opbuild.graph.breaks import HOST_VALUE, Answer, GraphBreak, is_tensor, type_of_value
from opbuild.graph.types import MOST_DIMENSIONS, Array, Node, TensorType
from opbuild.pipeline.source import FirstSegment, Segment, Walk, begins_with
from opbuild.platform.locks import Lock
from opbuild.platform.records import dataclass, field, replace
from opbuild.program import Port
from opbuild.report import Report
from opbuild.runtime.binding import Binding, Bound, Improvement, Shapes, Unserved
from opbuild.runtime.blocks import Blocks
from opbuild.runtime.endpoint import dense
from opbuild.runtime.executor import Arena, Executor
from opbuild.runtime.reused import owns_memory
from opbuild.runtime.stopping import check_stopped
from opbuild.runtime.timing import TIMER

if TYPE_CHECKING:
    from opbuild.frontend.models.source import ModelSource
    from opbuild.pipeline.source import Source

MOST_SEGMENTS = 64
"""Segments of a network whose programs are kept."""

MOST_BOUND = 256
"""Segments that stay bound: of a loop whose values grow, each turn is one. They share the memory that they run in."""

MOST_VALUES = 8
"""Different values with which as constants the remainder of a network is built, or is bound by numbers to the same
sizes. A node that waits for ever new ones is then evaluated on the host: what follows it depends on the types of its
results alone, of which there are fewer."""

MOST_STATES = 4096
"""Graph breaks whose answers are counted."""

MOST_REPEATED, MOST_BYTES = 8, 1 << 26
"""Calls that are repeated where all segments are bound anew, and bytes of their inputs; the latest has any size."""

Call = tuple[Shapes, Sequence[Any]]
"""A call: the shapes of its inputs, and these."""


class BindsShapes(Protocol):
    """The programs of one source."""

    def bind(self, shapes: Shapes, /) -> Binding | Unserved:
        """Return the network for some shapes, or why there is none and none can be made."""


class MakesPrograms(Protocol):
    """A maker of the programs of sources."""

    def programs(self, source: Source, /) -> BindsShapes:
        """Return the programs of a source, of which there is no other."""


@dataclass(eq=False)
class BoundSegment:
    """A segment that is bound.

    Attributes:
        executor: Runs it.
        follows: The graph break behind it.
        report: What its build did.
        walked: Returns it as the front end has it, from which the next one is bound.
        by_numbers: Whether it was bound to what was lowered before.
        numbers: The numbers that it was given; see ``Answer.numbers``.
    """

    executor: Executor
    follows: GraphBreak
    report: Report
    walked: Walk
    by_numbers: bool = False
    numbers: tuple[int, ...] = ()
    inputs: tuple[str, ...] = field(init=False)
    outputs: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.inputs = tuple(self.executor.inputs.names)
        self.outputs = tuple(self.executor.outputs.names)

    @property
    def sizes(self) -> Hashable:
        """The sizes that differ between two segments bound for values that decide extents, not only places."""
        outputs = self.executor.outputs
        return tuple(outputs.rank.tolist()), tuple(outputs.extents.tolist()), self.executor.arena_size

    @property
    def computes_nothing(self) -> bool:
        """Whether it only waits for values among its inputs, with all of which the next segment begins."""
        waits = self.follows.kind == "values" and not self.executor.step_count
        return waits and all(name == value for name, value in self.follows.live.items())

    def checked(self, known: Iterable[str]) -> BoundSegment:
        """Return it, if all that it and the break behind it read is there where these values are known.

        Raises:
            BuildError: If something is not: its record is damaged.
        """
        found = {*known, *self.outputs}
        problem = "" if found.issuperset(self.inputs) else f"nothing assigns {', '.join({*self.inputs} - found)}"
        problem = problem or self.follows.problem(found)
        if problem:
            raise BuildError(
                f"a segment of the network {self.report.network} cannot run: {problem}",
                "remove its cache folder and build it again",
            )
        return self


class Segments:
    """The segments of one model. Any number of threads may use it.

    Attributes:
        met: How many were bound.
        built: Operators that were compiled for those behind the first one.
        is_first_tier: Whether kernels of others compute a part of some.
        arena_size: Bytes of the memory for the temporaries of the largest that is remembered.
    """

    def __init__(self, model: ModelSource, first: FirstSegment, session: MakesPrograms) -> None:
        self._model, self._first, self._session = model, first, session
        self._programs: dict[Hashable, tuple[Segment, BindsShapes]] = {}  # as below
        self._alike: dict[Hashable, Segment] = {}  # the one that was bound last, by all but its extents
        self._bound: OrderedDict[Hashable, BoundSegment] = OrderedDict()  # the one that was used last at the end
        self._values: Counter[Hashable] = Counter()  # how many different ones decided what follows a break
        self._lock, self._binding = Lock(), Lock()
        self._begins: BoundSegment | None = None
        self._to_repeat = deque[Call](maxlen=MOST_REPEATED)
        self.met, self.built, self.is_first_tier, self.arena_size = 0, 0, False, 0

    def bind(self, first: Binding, shapes: Shapes, better: Improvement | None = None) -> Bound:
        """Return the network whose first segment was bound; or that, if nothing comes behind it.

        Args:
            first: The first segment.
            shapes: The shapes of all inputs.
            better: Binds all segments anew, asked if kernels of others compute some.
        """
        follows = first.executor.follows
        if follows is None:
            return first
        walked = Walk(self._first, self._first.tensors(shapes), follows)
        segment = BoundSegment(first.executor, follows, first.report, walked)
        segment.checked(self._model.types(shapes))
        self._note(segment)
        if segment.computes_nothing:
            self._begins = segment
        return self._network(segment, shapes, better)

    def bind_again(self, shapes: Shapes, better: Improvement | None) -> Bound | None:
        """Return the network for further shapes if its first segment computes nothing; else None.

        What only waits for values among the inputs does so at any size: the segment behind it begins with the network's
        inputs, and is bound for their shapes. Arguments as of ``bind``.
        """
        return None if self._begins is None else self._network(self._begins, shapes, better)

    def _network(self, first: BoundSegment, shapes: Shapes, better: Improvement | None) -> SegmentedNetwork:
        results = [output.name for output in self._model.declaration.outputs]
        return SegmentedNetwork(first, self, self._model.types(shapes), results, better)

    def _note(self, segment: BoundSegment) -> None:
        self.met += 1
        self.is_first_tier = self.is_first_tier or bool(segment.report.pending)

    def repeat_later(self, shapes: Shapes, inputs: Sequence[Any]) -> None:
        """Have a call repeated where all segments are bound anew; earlier ones only as far as they are small."""
        try:
            call = shapes, copy.deepcopy([*inputs])
        except MemoryError:  # the call that it would be for has its results
            return
        with self._lock:
            self._to_repeat.append(call)
            while len(self._to_repeat) > 1 and sum(map(_size, self._to_repeat)) > MOST_BYTES:
                self._to_repeat.popleft()

    def calls_to_repeat(self) -> Iterator[Call]:
        """Yield the calls that are to be repeated, and those that come meanwhile, but not for ever; forget them."""
        for _ in range(2 * MOST_REPEATED):
            with self._lock:
                call = self._to_repeat.popleft() if self._to_repeat else None
            if call is None:
                return
            yield call

    @property
    def known(self) -> list[BoundSegment]:
        """Those that are remembered."""
        with self._lock:
            return list(self._bound.values())

    def run(self, segment: BoundSegment, values: dict[str, Any], given: Sequence[Array | None] = ()) -> list[Any]:
        """Run a network from its first segment.

        Args:
            segment: The first one.
            values: Its inputs by name, arrays dense. It is changed.
            given: As in ``Executor.run``; what the last segment writes can be written to them directly.

        Returns:
            The results in order; they may be inputs, or views of them.

        Raises:
            RunError: If it fails on these values.
            ModelError, BuildError: If a segment cannot be bound.
        """
        while True:
            follows = segment.follows
            if segment.outputs:
                own = dict(zip(follows.reads, given, strict=True)) if given and follows.kind == "end" else {}
                arrays = [own.get(name) for name in segment.outputs] if own else ()
                results = segment.executor.run([values[name] for name in segment.inputs], arrays)
                values.update(zip(segment.outputs, results, strict=True))
            symbols = follows.symbols_of(values, segment.numbers)
            values.update(follows.constants)
            values.update((name, each.value(symbols)) for name, each in follows.derived.items())
            if follows.kind == "end":
                return [values[name] for name in follows.reads]
            if follows.kind == "values":
                decided = follows.deciding(values)
                values = {name: values[value] for name, value in follows.live.items()}
                segment = self._following_segment(segment, decided, symbols, values)
                continue
            if follows.kind == "data":
                self._evaluate_nodes(follows, values)
            else:
                self._repeat(segment, follows.nodes[0], symbols, values)
            values = {name: values[value] for name, value in follows.live.items()}
            if follows.results:
                return [values[name] for name in follows.results]
            key = (follows.state, _signatures(follows, values), symbols)
            types = partial(_types, values, follows.made, symbols)
            segment = self._known(key) or _require_served(self._next(segment, key, types, values))

    # What a graph break waits for

    def _following_segment(
        self, segment: BoundSegment, decided: Mapping[str, Array], symbols: tuple[int, ...], values: Mapping[str, Any]
    ) -> BoundSegment:
        """Return the segment behind one that some values decide."""
        state, can_wait = segment.follows.state, segment.follows.can_wait
        around = (state, _signatures(segment.follows, values), symbols)
        shown = tuple((array.dtype.str, array.shape, array.tobytes()) for array in decided.values())
        known = self._known((*around, shown))
        if known is not None:
            return known
        if max(self._values[around], self._values[state]) >= MOST_VALUES and can_wait:
            on_host = self._on_host(segment, symbols, values)
            if isinstance(on_host, BoundSegment):
                return on_host
        found = self._next(segment, (*around, shown), lambda: Answer(decided, symbols=symbols), values)
        if isinstance(found, Unserved):
            return _require_served(self._on_host(segment, symbols, values) if can_wait else found)
        if found.by_numbers and found.follows.kind != "end":
            return found
        with self._lock:
            alike = (around, found.sizes)
            self._values[alike if found.by_numbers else state] += 1
            self._values[around] = max(self._values[around], self._values[alike])
            if len(self._values) > MOST_STATES:
                self._values.clear()
        return found

    def _on_host(
        self, segment: BoundSegment, symbols: tuple[int, ...], values: Mapping[str, Any]
    ) -> BoundSegment | Unserved:
        """Return the segment behind one whose node is evaluated on the host instead of waiting for values."""
        key = (segment.follows.state, _signatures(segment.follows, values), symbols, "on host")
        return self._next(segment, key, lambda: Answer(on_host=True, symbols=symbols), values)

    def _evaluate(self, node: Node, inputs: Sequence[Any], opset: int) -> Sequence[Any]:
        return evaluate(node, inputs, opset)

    def _evaluate_nodes(self, follows: GraphBreak, values: dict[str, Any]) -> None:
        for node in follows.nodes:
            inputs = [values[name] if name else None for name in node.inputs]
            given = _evaluated(node, partial(self._evaluate, node, inputs, follows.opset))
            values.update(zip(node.outputs, given, strict=False))

    def _repeat(self, segment: BoundSegment, node: Node, symbols: tuple[int, ...], values: dict[str, Any]) -> None:
        body = segment.follows.body
        if body is None:
            raise RunError(
                f"{node.op_type} node {node.name!r} has no body", "this is an error in opbuild; please report it"
            )
        outer = {name: values[value] for name, value in body.outer.items()}
        names, state = body.inputs, body.state
        around = tuple([_signature(value) for value in outer.values()])

        def bound(inputs: Sequence[Any]) -> tuple[BoundSegment, dict[str, Any]]:
            given = {**dict(zip(names, inputs, strict=True)), **outer}
            key = (state, tuple([_signature(value) for value in inputs]), around, symbols)
            types = partial(_types, given, tuple(given), symbols)
            first = self._known(key) or _require_served(self._next(segment, key, types, given, is_body=True))
            return first, given

        def turn(inputs: Sequence[Any]) -> list[Any]:
            return self.run(*bound(inputs))

        def types(inputs: Sequence[Any]) -> list[TensorType | None]:
            first, _ = bound(inputs)
            executor, follows = first.executor, first.follows
            known = {port.name: port.type for port in (*executor.inputs, *executor.outputs)}
            known.update((name, type_of_value(value)) for name, value in follows.constants.items())
            return [known.get(name) for name in follows.reads] if follows.kind == "end" else []

        from opbuild.runtime.repeat import LoopBody, repeat

        results = repeat(node, [values[name] if name else None for name in node.inputs], LoopBody(turn, types))
        values.update((name, result) for name, result in zip(node.outputs, results, strict=True) if name)

    # Binding and remembering

    def _next(
        self,
        segment: BoundSegment,
        key: Hashable,
        answer: Callable[[], Answer],
        values: Mapping[str, Any],
        *,
        is_body: bool = False,
    ) -> BoundSegment | Unserved:
        """Return the segment of a key; if it is new, bind it behind another one, for the values that it begins with."""
        known = self._known(key)
        if known is not None:
            return known
        with self._binding:  # a segment is bound once, however many threads ask for it; others go on meanwhile
            known = self._known(key)
            if known is not None:
                return known
            given = answer()
            left_out = () if is_body else (*given.values, *segment.follows.kept)
            types = {name: type_of_value(value) for name, value in sorted(values.items()) if name not in left_out}
            tensors = {name: each for name, each in types.items() if is_tensor(each)}
            found = self._bind_next(segment, given, tensors, is_body=is_body)
            if isinstance(found, BoundSegment):
                self._keep(key, found.checked(values))
                self._note(found)
                self.built += found.report.built
            return found

    def _bind_next(
        self, segment: BoundSegment, answer: Answer, types: Mapping[str, TensorType], *, is_body: bool
    ) -> BoundSegment | Unserved:
        """Bind the segment behind another one, or the first one of the body of its loop."""
        shapes, numbers = tuple([each.shape for each in types.values()]), answer.numbers
        source, programs = self._programs_of(segment, answer, types, shapes, is_body=is_body)
        if numbers:
            shapes = (*shapes, (*(0,) * MOST_DIMENSIONS, *numbers))
        bound = programs.bind(shapes)
        if isinstance(bound, Unserved):
            return bound
        follows = bound.executor.follows
        if follows is None:
            raise BuildError("a segment of a network lacks its end", "this is an error in opbuild; please report it")
        walked = Walk(source, shapes, follows)
        return BoundSegment(bound.executor, follows, bound.report, walked, not bound.is_new, numbers)

    def _programs_of(
        self, segment: BoundSegment, answer: Answer, types: Mapping[str, TensorType], shapes: Shapes, *, is_body: bool
    ) -> tuple[Segment, BindsShapes]:
        follows = segment.follows
        bare = begins_with(follows, is_body=is_body), answer.without_numbers().key
        alike = *bare, tuple([(name, each.dtype) for name, each in types.items()])
        source = self._alike.pop(alike, None)
        if source is None or not source.fits(shapes):
            source = Segment(self._model, types, follows, answer, is_body=is_body, before=segment.walked)
        known = self._programs.pop(source.key, None) or (source, self._session.programs(source))
        self._programs[source.key], self._alike[alike] = known, known[0]
        for each in (self._programs, self._alike):
            if len(each) > MOST_SEGMENTS:
                each.pop(next(iter(each)))
        return known

    def _known(self, key: Hashable) -> BoundSegment | None:
        with self._lock:
            found = self._bound.get(key)
            if found is not None:
                self._bound.move_to_end(key)
            return found

    def _keep(self, key: Hashable, segment: BoundSegment) -> None:
        """Remember a segment, and let go of those that were used longest ago; a call keeps the ones that it uses."""
        with self._lock:
            self._bound[key], own = segment, segment.executor.arena_size
            self.arena_size = max(self.arena_size, own)
            gone = self._bound.popitem(last=False)[1].executor if len(self._bound) > MOST_BOUND else None
            if gone is not None and gone.arena_size > own:  # else this one needs as much
                self.arena_size = max(each.executor.arena_size for each in self._bound.values())
                gone.blocks.shrink(self.arena_size)


class SegmentedNetwork:
    """A network in segments for one input signature; a whole one has ``Binding`` and ``Executor``."""

    def __init__(
        self,
        first: BoundSegment,
        segments: Segments,
        types: Mapping[str, TensorType],
        results: Sequence[str],
        better: Improvement | None = None,
    ) -> None:
        self._first, self._segments = first, segments
        self._inputs = types
        self._results = tuple(results)
        self._latest: list[tuple[Any, tuple[int, ...]] | None] = []
        self._better, self._met = better, -1

    @property
    def better(self) -> Improvement | None:
        """The source of one with all segments bound anew, where kernels of others compute a part of some."""
        return self._better if self._segments.is_first_tier else None

    def without_better(self) -> SegmentedNetwork:
        """Return it as one that stays, since there is no faster one."""
        self._better = None
        return self

    @property
    def executor(self) -> SegmentedNetwork:
        """Runs it."""
        return self

    @property
    def inputs(self) -> tuple[Port, ...]:
        """The inputs in order."""
        return tuple(Port(name, each, 0) for name, each in self._inputs.items())

    @property
    def outputs(self) -> tuple[Port, ...]:
        """The outputs in order, as they were in the last call."""
        types = [
            HOST_VALUE if each is None else type_of_value(np.broadcast_to(np.empty((), each[0]), each[1]))
            for each in self._latest
        ]
        return tuple(Port(name, each, 0) for name, each in zip(self._results, types, strict=False))

    @property
    def arena_size(self) -> int:
        """Bytes of the memory for the temporaries of its largest segment."""
        return max(self._first.executor.arena_size, self._segments.arena_size)

    @property
    def is_filled(self) -> bool:
        """Whether the arguments of its first segment are those of others; the further ones are not its own."""
        return self._first.executor.is_filled

    @property
    def blocks(self) -> Blocks[Arena]:
        """The memory in which all segments run."""
        return self._first.executor.blocks

    @property
    def runners(self) -> tuple[Executor, ...]:
        """The executors of the segments that were met."""
        return tuple(each.executor for each in self._bound_segments)

    @property
    def report(self) -> Report:
        """The report of the builds of all segments that were met."""
        return merged(self._bound_segments)

    @property
    def is_first_tier(self) -> bool:
        """Whether kernels of others compute a part of a segment that was met."""
        return self._segments.is_first_tier

    @property
    def built(self) -> int:
        """Operators that were compiled for the first segment."""
        return self._first.report.built

    @property
    def built_later(self) -> int:
        """Operators that were compiled for the others."""
        return self._segments.built

    @property
    def _bound_segments(self) -> list[BoundSegment]:
        return [self._first, *self._segments.known]

    def run(self, inputs: Sequence[Any], given: Sequence[Array | None] = ()) -> list[Any]:
        """Run the network; see ``Executor.run``.

        Raises:
            RunError: If it fails on these values.
            ModelError, BuildError: If a segment that is new cannot be bound.
        """
        values = dict(zip(self._inputs, inputs, strict=True))
        taken, own = {id(each) for value in inputs for each in _arrays(value)}, {id(each) for each in given}
        found = self._segments.run(self._first, values, given)
        results = [value if id(value) in own else _own_copy(value, taken) for value in found]
        if len(results) != len(self._results):
            raise BuildError(f"a segment of the network ends with {len(results)} results, not {len(self._results)}",
                             "remove its cache folder and build it again")  # fmt: skip
        self._latest = [(each.dtype, each.shape) if isinstance(each, np.ndarray) else None for each in results]
        met = self._segments.met
        if met != self._met and self._segments.is_first_tier:
            self._segments.repeat_later(tuple([each.shape for each in self._inputs.values()]), inputs)
        self._met = met
        return results


def merged(segments: Sequence[BoundSegment]) -> Report:
    """Return the reports of the builds of several segments as one."""
    reports, breaks = [each.report for each in segments], [each.follows for each in segments]
    operators = {operator.name: operator for report in reversed(reports) for operator in report.operators}
    evaluated = {each.path: each.nodes for each in breaks if each.kind == "data"}  # several may end at one place
    host = Counter(node.op_type for nodes in evaluated.values() for node in nodes)
    steps, pending = Counter[str](), Counter[str]()
    for each in segments:
        pending[each.follows.path] = max(pending[each.follows.path], each.report.pending)
    for report in reports:
        host.update(report.host)
        steps.update(report.steps)
    reasons = [report.image_reason for report in reports if not report.image]
    return replace(
        reports[0],
        operators=tuple(operators.values()),
        host=dict(host),
        steps=dict(steps),
        breaks=tuple({each.path: f"{each.op_type} {each.node}" for each in breaks if each.kind != "end"}.values()),
        image=not reasons,
        image_reason=reasons[0] if reasons else "",
        notes={name: note for report in reports for name, note in report.notes.items()},
        tuned={name: said for report in reports for name, said in report.tuned.items()},
        arena=max(report.arena for report in reports),
        constants=sum(report.constants for report in reports),
        pending=sum(pending.values()),
    )


def _require_served(found: BoundSegment | Unserved) -> BoundSegment:
    """Return a segment."""
    if isinstance(found, Unserved):
        raise ShapeError(*found)
    return found


def _signature(value: Any) -> Hashable:
    """Return the signature of a value: equal ones have equal types. It is quicker than the type itself."""
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return value.dtype, value.shape
    return None


def _signatures(follows: GraphBreak, values: Mapping[str, Any]) -> Hashable:
    """Return the signatures of all values that the segment behind a break reads."""
    return tuple([_signature(values[name]) for name in follows.live if name not in follows.kept])


def _types(values: Mapping[str, Any], names: Iterable[str], symbols: tuple[int, ...]) -> Answer:
    return Answer(types={name: type_of_value(values[name]) for name in names}, symbols=symbols)


def _evaluated(node: Node, evaluate: Callable[[], Sequence[Any]]) -> list[Any]:
    """Return the results of a node on the host, arrays dense."""
    check_stopped()
    timer = TIMER.get()
    try:
        return [dense(result) for result in (evaluate() if timer is None else timer.node(node, evaluate))]
    except OpbuildError:
        raise
    except Exception as error:
        where = f"node {node.name} ({node.op_type})"
        raise RunError(f"{where} failed on the host: {error!r}", "check the values that it reads") from error


def _own_copy(value: Any, taken: set[int]) -> Any:
    """Return a result, copied if it may be memory of the caller's or of another result; ``taken`` grows by it."""
    if isinstance(value, list):
        return list(value) if value and isinstance(value[0], dict) else [_own_copy(each, taken) for each in value]
    if isinstance(value, np.ndarray):
        own = owns_memory(value) and value.flags.writeable and id(value) not in taken
        value = value if own else value.copy()
        taken.add(id(value))
    return value


def _size(call: Call) -> int:
    return sum(each.nbytes for value in call[1] for each in _arrays(value))


def _arrays(value: Any) -> Iterator[Array]:
    """Yield an array, or those of a sequence."""
    if isinstance(value, list):
        for each in value:
            yield from _arrays(each)
    elif isinstance(value, np.ndarray):
        yield value
