"""Session: the parts of one build, made once, and the path on which its networks become ready.

    source -> graph -> program -> kernels | constants, memory -> network -> stored, loaded

Each step is a call with a value, in one direction. What overlaps (imports and the compile server, packing, compiling,
linking, storing behind the return) does so by futures inside these steps. ``compile``, graphs, torch's subgraphs,
segments, offline models, previews, warming and tuning are callers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from itertools import chain
from typing import TYPE_CHECKING

from opbuild.errors import BuildError, OpbuildError
from opbuild.events import LINKING, PACKING, PREPARING, WRITING, LowerServes, only_warnings, working
from opbuild.frontend.models.source import Model, ModelSource, is_not_cached, open_model
from opbuild.graph.types import Graph, TensorType
from opbuild.pipeline.stores import Stores, deciding_builder, make_builder
from opbuild.platform.background import Background, begin
from opbuild.platform.locks import lazy_property
from opbuild.platform.records import NamedTuple, replace
from opbuild.report import Clock
from opbuild.runtime.binding import Binding, Shapes, tells_bindings
from opbuild.runtime.reports import make_report

if TYPE_CHECKING:
    from opbuild.builder.build import Builder
    from opbuild.builder.job import OperatorJob
    from opbuild.builder.work import UnderWay
    from opbuild.graph.breaks import GraphBreak
    from opbuild.kernel.networks import NetworkKey
    from opbuild.kernel.opdesc import OpDesc
    from opbuild.pipeline.first_tier import FirstTier
    from opbuild.pipeline.setup import Setup
    from opbuild.pipeline.source import Source
    from opbuild.pipeline.stages import Assembled, Built, PackedProgram, Planned
    from opbuild.program import Program
    from opbuild.runtime.weights import Packer


class Served(NamedTuple):
    """The needs of a network, at the level that serves it.

    Attributes:
        session: Of that level.
        needed: Programs and kernels.
        builder: Finds the kernels, or builds them.
    """

    session: Session
    needed: Planned
    builder: Builder

    def found(self) -> tuple[OperatorJob, ...] | None:
        """Return the kernels; None if one must be compiled, or it is not known which compiler made them."""
        try:
            return self.builder.found(self.needed.kernels)
        except BuildError:  # where nothing else serves either, the build says it
            return None


class NetworkBuild(NamedTuple):
    """A network that is lowered, to be built: at once, or behind the calls that its first tier answers meanwhile.

    Attributes:
        session: Builds it.
        source: What it is of.
        needed: Its programs and kernels.
        key: Its key among stored networks; None: it is not stored.
        follows: The graph break behind it, if it is a segment.
    """

    session: Session
    source: Source
    needed: Planned
    key: NetworkKey | None
    follows: GraphBreak | None

    def finish(self, builder: Builder, clock: Clock, why: str, first: FirstTier | None = None) -> Binding:
        """Return it, built and stored, or its first tier, which is not stored; ``why`` it was not started.

        Raises:
            BuildError: If an operator cannot be built, or the network not linked.
        """
        session, needed = self.session, self.needed if first is None else first.needed
        key = self.key if first is None else None
        known = session.stores.networks.start_made(key, needed.programs[0].answers, clock)
        if known is not None:
            return known
        packer = session.stores.packer(None if key is None else self.source)
        (network,) = session.build(needed, builder, packer, clock)
        network = network.followed_by(self.follows)
        with clock("start"):
            executor = session.stores.networks.run(network.record, network.built.code, network.constants.arrays)
        session.keep(key, self.source, network, packer, clock)
        level = session.setup.level_text_with(network.built.borrowed)
        report = make_report(network.record, network.operators, clock, level, why)
        if first is None or not first.lacking:
            return Binding(executor, report, is_new=True)
        better = self._replace(session=session.behind) if self.follows is None else None  # segments are made together
        return Binding(executor, replace(report, pending=len(first.lacking)), better, is_new=True)

    @tells_bindings
    def bind(self) -> Binding | None:
        """Return it, built behind calls; what goes wrong is told, and stops nothing."""
        try:
            with self.session.builder() as builder:
                return self.finish(builder, Clock(), "it was built behind its first calls")
        except Exception as error:
            self.session.setup.warn(f"{self.needed.name} keeps its first kernels", error)
            return None


class Session:
    """See the module. Making one starts nothing.

    Args:
        setup: What the build was asked for.
        stores: Its stores, if there are any yet.
        is_urgent: Whether anybody waits for what it builds.

    Attributes:
        setup: The same.
        stores: Where things are found and kept.
        is_urgent: The same.
    """

    def __init__(self, setup: Setup, stores: Stores | None = None, *, is_urgent: bool = True) -> None:
        self.setup, self.is_urgent = setup, is_urgent
        self.stores = Stores(setup) if stores is None else stores
        self._early: Background[Builder] | None = None

    @lazy_property
    def behind(self) -> Session:
        """The session for builds that nobody waits for: it shares stores and memory, and tells warnings alone.

        The executor that compiles for this one may be gone by then. What it makes has kernels of its own at once.
        """
        observer, config = only_warnings(self.setup.observer), self.setup.config.waiting()
        setup = replace(self.setup, observer=observer, executor=None, config=config)
        return Session(setup, Stores(setup, self.stores), is_urgent=False)

    def lower_sessions(self) -> Iterator[Session]:
        """Yield the sessions of lower levels whose code may serve, the highest first; none if code can be made."""
        for stores in self.stores.lower:
            yield Session(stores.setup, stores, is_urgent=self.is_urgent)

    # -- the path -----------------------------------------------------------------------------------------------------

    @tells_bindings
    def bind(self, source: Source, shapes: Shapes, *, reopens: bool = False) -> Binding:
        """Return a network ready for one input signature: started as it is stored, or built and stored.

        Args:
            source: Gives its graph.
            shapes: The signature.
            reopens: Whether the same may come again with open extents: the kernels without limits are built, too,
                behind the return.

        Raises:
            ModelError: If the model is not valid for these shapes.
            BuildError: If an operator cannot be built, or the network not linked.
        """
        clock, key = Clock(), self.key(source, shapes)
        stored = self.start(key, clock)
        if isinstance(stored, Binding):
            return stored
        return self.make(source, shapes, key, stored, clock, reopens=reopens)

    def make(
        self, source: Source, shapes: Shapes, key: NetworkKey | None, why: str, clock: Clock, *, reopens: bool = False
    ) -> Binding:
        """Return the network of one input signature, built and stored under a key; ``why`` it was not started.

        Raises:
            ModelError, BuildError: As ``bind``.
        """
        with self.builder() as own:
            graph = source.graph(shapes, clock)
            needed = self.plan([graph], clock)
            session, needed, builder = self.served(needed, own, clock)
            build = NetworkBuild(session, source, needed, key, graph.follows)
            first = session.first_tier(build, builder, clock)
            binding = build.finish(builder, clock, why, first)
        if reopens and not session.setup.why_not_compiled:
            begin(partial(session.behind.build_without_limits, needed.kernels, needed.name), "opbuild-further")
        return binding

    def answer(
        self, source: Source, shapes: Shapes, key: NetworkKey | None, why: str, clock: Clock, *, whole: bool
    ) -> Binding | None:
        """Return a network for one size, for which a program for others is made behind it.

        It has kernels that are there, unless its own are compiled sooner; with these it is stored under its key. None
        if it is to be ``whole`` and runs in segments, or else if its own kernels are compiled sooner.

        Raises:
            ModelError, BuildError: As ``bind``.
        """
        with self.builder() as builder:
            graph = source.graph(shapes, clock)
            if whole and graph.follows is not None:
                return None
            needed = self.plan([graph], clock)
            build = NetworkBuild(self, source, needed, key, graph.follows)
            first = self.first_tier(build, builder, clock)
            if first is None and not whole and builder.lacking(needed.kernels):
                return None
            return build.finish(builder, clock, why, first)

    def first_tier(self, build: NetworkBuild, builder: Builder, clock: Clock) -> FirstTier | None:
        """Return the first tier of a network, if it is to answer by that until its own kernels are there."""
        if not self.setup.answers_first or not (lacking := builder.lacking(build.needed.kernels)):
            return None
        from opbuild.pipeline.first_tier import first_tier  # the pack has all kernels of most networks

        return first_tier(build.needed, lacking, self.setup, builder, clock)

    def key(self, source: Source, shapes: Shapes) -> NetworkKey | None:
        """Return the key of a network among stored ones; None if it cannot be stored."""
        if not self.setup.stores_networks or source.digest is None:
            return None
        inputs = zip(source.declaration.inputs, shapes, strict=True)
        types = {name: TensorType(dtype, shape) for (name, dtype, _), shape in inputs}
        return self.stores.networks.key(source.declaration.name, source.digest, types)

    def start(self, key: NetworkKey | None, clock: Clock) -> Binding | str:
        """Return a network started as it is stored, at its own level or one that may serve, or why it cannot be."""
        own = self.stores.networks.start(key, clock)
        if isinstance(own, Binding):
            return own
        for lower in (each for each in self.lower_sessions() if each.setup.level != self.setup.level):
            started = lower.stores.networks.start(key, clock)
            if isinstance(started, Binding):
                lower.tell_of_level(started.report.network, self.setup)
                return started
        return own

    def plan(self, graphs: Sequence[Graph], clock: Clock) -> Planned:
        """Return the programs of graphs, one for each input signature of a network, and the kernels that they need."""
        from opbuild.pipeline.steps import optimize_graph

        working(self.setup.observer, PREPARING)
        with clock("optimize"):
            optimized = [optimize_graph(graph, float32=self.setup.config.forces_float32) for graph in graphs]
        return self._lowered(optimized, clock)

    def lower(self, source: Source, shapes: Shapes, clock: Clock) -> tuple[Graph, Program]:
        """Return a source's graph and its program, with symbolic extents where its inputs are declared with open ones.

        Args:
            source: The source.
            shapes: The size at which it is lowered.
            clock: Takes the time.

        Raises:
            Exception: Any, from what does not know symbolic extents.
        """
        from opbuild.pipeline.steps import lower_tuned, optimize_graph
        from opbuild.pipeline.symbolic_lowering import symbolic_shapes

        opened = symbolic_shapes(source.declaration.shapes, shapes)
        graph = source.graph(opened.shapes, clock)
        working(self.setup.observer, PREPARING)
        with clock("optimize"):
            optimized = optimize_graph(graph, float32=self.setup.config.forces_float32).with_(follows=graph.follows)
        with clock("lower"):
            return optimized, lower_tuned(optimized, self.setup, opened)

    def served(self, needed: Planned, builder: Builder, clock: Clock) -> Served:
        """Return the needs at the own level; if nothing can be compiled, at the highest level that has them all.

        A level has it if single operators of lower levels serve beside its own, too; one without any of its own has it
        only if no lower level has.
        """
        own = Served(self, needed, builder)
        if not self.stores.lower or self._is_all_packed:
            return own
        borrowing: list[Served] = []
        for served in chain([own], self._lower_plans(needed.graphs, clock)):
            jobs = served.found()
            if jobs and all(job.is_borrowed for job in jobs):
                borrowing.append(served)
            elif jobs is not None:
                return self._told(served)
        return self._told(borrowing[0]) if borrowing else own

    def lower_serves(self, source: Source, shapes: Shapes, clock: Clock) -> bool:
        """Return whether a lower level has all kernels of a network for one size."""
        if not self.stores.lower or self._is_all_packed:
            return False
        graphs = self.plan([source.graph(shapes, clock)], clock).graphs
        return any(served.found() for served in self._lower_plans(graphs, clock))

    def build(self, needed: Planned, builder: Builder, packer: Packer, clock: Clock) -> list[Assembled]:
        """Build the needs of programs and return the networks, one for each.

        Weights are packed while kernels are looked up, compiled or linked.
        """
        from opbuild.pipeline.steps import assemble

        packed, built = self.build_kernels(needed.kernels, needed.programs, builder, packer, clock)
        with clock("start"):
            return [assemble(each, built) for each in packed]

    def build_kernels(
        self,
        kernels: Mapping[OpDesc, tuple[str, ...]],
        programs: Sequence[Program],
        builder: Builder,
        packer: Packer,
        clock: Clock,
    ) -> tuple[list[PackedProgram], Built]:
        """Return programs with their constants packed and memory planned, and kernels, built and linked."""
        from opbuild.graph.constants import remembered_digests
        from opbuild.pipeline.steps import pack

        beginning = Background(lambda: self._begin(builder, kernels, programs[0].name), "opbuild-decide")
        beginning.start()
        watch = working(self.setup.observer, PACKING)
        try:
            with remembered_digests():
                packed = [pack(program, packer, clock, watch) for program in programs]
        except BaseException:
            if not beginning.is_left_out():
                with contextlib.suppress(Exception):  # that of the packing is raised
                    beginning.result()
            raise
        with clock("decide"):
            work, linking = beginning.result()
        with clock("build"):
            self.stores.count(work.result())
        working(self.setup.observer, LINKING)
        with clock("link"):
            return packed, linking.result()

    def build_without_limits(self, kernels: Iterable[OpDesc], name: str) -> None:
        """Build the kernels that compute at any size in place of others; failures are left out."""
        from opbuild.families.catalogue import find

        wanted = {find(desc.family).without_limits(desc): () for desc in kernels}
        with contextlib.suppress(OpbuildError), self.builder() as builder:
            self.stores.count(builder.build(wanted, name))

    def keep(self, key: NetworkKey | None, source: Source, network: Assembled, packer: Packer, clock: Clock) -> None:
        """Store a network that was built just now, behind the return.

        Raises:
            InvalidModelError: If the model is another one now: nobody gets numbers of two versions of it.
        """
        edited = source.edited
        working(self.setup.observer, WRITING)
        with clock("store"):
            kept = not edited and self.stores.networks.keep(key, network, packer, self.stores.age)
            if not kept and network.built.compiled:
                self.stores.age()

    def tell_of_level(self, network: str, own: Setup) -> None:
        """Tell who asked for a level that a lower one serves."""
        if self.setup.level != own.level:  # else it is the same level's without what tuning found
            own.observer(LowerServes(network, self.setup.level_text))

    # -- models and builders ------------------------------------------------------------------------------------------

    def open(self, model: Model) -> ModelSource:
        """Return a model as it is known where it was built before, at a lower level too, so that it need not be read.

        The caller releases it: see ``open_model``.

        Raises:
            InvalidModelError: If it cannot be read.
        """
        source = open_model(model, self.stores.models, releases=True)
        if source.was_built:
            return source
        meta = self.setup.config.network_meta
        apart = (each for each in self.stores.lower if each.setup.config.network_meta != meta)
        others = (open_model(model, lower.models) for lower in apart)
        return next((other for other in others if other.was_built), source)

    @contextmanager
    def preparing(self, model: Model | None) -> Iterator[None]:
        """Prepare for building until the block is left, if a model surely was never built; None: there is none."""
        if model is not None and not self.stores.has_remote and is_not_cached(model, self.stores.models):
            self.prepare()
        try:
            yield
        finally:
            early, self._early = self._early, None
            if early is not None and not early.is_left_out():
                with contextlib.suppress(Exception):  # nobody asked for it
                    early.result().close()

    def prepare(self) -> None:
        """Begin the slow parts that need no model, unless that was done: the compile server, and loading modules.

        It is done while a model is read and its digest is taken, which let other threads run.
        """
        if self._early is None and not self.stores.has_remote:
            if self.setup.config.uses_cache:
                self.stores.policy  # noqa: B018  two threads that need it at once would both tell what is wrong with it
            self._early = Background(self._prepared, "opbuild-import")
            self._early.start()

    def builder(self) -> Builder:
        """Return the builder that was prepared, once; else a new one."""
        early, self._early = self._early, None
        return make_builder(self.setup, self.stores, is_urgent=self.is_urgent) if early is None else early.result()

    # -- inside -------------------------------------------------------------------------------------------------------

    def _prepared(self) -> Builder:
        builder = make_builder(self.setup, self.stores)
        # With a pack that would be in vain for most networks, and take a core from reading the model.
        if self.stores.packs_compiler() is None:
            builder.warm_up()
        with contextlib.suppress(Exception):  # raised again, and reported, where it is needed
            import_module("opbuild.frontend.onnx_model")
        return builder

    def _lowered(self, optimized: Sequence[Graph], clock: Clock) -> Planned:
        from opbuild.pipeline.stages import planned
        from opbuild.pipeline.steps import lower_tuned

        with clock("lower"):
            return planned(optimized, [lower_tuned(graph, self.setup) for graph in optimized])

    def _lower_plans(self, graphs: Sequence[Graph], clock: Clock) -> Iterator[Served]:
        for lower in self.lower_sessions():
            try:
                builder = deciding_builder(lower.setup, lower.stores)
            except BuildError:  # it is not known which compiler made what is there
                continue
            yield Served(lower, lower._lowered(graphs, clock), builder)

    @property
    def _is_all_packed(self) -> bool:
        """Whether lower levels have nothing but the release's packs: those of all levels are of the same networks."""
        packs = self.stores.packs
        return packs is not None and not packs.has_of_models and not any(each.has_own for each in self.stores.lower)

    def _told(self, served: Served) -> Served:
        if served.session is not self:
            served.session.tell_of_level(served.needed.name, self.setup)
        return served

    def _begin(
        self, builder: Builder, kernels: Mapping[OpDesc, tuple[str, ...]], name: str
    ) -> tuple[UnderWay, Background[Built]]:
        """Begin to build kernels, and to link them where all are there."""
        from opbuild.pipeline.steps import link_kernels

        work = builder.start(kernels, name)
        linking = Background(lambda: link_kernels(work.result(), self.setup), "opbuild-link")
        if not work.jobs:
            work.result()
            linking.start()
        return work, linking
