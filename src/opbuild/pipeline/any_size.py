"""AnySize: binds a model with open extents to sizes that it was not built for, without waiting for a compile.

The first size is built as every network is. Behind that call the model is lowered once more, with open extents, to a
template, and the kernels without limits that compute it at any size are built; both are stored, so that the next
process finds them. A size that comes then is bound by filling in numbers. Where its families would rather have other
kernels than those that are there, the network is built for that size as the first one was, when it is called again.

Where the template is not for a size, that size gives a further one, up to ``MOST_TEMPLATES``; where nothing can be
lowered with open extents, each size is built.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from opbuild.backend.evaluate import evaluate
from opbuild.errors import OpbuildError
from opbuild.events import Warned
from opbuild.kernel.machine import Machine
from opbuild.kernel.opdesc import FREE, OpDesc
from opbuild.pipeline.images import Declares
from opbuild.pipeline.stores import Stores, make_builder
from opbuild.platform.background import Background
from opbuild.report import Clock, OperatorReport, Report
from opbuild.runtime.library import Library
from opbuild.runtime.network import Binding, Bound, Shapes
from opbuild.runtime.template import OpenKernel, Template

if TYPE_CHECKING:
    from opbuild.builder.build import Builder
    from opbuild.graph.types import Graph
    from opbuild.pipeline.loaded import Decision, LoadedKernels
    from opbuild.pipeline.stages import Built
    from opbuild.program import Program
    from opbuild.runtime.record import Record
    from opbuild.runtime.sized import Layout
    from opbuild.runtime.weights import Constants

MOST_TEMPLATES = 16
"""Templates of one network. A model whose structure differs from size to size is built for each."""


NEARBY = (3, 11, 37)
"""Extents for which templates are made too: programs differ below a vector of 16 elements, and below half of one."""

SUITING = "it was there"
REPLACING = "it was there, in place of one that suits this size better"


@dataclass(frozen=True)
class _Opened:
    """A template that can be bound."""

    template: Template
    layout: Layout


class Openable(Declares, Protocol):
    """A model, or a part of one, that can be lowered with open extents."""

    keeps: bool

    @property
    def edited(self) -> bool:
        """Whether it is no longer what was read."""

    def graph(self, shapes: Shapes, clock: Clock) -> Graph:
        """Return its graph for the shapes of its inputs."""

    def forget(self) -> None:
        """Give back the memory of what it was read from."""


class AnySize:
    """See the module. Any thread may use it.

    Args:
        source: The model.
        stores: Where things are kept.
        declared: The shapes of the inputs, -1 where they are open.
        new_builder: Makes a builder.
        build: Builds the network for a size, or starts it as it is stored, at low priority; None for a part of a
            network: nobody asks for it, nor is told that it can not be lowered with open extents.
        is_open: Whether the network surely is for several sizes.
    """

    def __init__(
        self,
        source: Openable,
        stores: Stores,
        declared: Sequence[Sequence[int]],
        new_builder: Callable[[], Builder],
        build: Callable[[Shapes], Bound] | None = None,
        *,
        is_open: bool,
    ) -> None:
        self._source, self._stores, self._declared = source, stores, declared
        self._new_builder, self._build = new_builder, build
        self._lock, self._making = threading.RLock(), threading.Lock()
        self._process = os.getpid()
        self._opened: list[_Opened] = []
        self._failed = 0
        self._is_open, self._is_ready, self._sizes = is_open, False, 0
        self._asked: Shapes = ()
        source.keeps = is_open
        self._loaded: LoadedKernels | None = None
        self._arrived: list[tuple[Mapping[OpDesc, str], Library]] = []
        self._preparing: Background[None] | None = None

    def begin(self, shapes: Shapes, bound: Bound) -> None:
        """Prepare for further sizes, in the background, after one was built: the first, or the second that is.

        A network in parts has no template, nor has one that is debugged or may be called with one size only.
        """
        self._sizes += 1
        prepares = isinstance(bound, Binding) and not self._stores.setup.debug.active
        if self._preparing is None and prepares and (self._is_open or self._sizes > 1):
            self._preparing = Background(lambda: self._prepare(shapes), "opbuild-any-size")
            self._preparing.start()
        elif self._preparing is None and not prepares:
            self._source.forget()
            self._failed = MOST_TEMPLATES

    def wait(self) -> None:
        """Wait until what ``begin`` began is done."""
        if self._preparing is not None:
            self._preparing.result()

    def add(self, symbols: Mapping[OpDesc, str], library: Library | None) -> None:
        """Take note of kernels that a binding has loaded."""
        if library is not None:
            self._arrived.append((symbols, library))  # nobody who built should wait for who prepares

    def bind(self, shapes: Shapes) -> Binding | None:
        """Bind a size by a template; None if it is to be built: also while a template is prepared behind calls."""
        self._asked = shapes
        if self._process != os.getpid():
            self._begin_again()
        if not self._is_ready:
            return None
        bound = self._bound(shapes)
        if bound is None and self._making.acquire(blocking=False):
            try:
                if self._prepare_more(shapes):
                    bound = self._bound(shapes)
            finally:
                self._making.release()
        return bound

    def _begin_again(self) -> None:
        """Go on in the child of a fork: threads that had begun something, and may hold locks, stayed in the parent."""
        self._process = os.getpid()
        self._lock, self._making = threading.RLock(), threading.Lock()
        if not self._is_ready:
            self._preparing = None

    def bind_now(self, shapes: Shapes) -> Binding | None:
        """Bind the first size by a template, which is made for that if none is stored; None if it is to be built."""
        self._asked = shapes
        with self._making:
            bound = self._bound(shapes) if self._load_stored() else None
            if bound is None and self._prepare_more(shapes, is_asked_for=False):
                bound = self._bound(shapes)
        return bound

    def bind_stored(self) -> Binding | None:
        """Bind the first size by a stored template; None if there is none for it."""
        if self._sizes:
            return None
        with self._making:
            return self._bound(self._asked) if self._load_stored() else None

    # -- binding ------------------------------------------------------------------------------------------------------

    def _bound(self, shapes: Shapes) -> Binding | None:
        from opbuild.runtime.sized import SizedExecutor

        clock = Clock()
        for opened in tuple(self._opened):
            with clock("bind"), self._lock:
                numbers = opened.template.numbers(shapes)
                decision = None if numbers is None else self._kernels.decide(opened.template, numbers.tolist())
            if numbers is None or decision is None or not decision.complete:
                continue
            with clock("start"):
                chosen = [each for each in decision.chosen if each is not None]
                try:
                    executor = SizedExecutor(opened.layout, numbers, chosen, evaluate, self._stores.images.blocks)
                except ValueError:
                    continue
            report = self._report(opened, decision, executor.arena_size, clock)
            improves = decision.replaced and not self._stores.setup.why_not_compiled
            return Binding(executor, report, (lambda: self._better(shapes)) if improves else None)
        return None

    def _better(self, shapes: Shapes) -> Bound | None:
        """Build the network for a size that was asked for again; tell what goes wrong, which stops nothing."""
        try:
            return self._build(shapes) if self._build is not None else None
        except OpbuildError as error:
            self._warn(f"better kernels for {self._source.declaration.name} at {list(shapes)} were not built: {error}")
            return None

    def _report(self, opened: _Opened, decision: Decision, arena: int, clock: Clock) -> Report:
        template = opened.template
        nodes: dict[int, dict[str, None]] = {}
        host: dict[str, int] = {}
        for step in template.steps:
            if isinstance(step, OpenKernel):
                nodes.setdefault(step.decided, {}).update(dict.fromkeys(step.nodes))
            else:
                host[step.node.op_type] = host.get(step.node.op_type, 0) + 1
        served: dict[tuple[str, str], dict[str, None]] = {}
        for number, each in enumerate(decision.chosen):
            if each is not None:
                reason = SUITING if number not in decision.replaced else REPLACING
                served.setdefault((each.kernel.symbol, reason), {}).update(nodes.get(number, {}))
        return Report(
            network=template.name,
            operators=tuple(OperatorReport(name, "reused", why, tuple(of)) for (name, why), of in served.items()),
            host=host,
            steps=clock.steps,
            image_reason="it was bound by numbers to what is lowered for any size",
            notes=template.notes,
            arena=arena,
            level=self._stores.setup.level_text,
            constants=sum(constant.nbytes for constant in template.constants),
        )

    # -- preparing ----------------------------------------------------------------------------------------------------

    @property
    def _kernels(self) -> LoadedKernels:
        if self._loaded is None:
            from opbuild.pipeline.loaded import LoadedKernels

            self._loaded = LoadedKernels(Machine.of(self._stores.setup.level))
        while self._arrived:
            self._loaded.add(*self._arrived.pop())
        return self._loaded

    def _prepare(self, shapes: Shapes) -> None:
        with self._making:
            prepared = bool(self._opened) or self._load_stored() or self._prepare_more(shapes)
        self._is_ready = True
        if prepared:
            self._prepare_nearby(shapes)
        self._source.forget()

    def _prepare_nearby(self, shapes: Shapes) -> None:
        """Make templates for sizes of which one extent is another one, where none is for them."""
        for index, axis in self._opened[0].template.variables:
            for extent in NEARBY:
                size = _replaced(shapes, self._declared, axis, shapes[index][axis], extent)
                with self._making:
                    if not any(each.template.numbers(size) is not None for each in self._opened):
                        self._prepare_more(size, is_asked_for=False)

    def _load_stored(self) -> bool:
        from opbuild.runtime.sized import Layout

        images = self._stores.images
        for number in range(MOST_TEMPLATES):
            found = images.load_open(images.open_key(self._source, number))
            if found is None:
                break
            self._add_library(found.symbols, found.library)
            self._opened.append(_Opened(found.template, Layout(found.template, found.constants)))
        return bool(self._opened)

    def _prepare_more(self, shapes: Shapes, *, is_asked_for: bool = True) -> bool:
        """Make a template at a size and return whether there is one; tell what goes wrong, if that was asked for."""
        if self._stores.setup.why_not_compiled or len(self._opened) + self._failed >= MOST_TEMPLATES:
            return False
        try:
            self._make(shapes)
        except Exception as error:  # whatever does not know open extents: the size is built as it is
            self._failed += 1
            if isinstance(error, OpbuildError) and is_asked_for and self._build is not None:
                self._warn(f"{self._source.declaration.name} is built for each size: {error}")
            return False
        return True

    def _make(self, shapes: Shapes) -> None:
        from opbuild.pipeline.loaded import needed_for_all
        from opbuild.pipeline.steps import lowering_options
        from opbuild.pipeline.templates import OpenProgram
        from opbuild.runtime.sized import Layout
        from opbuild.runtime.template import to_json
        from opbuild.runtime.weights import pack_constants

        setup, packer = self._stores.setup, self._stores.packer()
        options = lowering_options(setup.config)
        program = OpenProgram(self._graph, self._declared, shapes, setup.level, options)
        fixed = program.at_hand()
        constants = pack_constants(fixed, packer)
        template = program.template(constants)
        built, compiler = self._built(template, needed_for_all([template]))
        self._add_library(built.symbols, built.library)
        numbers = template.numbers(shapes)
        with self._lock:
            decision = None if numbers is None else self._kernels.decide(template, numbers.tolist())
        if decision is None or not decision.complete:
            raise ValueError("a template does not serve the size at which it was made")
        record = _record_at_hand(fixed, template, decision, constants)
        content = {
            "template": to_json(template),
            "kernels": [[desc.components(), symbol] for desc, symbol in built.symbols.items()],
        }
        images = self._stores.images
        key = images.open_key(self._source, len(self._opened))
        if built.certain and not self._source.edited and key.compiler in ("", compiler):
            images.keep_open(key, record, built.library, constants, packer, content)
        self._opened.append(_Opened(template, Layout(template, constants.arrays)))

    def _graph(self, shapes: Shapes) -> Graph:
        from opbuild.pipeline.steps import optimize_graph

        graph = self._source.graph(shapes, Clock())
        return optimize_graph(graph, float32=self._stores.setup.config.forces_float32)

    def _built(self, template: Template, needed: Mapping[OpDesc, tuple[str, ...]]) -> tuple[Built, str]:
        """Build kernels without limits, and link those for the size at hand that are there already.

        Returns:
            The kernels, and the digest of what compiled them.
        """
        from opbuild.pipeline.steps import link_kernels
        from opbuild.runtime.link import find_linker

        setup = self._stores.setup
        linker = find_linker(setup.config.linker, setup.level.triple) if needed else None
        with self._new_builder() as builder:
            own = dict.fromkeys((each.desc for each in template.decided), ())
            there = {job.desc: () for job in builder.plan(own) if not job.must_compile}
            result = builder.build({**there, **needed}, template.name)
            self._stores.count(result)
            return link_kernels(result, linker, setup.level), builder.identity().digest

    def _add_library(self, symbols: Mapping[OpDesc, str], data: bytes) -> None:
        if data:
            self.add(symbols, Library(data, self._stores.setup.config.num_threads))

    def _warn(self, message: str) -> None:
        self._stores.setup.observer(Warned(message))


def build_for_any_size(descs: Iterable[OpDesc], stores: Stores, name: str) -> None:
    """Build the kernels without limits that compute what some kernels do at any size; nobody waits for them."""
    from opbuild.families.catalogue import find

    with suppress(OpbuildError), make_builder(stores.setup, stores, is_urgent=False) as builder:
        stores.count(builder.build({find(desc.family).without_limits(desc): () for desc in descs}, name))


def _replaced(
    shapes: Shapes, declared: Sequence[Sequence[int]], axis: int, old: int, new: int
) -> tuple[tuple[int, ...], ...]:
    """Return shapes in which an open extent that stands in one place of several inputs is another one."""
    return tuple(
        tuple(
            new if place == axis and extent == old and free[place] == FREE else extent
            for place, extent in enumerate(shape)
        )
        for shape, free in zip(shapes, declared, strict=True)
    )


def _record_at_hand(program: Program, template: Template, decision: Decision, constants: Constants) -> Record:
    """Return the record of the size at hand, which is checked as every record is.

    Raises:
        BuildError: If it is not sound.
    """
    from opbuild.pipeline.loaded import with_rank
    from opbuild.program import KernelCall, View
    from opbuild.runtime.assembly import make_record
    from opbuild.runtime.memory_plan import plan
    from opbuild.runtime.reports import record_notes

    symbols, calls = {}, []
    for call, step in zip(program.calls, template.steps, strict=True):
        chosen = decision.chosen[step.decided] if isinstance(step, OpenKernel) else None
        if not isinstance(call, KernelCall) or chosen is None:
            calls.append(call)
            continue
        desc, symbol = chosen.kernel.desc, chosen.kernel.symbol
        dims = with_rank(desc, [view.dims for view in call.views])
        views = tuple(View(view.buffer, view.offset, each) for view, each in zip(call.views, dims, strict=True))
        calls.append(replace(call, desc=desc, views=views, work=chosen.work))
        symbols[desc] = symbol
    chosen_program = replace(program, calls=tuple(calls))
    return make_record(
        chosen_program,
        symbols,
        plan(chosen_program),
        constant_of=constants.positions,
        constants=constants.places,
        notes=record_notes((), program.notes),
    )
