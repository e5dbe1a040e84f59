"""Programs: the programs that one source was lowered to, and how they are bound to sizes.

A source of one size has one program without symbolic extents, and starts as it is stored. One whose extents are open is
lowered with symbolic extents when it is first called, at that size, and with it the kernels are built that compute it
at any size. Program and kernels are stored, so that the next process finds them. A size that comes then is bound by
filling in numbers: the first program whose conditions hold serves. Where none does, the source is lowered for that
size, which gives one more, up to ``MOST_PROGRAMS``; where it cannot be lowered with symbolic extents, each size is
built.

Where families would rather have other kernels for a size than those that are there, these are built when the size is
asked for again, behind the calls.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from opbuild.errors import BuildError, OpbuildError
from opbuild.events import NetworkLoaded, tell
from opbuild.kernel.free import FREE
from opbuild.pipeline.source import FirstSegment
from opbuild.platform.background import is_behind_calls
from opbuild.platform.locks import RLock, lazy_property
from opbuild.platform.records import NamedTuple, replace
from opbuild.report import Clock, OperatorReport
from opbuild.runtime.binding import Binding, Bound, Improvement, Shapes, tells_bindings
from opbuild.runtime.reports import make_report, stored_operators
from opbuild.runtime.timing import TIMER

if TYPE_CHECKING:
    from opbuild.builder.build import Builder
    from opbuild.frontend.models.source import ModelSource
    from opbuild.graph.types import Array
    from opbuild.kernel.networks import NetworkKey
    from opbuild.kernel.opdesc import OpDesc
    from opbuild.pipeline.loaded import LoadedKernels
    from opbuild.pipeline.segmented import Segments
    from opbuild.pipeline.source import Source
    from opbuild.pipeline.stages import Planned
    from opbuild.runtime.devices.device import Modules
    from opbuild.runtime.dynamic import Decision, DynamicNetwork
    from opbuild.runtime.endpoint import Endpoint
    from opbuild.runtime.record import Record
    from opbuild.session import Session

MOST_PROGRAMS = 16
"""Programs of one source with symbolic extents. One whose structure differs from size to size is built for each."""

MOST_STORED = 32
"""Sizes of a source that are stored alone, where it cannot be lowered with symbolic extents: one whose values have a
new shape at each call would otherwise fill the folder."""

SUITING = "it was there"
REPLACING = "it was there, in place of one that suits this size better"
BY_NUMBERS = "it was specialised from the dynamic-shape program"


class Programs:
    """See the module. Any thread may use it.

    Args:
        session: Builds them.
        source: What they are of.
        is_open: Whether the source surely is for several sizes.
        was_built: Whether the same was built for one size before, so that most kernels are there.
        reopens: Whether the same may come again with open extents, as another source.
    """

    def __init__(
        self,
        session: Session,
        source: Source,
        *,
        is_open: bool,
        was_built: bool = False,
        reopens: bool = False,
    ) -> None:
        self._own, self._source = session, source
        self._lock, self._making, self._adding = RLock(), RLock(), RLock()
        self._opened: list[DynamicNetwork] = []
        self._built: dict[str, OperatorReport] = {}  # by symbol, as they were built or stored
        self._reported: tuple[object, tuple[OperatorReport, ...]] = None, ()
        self._tried = self._alone = 0
        self._is_open, self._was_built, self._reopens = is_open, was_built, reopens
        self._sizes, self._is_loaded, self._stored = 0, False, 0
        source.keeps = is_open

    @tells_bindings
    def bind(self, shapes: Shapes) -> Binding:
        """Return the network, ready for a size.

        Raises:
            ModelError, BuildError: If it cannot be built for it.
        """
        bound = self._bound(shapes)
        if bound is None:
            with self._making:  # which may just be making the one
                bound = self._bound(shapes)
                if bound is None:
                    with self._source.reading():
                        bound = self._new(shapes)
                self._sizes += 1
        return bound

    # -- a size that no program serves --------------------------------------------------------------------------------

    def _new(self, shapes: Shapes) -> Binding:
        """Return a network that is stored for a size, or the source lowered for it and built."""
        session, source, clock = self._session, self._source, Clock()
        key = session.key(source, shapes)
        started = session.start(key, clock)
        if isinstance(started, Binding):
            return started
        for programs in (self, *self._of_lower_levels):
            if (bound := programs._stored_for(shapes)) is not None:
                programs._session.tell_of_level(source.declaration.name, session.setup)
                return bound
        if not self._is_for_several:
            return session.make(source, shapes, key, started, clock, reopens=self._reopens)

        def symbolic() -> Binding | None:
            self._tried += 1
            with session.builder() as builder:
                lowered = self._lower(session, builder, shapes, clock, suits=not (self._opened or self._was_built))
                if session.setup.answers_first and (lacking := builder.lacking(lowered.kernels)):
                    first = session.answer(source, shapes, None, started, clock, whole=False)
                    if first is not None:
                        self._tried -= 1  # the program is made behind it
                        return self._to_be_improved(first, len(lacking), shapes)
                made = self._add_program(session, builder, lowered, shapes, clock)
            bound = self._bound(shapes, started, clock, made)
            return bound and bound._replace(is_new=True)

        def fixed(problem: BaseException | None) -> Binding:
            self._alone += 1
            bound = session.make(source, shapes, key if self._alone <= MOST_STORED else None, started, clock)
            if isinstance(problem, (OpbuildError, OSError, MemoryError)):
                self._session.setup.warn(f"{source.declaration.name} is built for each size", problem)
            return bound

        if not self._may_lower:
            return fixed(None)
        if session.setup.answers_first and (first := self._first_size(shapes, key, started, clock)) is not None:
            return first
        from opbuild.pipeline.symbolic_lowering import symbolic_first

        of_present = partial(self._of_present, shapes, started, clock)
        return symbolic_first(of_present if session.setup.why_not_compiled else symbolic, fixed)

    def _of_present(self, shapes: Shapes, why: str, clock: Clock) -> Binding | None:
        """Return a network of a program whose kernels are there, where none can be compiled; None if some are not.

        Kernels of a lower level that suit the size are rather taken than some of any size.
        """
        session = self._session
        self._tried += 1
        with session.builder() as builder:
            lowered = self._lower(session, builder, shapes, clock, suits=False)
            if builder.lacking(lowered.kernels):
                self._tried = MOST_PROGRAMS  # those of another size would lack some, too
                return None
            suiting = lowered.programs[0].descriptors()
            if builder.lacking(suiting) and session.lower_serves(self._source, shapes, clock):
                return None
            self._add_program(session, builder, lowered, shapes, clock)
        return self._bound(shapes, why, clock)

    def _first_size(self, shapes: Shapes, key: NetworkKey | None, why: str, clock: Clock) -> Binding | None:
        """Return a network for the first size alone, with the program for others behind it; None if it has segments."""
        if self._sizes or self._was_built or self._session.setup.why_not_compiled:
            return None
        first = self._session.answer(self._source, shapes, key, why, clock, whole=True)
        return first and first._replace(better=_Better(self, shapes))

    def _to_be_improved(self, first: Binding, lacking: int, shapes: Shapes) -> Binding:
        """Return a first tier with the program that is made behind it; segments are made together."""
        if first.executor.follows is None:
            return first._replace(better=_Better(self, shapes))
        return first._replace(report=replace(first.report, pending=lacking))

    @property
    def _is_for_several(self) -> bool:
        return (self._is_open or self._sizes > 0) and not self._session.setup.debug.active

    @property
    def _may_lower(self) -> bool:
        """Whether one more program with symbolic extents may be made."""
        return self._stored + self._tried < MOST_PROGRAMS

    def _lower(self, session: Session, builder: Builder, shapes: Shapes, clock: Clock, *, suits: bool) -> Planned:
        """Return the needs of a program that is lowered at a size.

        Args:
            session: Lowers it.
            builder: Finds its kernels.
            shapes: The size.
            clock: Takes the time.
            suits: Whether the kernels that suit the size are needed, or only taken where they are there.
        """
        from opbuild.pipeline.stages import planned
        from opbuild.pipeline.symbolic_lowering import kernels_for_all_sizes

        graph, program = session.lower(self._source, shapes, clock)
        own = program.descriptors()
        there = own if suits else {job.desc: job.nodes for job in builder.plan(own) if not job.must_compile}
        with self._lock:
            of_any = kernels_for_all_sizes(
                program, lambda desc: [*self._kernels.alike(desc), *([desc] if desc in there else [])]
            )
            loaded = dict.fromkeys(self._kernels.descriptors, ()) if suits else {}
        return replace(planned([graph], [program]), kernels={**loaded, **there, **of_any})

    def _add_program(
        self, session: Session, builder: Builder, lowered: Planned, shapes: Shapes, clock: Clock
    ) -> Mapping[str, OperatorReport]:
        """Add a program and build its kernels; return the reports of these, by symbol.

        It takes the place of one that is for the same sizes, and then has its kernels, too.
        """
        packer = session.stores.packer(self._source)
        (network,) = session.build(lowered, builder, packer, clock)
        network = network.followed_by(lowered.graphs[0].follows)
        networks, built = session.stores.networks, network.built
        dynamic = self._dynamic(network.record, network.constants.arrays)
        with clock("start"), self._lock:
            self._add(built.symbols, self._modules(built.code))
            if dynamic.bind(shapes, self._kernels) is None:
                raise BuildError("a network does not serve the size at which it was lowered")
        with self._adding:  # a call at a new size and what is made behind another may each have made one
            places = (number for number, each in enumerate(self._opened) if each.is_for_sizes_of(dynamic))
            number = next(places, len(self._opened))
            session.keep(networks.dynamic_key(self._source, number), self._source, network, packer, clock)
            self._opened[number : number + 1] = [dynamic]
        self._source.forget()
        made = {operator.symbol: operator for operator in built.operators.values()}
        self._built |= made
        return made

    @lazy_property
    def _of_lower_levels(self) -> tuple[Programs, ...]:
        """The programs of lower levels that may serve, the highest first; none if code can be made."""
        sessions = self._session.lower_sessions()
        return tuple(Programs(each, self._source, is_open=self._is_open) for each in sessions)

    def _stored_for(self, shapes: Shapes) -> Binding | None:
        """Return a size bound by the numbers of a stored program, None if none is for it."""
        while (bound := self._bound(shapes)) is None and self._load_next():
            pass
        return bound

    def _load_next(self) -> bool:
        """Load the next stored program; return whether there was one."""
        with self._making:
            return not self._is_loaded and self._source.declaration.is_open and self._is_next_loaded()

    def _is_next_loaded(self) -> bool:
        networks, found = self._session.stores.networks, None
        try:
            if self._stored < MOST_PROGRAMS:
                found = networks.load_dynamic(networks.dynamic_key(self._source, self._stored))
            if found is not None:
                self._add(found.symbols, self._modules(found.library))
                self._opened.append(self._dynamic(found.record, found.constants))
                self._stored += 1
                self._built |= {each.symbol: each for each in stored_operators(found.record)}
                tell(NetworkLoaded(found.record.name, len(found.symbols)))
        except Exception as error:  # it may be damaged in a way that no digest shows
            self._session.setup.warn(f"stored programs of {self._source.declaration.name} are not used", error)
            found = None
        self._is_loaded = found is None
        return found is not None

    def _dynamic(self, record: Record, constants: Sequence[Array]) -> DynamicNetwork:
        from opbuild.backend.evaluate import evaluate
        from opbuild.runtime.dynamic import DynamicNetwork  # a network of one size has none

        return DynamicNetwork(record, constants, evaluate, self._session.stores.networks.blocks)

    # -- binding ------------------------------------------------------------------------------------------------------

    def _bound(
        self,
        shapes: Shapes,
        why: str = BY_NUMBERS,
        clock: Clock | None = None,
        made: Mapping[str, OperatorReport] = MappingProxyType({}),
    ) -> Binding | None:
        """Return a size bound by the numbers of a program, None if none is for it.

        Args:
            shapes: The size.
            why: Why it was not started as it is stored, if it was not.
            clock: Takes the time.
            made: The kernels that were built for it just now, by symbol.
        """
        if not self._opened:
            return None
        clock = Clock() if clock is None else clock
        from opbuild.runtime.dynamic import fitting

        with clock("bind"), self._lock:
            found = fitting(self._opened, shapes, self._kernels)
        if found is None:
            return None
        setup, (number, (executor, decision, suits)) = self._session.setup, found
        improves = decision.replaced or not suits
        operators = self._operators(executor.record, decision, made)
        told = None if number < self._stored else why
        report = make_report(executor.record, operators, clock, setup.level_text, told)
        return Binding(executor, report, _Better(self, shapes) if improves else None)

    def _operators(
        self, record: Record, decision: Decision, made: Mapping[str, OperatorReport]
    ) -> tuple[OperatorReport, ...]:
        """Return the reports of the kernels of a binding; the same for all that make the same calls."""
        key, reported = (decision.calls, decision.replaced), self._reported
        if key == reported[0] and not made:
            return reported[1]
        steps, nodes = record.steps, [dict[str, None]() for _ in record.steps.kinds]
        for kind, names in zip(steps.called.tolist(), steps.nodes, strict=True):
            nodes[kind].update(dict.fromkeys(names))
        served: dict[tuple[str, str], dict[str, None]] = {}
        for number, each in enumerate(decision.kernels):
            reason = SUITING if number not in decision.replaced else REPLACING
            served.setdefault((each.kernel.symbol, reason), {}).update(nodes[number])
        operators = [
            (made.get(symbol) or self._there(symbol, why))._replace(nodes=tuple(of))
            for (symbol, why), of in served.items()
        ]
        chosen_names = {name for name, _ in served}
        operators += [each for name, each in made.items() if each.status == "built" and name not in chosen_names]
        if not made:
            self._reported = key, tuple(operators)
        return tuple(operators)

    def _there(self, symbol: str, why: str) -> OperatorReport:
        """Return the report of a kernel that was there; without its entry's name, if that is not known."""
        known = self._built.get(symbol) or OperatorReport(symbol.removesuffix("__kernel0"), "reused", why, ())
        return known._replace(status="reused", reason=why, symbol=symbol)

    @tells_bindings
    def better(self, shapes: Shapes) -> Binding | None:
        """Return a size bound again with kernels that suit it, stored or built just now; None if there are none.

        What goes wrong is told, and stops nothing.
        """
        try:
            self._load_all()
            bound = self._bound(shapes)
            if (bound is not None and bound.better is None) or self._session.setup.why_not_compiled:
                return bound
            clock = Clock()
            with self._source.reading():
                made = self._add_suiting(self._own.behind, shapes, clock)
            return self._bound(shapes, clock=clock, made=made)
        except Exception as error:
            self._session.setup.warn(
                f"better kernels for {self._source.declaration.name} at {list(shapes)} were not built", error
            )
            return None

    def _add_suiting(self, session: Session, shapes: Shapes, clock: Clock) -> Mapping[str, OperatorReport]:
        """Add a program with kernels that suit a size; return the reports of these, by symbol."""
        with session.builder() as builder:
            lowered = self._lower(session, builder, shapes, clock, suits=True)
            return self._add_program(session, builder, lowered, shapes, clock)

    # -- inside -------------------------------------------------------------------------------------------------------

    @property
    def _session(self) -> Session:
        """The session for who waits, or for builds that nobody waits for."""
        return self._own.behind if is_behind_calls() else self._own

    def _load_all(self) -> None:
        """Load the stored programs that no size needed so far."""
        while self._load_next():  # a new size waits for one of them, not for all
            pass

    @lazy_property
    def _kernels(self) -> LoadedKernels:
        from opbuild.pipeline.loaded import LoadedKernels
        from opbuild.target.machine import Machine

        return LoadedKernels(Machine.of(self._session.setup.level))

    def _modules(self, code: bytes) -> Modules:
        from opbuild.runtime.executor import load_code

        return load_code(code, self._session.setup.config.num_threads)

    def _add(self, symbols: Mapping[OpDesc, str], modules: Modules) -> None:
        with self._lock:
            self._kernels.add(symbols, modules)


