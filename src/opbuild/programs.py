"""Programs: what one source was lowered to, and how it is bound to sizes.

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

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING

from opbuild.backend.evaluate import evaluate
from opbuild.errors import OpbuildError
from opbuild.events import Warned
from opbuild.kernel.free import FREE
from opbuild.pipeline.segments import SegmentBinder
from opbuild.platform.background import without_frames
from opbuild.platform.lazily import lazily
from opbuild.platform.locks import Lock, RLock
from opbuild.platform.records import replace
from opbuild.report import Clock, OperatorReport
from opbuild.runtime.binding import Binding, Bound, Shapes

if TYPE_CHECKING:
    from opbuild.graph.types import Array
    from opbuild.kernel.opdesc import OpDesc
    from opbuild.models.source import ModelSource
    from opbuild.pipeline.loaded import Decision, LoadedKernels
    from opbuild.pipeline.open_network import OpenNetwork
    from opbuild.pipeline.source import Source
    from opbuild.runtime.endpoint import Endpoint
    from opbuild.runtime.library import Library
    from opbuild.runtime.sized import Layout
    from opbuild.runtime.template import Template
    from opbuild.runtime.weights import Packer
    from opbuild.session import Session

MOST_PROGRAMS = 16
"""Programs of one source with symbolic extents. One whose structure differs from size to size is built for each."""

MOST_STORED = 32
"""Sizes of a source that are stored alone, where it cannot be lowered with symbolic extents: one whose values have a
new shape at each call would otherwise fill the folder."""

BY_NUMBERS = "it was bound by numbers to what is lowered for any size"


class Programs:
    """See the module. Any thread may use it.

    Args:
        session: Builds them.
        source: What they are of.
        declared: The shapes of its inputs, -1 where they are open.
        is_open: Whether the source surely is for several sizes.
        was_built: Whether the same was built for one size before, so that most kernels are there.
        reopens: Whether the same may come again with open extents, as another source.
    """

    def __init__(
        self,
        session: Session,
        source: Source,
        declared: Sequence[Sequence[int]],
        *,
        is_open: bool,
        was_built: bool = False,
        reopens: bool = False,
    ) -> None:
        self._session, self._source, self._declared = session, source, declared
        self._lock, self._making, self._process = RLock(), Lock(), os.getpid()
        self._opened: list[Layout] = []
        self._failed = self._alone = 0
        self._is_open, self._was_built, self._reopens = is_open, was_built, reopens
        self._sizes, self._is_loaded = 0, False
        source.keeps = is_open

    def bind(self, shapes: Shapes) -> Binding:
        """Return the network, ready for a size.

        Raises:
            ModelError, BuildError: If it cannot be built for it.
        """
        if self._process != os.getpid():  # threads that may hold locks stayed in the parent
            self._lock, self._making, self._process = RLock(), Lock(), os.getpid()
        bound = self._bound(shapes)
        if bound is None:
            with self._making:  # which may just be making the one
                bound = self._bound(shapes) or self._new(shapes)
                self._sizes += 1
        return bound

    # -- a size that no program serves --------------------------------------------------------------------------------

    def _new(self, shapes: Shapes) -> Binding:
        """Return a network that is stored for a size, or the source lowered for it and built."""
        session, source, clock = self._session, self._source, Clock()
        key = session.key(source, shapes)
        if not self._is_for_several:
            return session.bind(source, shapes, reopens=self._reopens)
        started = session.start(key, clock)
        if isinstance(started, Binding):
            return started
        if self._load() and (bound := self._bound(shapes, is_first=True)) is not None:
            return bound
        problem = None
        if self._may_lower:
            try:
                made = self._lower(session, shapes, clock, suits=not (self._opened or self._was_built))
                bound = self._bound(shapes, started, clock, made)
                if bound is not None:
                    return bound._replace(is_new=True)
            except Exception as error:  # whatever does not know symbolic extents
                problem = without_frames(error)
            self._failed += 1
        self._alone += 1
        bound = session.make(source, shapes, key if self._alone <= MOST_STORED else None, started, clock)
        if isinstance(problem, (OpbuildError, OSError, MemoryError)):
            self._warn(f"{source.declaration.name} is built for each size", problem)
        return bound

    @property
    def _is_for_several(self) -> bool:
        return (self._is_open or self._sizes > 0) and not self._session.setup.debug.active

    @property
    def _may_lower(self) -> bool:
        """Whether one more program with symbolic extents may be made."""
        return not self._session.setup.why_not_compiled and len(self._opened) + self._failed < MOST_PROGRAMS

    def _lower(self, session: Session, shapes: Shapes, clock: Clock, *, suits: bool) -> Mapping[str, OperatorReport]:
        """Add a program, lowered at a size, and its kernels; return what became of these, by symbol.

        Args:
            session: Builds it.
            shapes: The size.
            clock: Takes the time.
            suits: Whether the kernels that suit the size are built, and not only taken where they are there.
        """
        from opbuild.pipeline.open_network import OpenNetwork, lower_open

        program, follows = lower_open(self._source, self._declared, shapes, session.setup, clock)
        with self._lock:
            needed = program.kernels(lambda desc: [*self._kernels.alike(desc), *([desc] if suits else [])])
        fixed = program.at_hand()
        with session.builder() as builder:
            own = fixed.descriptors()
            there = own if suits else {job.desc: job.nodes for job in builder.plan(own) if not job.must_compile}
            packer = session.stores.packer()
            (packed,), built = session.build_kernels({**there, **needed}, [fixed], builder, packer, clock)
        with clock("start"), self._lock:
            self._add(built.symbols, self._library(built.library))
            network = OpenNetwork(program, packed.constants, built, self._kernels, shapes, follows)
        edited = self._source.edited  # which raises, before what is packed serves anybody
        self._opened.append(network.layout)
        if built.certain and not edited:
            self._keep(session, len(self._opened) - 1, network, packer)
        self._source.forget()
        return {built.symbols[desc]: operator for desc, operator in built.operators.items()}

    def _keep(self, session: Session, number: int, network: OpenNetwork, packer: Packer) -> None:
        """Store a program; tell what goes wrong, which stops nothing."""
        images = session.stores.images
        try:
            images.keep_open(images.open_key(self._source, number), network, packer, session.stores.age)
        except Exception as error:
            self._warn(f"what other sizes of {self._source.declaration.name} need is not stored", error)

    def _load(self) -> bool:
        """Load what is stored, once; return whether there is anything new."""
        if self._is_loaded:
            return False
        self._is_loaded = True
        images = self._session.stores.images
        try:
            for number in range(MOST_PROGRAMS):
                found = images.load_open(images.open_key(self._source, number))
                if found is None:
                    break
                from opbuild.runtime.sized import Layout  # a network of one size has none

                self._add(found.symbols, self._library(found.library))
                self._opened.append(Layout(found.template, found.constants))
        except Exception as error:  # it may be damaged in a way that no digest shows
            self._warn(f"stored programs of {self._source.declaration.name} are not used", error)
        return bool(self._opened)

    # -- binding ------------------------------------------------------------------------------------------------------

    def _bound(
        self,
        shapes: Shapes,
        why: str = BY_NUMBERS,
        clock: Clock | None = None,
        made: Mapping[str, OperatorReport] = MappingProxyType({}),
        *,
        is_first: bool = False,
    ) -> Binding | None:
        """Return a size bound by the numbers of a program, None if none is for it.

        Args:
            shapes: The size.
            why: Why it was not started as it is stored.
            clock: Takes the time.
            made: The kernels that were built for it just now, by symbol.
            is_first: Whether the program was loaded for it: then it was.
        """
        if not self._opened:
            return None
        from opbuild.pipeline.open_network import open_report
        from opbuild.runtime.sized import SizedExecutor

        clock = Clock() if clock is None else clock
        with clock("bind"):
            fitting = self._fitting(shapes)
        for layout, numbers, decision in fitting:
            with clock("start"):
                chosen = [each for each in decision.chosen if each is not None]
                try:
                    executor = SizedExecutor(layout, numbers, chosen, evaluate, self._session.stores.images.blocks)
                except ValueError:
                    continue
            setup = self._session.setup
            report = open_report(layout.template, decision, executor.arena_size, clock, made, setup.level_text)
            report = replace(report, image=is_first, image_reason="" if is_first else why)
            improves = (decision.replaced or not decision.suits) and not setup.why_not_compiled
            return Binding(executor, report, (lambda: self._better(shapes)) if improves else None)
        return None

    def _fitting(self, shapes: Shapes) -> list[tuple[Layout, Array, Decision]]:
        """Return the programs that may be bound, with their numbers and kernels; one that suits comes first."""
        others: list[tuple[Layout, Array, Decision]] = []
        for layout in tuple(self._opened):
            numbers = layout.template.numbers(shapes)
            decision = None if numbers is None else self._decided(layout.template, numbers)
            if numbers is None or decision is None or not decision.complete:
                continue
            if decision.suits:
                return [(layout, numbers, decision), *others]
            others.append((layout, numbers, decision))
        return others

    def _decided(self, template: Template, numbers: Array) -> Decision | None:
        """Choose the kernels of a program in a size; None if it asks what no family answers, as a stored one may."""
        with self._lock, suppress(ValueError, TypeError, LookupError, ArithmeticError, AttributeError):
            return self._kernels.decide(template, numbers.tolist())
        return None

    def _better(self, shapes: Shapes) -> Binding | None:
        """Return a size bound again with kernels that suit it, built behind the calls; None if that is not possible.

        What goes wrong is told, and stops nothing.
        """
        try:
            self._lower(self._quiet, shapes, Clock(), suits=True)
            return self._bound(shapes)
        except Exception as error:
            self._warn(f"better kernels for {self._source.declaration.name} at {list(shapes)} were not built", error)
            return None

    # -- inside -------------------------------------------------------------------------------------------------------

    @lazily
    def _quiet(self) -> Session:
        return self._session.in_background()

    @lazily
    def _kernels(self) -> LoadedKernels:
        from opbuild.kernel.machine import Machine
        from opbuild.pipeline.loaded import LoadedKernels

        return LoadedKernels(Machine.of(self._session.setup.level))

    def _library(self, data: bytes) -> Library | None:
        from opbuild.runtime.library import Library

        return Library(data, self._session.setup.config.num_threads) if data else None

    def _add(self, symbols: Mapping[OpDesc, str], library: Library | None) -> None:
        if library is not None:
            with self._lock:
                self._kernels.add(symbols, library)

    def _warn(self, message: str, error: BaseException) -> None:
        told = str(error) if isinstance(error, OpbuildError) else f"{type(error).__name__}: {error}"
        self._session.setup.observer(Warned(f"{message}: {told}"))


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
        self._of_ranks: dict[tuple[int, ...], tuple[SegmentBinder, Programs]] = {}

    def bind(self, shapes: Shapes) -> Bound:
        """Return the network, ready for a size; as ``Programs.bind``."""
        try:
            segments, programs = self._segments(shapes)
            first = programs.bind(segments.first.tensors(shapes))
            self._source.remember()  # also what was stored before: that build may have been killed
        finally:
            self._source.release()
        return segments.bind(first, shapes)

    def programs(self, source: Source) -> Programs:
        """Return the programs of a segment behind a graph break."""
        declared = [each.shape or () for each in source.declaration.inputs]
        return Programs(self._session, source, declared, is_open=any(FREE in shape for shape in declared))

    def _segments(self, shapes: Shapes) -> tuple[SegmentBinder, Programs]:
        ranks = tuple(map(len, shapes))
        if ranks not in self._of_ranks:
            declared = [
                (FREE,) * len(shape) if each.shape is None or each.name in self._any_shape else each.shape
                for each, shape in zip(self._inputs, shapes, strict=True)
            ]
            segments = SegmentBinder(self._source, declared, self)
            tensors = [each.shape or () for each in segments.first.declaration.inputs]
            self._of_ranks[ranks] = segments, Programs(self._session, segments.first, tensors, is_open=self._is_open)
        return self._of_ranks[ranks]