class _Better(NamedTuple):
    """A size of which the kernels do not suit it."""

    programs: Programs | ModelPrograms
    shapes: Shapes

    def bind(self) -> Bound | None:
        """Return it bound to kernels that do, or None."""
        return self.programs.better(self.shapes)


class ModelPrograms:
    """The programs of a model's segments; where inputs may have any number of dimensions, for each that was met.

    Args:
        session: Builds them.
        source: The model.
        inputs: Its inputs as declared.
        any_shape: Inputs of which every extent may differ.
        is_open: Whether the model surely is for several sizes.
    """

    def __init__(
        self,
        session: Session,
        source: ModelSource,
        inputs: Sequence[Endpoint],
        any_shape: Collection[str],
        *,
        is_open: bool,
    ) -> None:
        self._session, self._source, self._inputs = session, source, inputs
        self._any_shape, self._is_open = any_shape, is_open
        self._of_ranks: dict[tuple[int, ...], _OfRank] = {}

    def bind(self, shapes: Shapes) -> Bound:
        """Return the network, ready for a size; as ``Programs.bind``."""
        bound, setup = self._bound_by(self._of_rank(shapes), shapes), self._session.setup
        if setup.config.record_shapes:
            from opbuild.frontend.models.recorded import recorder  # few record

            recorder(setup.config.record_shapes).note(self._source, shapes, setup.warn)
        return bound

    def better(self, shapes: Shapes) -> Bound | None:
        """Return a network in segments with kernels of its own, made behind calls; None if it keeps those that it has.

        All segments are bound anew, since what takes the place of one may give other values to those behind it. Calls
        that met some are repeated, so that the next ones find all. What goes wrong is told, and stops nothing.
        """
        old = self._of_rank(shapes)
        try:
            if not old.segments.is_first_tier:  # another size had them bound anew
                return self._bound_by(old, shapes)
            new = self._new_of_rank(shapes)
            new.segments.built = old.segments.built
            found = {shapes: self._bound_by(new, shapes)}
            TIMER.set(None)  # whoever began this thread may time his own calls
            for given, inputs in old.segments.calls_to_repeat():
                if given not in found:
                    found[given] = self._bound_by(new, given)
                    new.segments.built += found[given].built
                found[given].executor.run(inputs)
            self._of_ranks[tuple(map(len, shapes))] = new
            return found[shapes]
        except Exception as error:
            self._session.setup.warn(f"{self._source.declaration.name} keeps its first kernels", error)
            return None

    def _bound_by(self, own: _OfRank, shapes: Shapes) -> Bound:
        try:
            bound = own.bind(shapes, _Better(self, shapes))
            self._source.remember()  # also what was stored before: that build may have been killed
        finally:
            self._source.release()
        return bound

    def _of_rank(self, shapes: Shapes) -> _OfRank:
        ranks = tuple(map(len, shapes))
        return self._of_ranks.get(ranks) or self._of_ranks.setdefault(ranks, self._new_of_rank(shapes))

    def _new_of_rank(self, shapes: Shapes) -> _OfRank:
        declared = [
            (FREE,) * len(shape) if each.shape is None or each.name in self._any_shape else each.shape
            for each, shape in zip(self._inputs, shapes, strict=True)
        ]
        first = FirstSegment(self._source, declared)
        return _OfRank(self._session, self._source, first, Programs(self._session, first, is_open=self._is_open))


class _OfRank:
    """The first segment of a model at some numbers of dimensions, its programs, and the segments behind it."""

    def __init__(self, session: Session, source: ModelSource, first: FirstSegment, programs: Programs) -> None:
        self._session, self._source = session, source
        self._first, self._programs, self._has_segments = first, programs, False

    @lazy_property
    def segments(self) -> Segments:
        """Those behind the first one."""
        from opbuild.pipeline.segmented import Segments  # most networks are whole

        return Segments(self._source, self._first, _SegmentPrograms(self._session))

    def bind(self, shapes: Shapes, better: Improvement) -> Bound:
        """Return the network, ready for a size; ``better`` makes it anew if kernels of others compute a segment."""
        again = self.segments.bind_again(shapes, better) if self._has_segments else None
        if again is not None:
            return again
        first = self._programs.bind(self._first.tensors(shapes))
        if first.executor.follows is None:
            return first
        self._has_segments = True
        return self.segments.bind(first, shapes, better)


class _SegmentPrograms(NamedTuple):
    """Makes the programs of segments behind graph breaks; it knows nobody who asks."""

    session: Session

    def programs(self, source: Source) -> Programs:
        """Return the programs of a segment, of which there is no other."""
        return Programs(self.session, source, is_open=source.declaration.is_open)
