"""AnySize: binds a model with open extents to sizes that it was not built for, without waiting for a compile.

The first size is built as every network is, and with it the kernels without limits that compute the model at any size:
it is lowered once more, with open extents, to a template, which is stored, so that the next process finds it. A size
that comes then is bound by filling in numbers. Where its families would rather have other kernels than those that are
there, the network is built for that size as the first one was, when it is called again.

Where the template is not for a size, that size gives a further one, up to ``MOST_TEMPLATES``; where nothing can be
lowered with open extents, each size is built.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from opbuild.backend.evaluate import evaluate
from opbuild.errors import BuildError, OpbuildError
from opbuild.events import Warned
from opbuild.kernel.opdesc import OpDesc
from opbuild.pipeline.images import Ahead
from opbuild.pipeline.stores import Stores
from opbuild.platform.background import Background, begin
from opbuild.platform.locks import Lock, RLock
from opbuild.report import Clock, OperatorReport
from opbuild.runtime.binding import Binding, Bound, Shapes
from opbuild.runtime.library import Library
from opbuild.runtime.reports import make_report

if TYPE_CHECKING:
    from opbuild.builder.build import Builder
    from opbuild.pipeline.loaded import LoadedKernels
    from opbuild.pipeline.opening import Openable, Opening
    from opbuild.pipeline.stages import Built
    from opbuild.runtime.dynamic import Decision, DynamicNetwork, Sized
    from opbuild.runtime.record import Record
    from opbuild.runtime.weights import Packer

T = TypeVar("T")

MOST_TEMPLATES = 16
"""Templates of one network. A model whose structure differs from size to size is built for each."""

_THREAD = "opbuild-any-size"
SUITING = "it was there"
REPLACING = "it was there, in place of one that suits this size better"


class AnySize(Ahead):
    """See the module. Any thread may use it.

    Args:
        source: The model.
        stores: Where things are kept.
        declared: The shapes of the inputs, -1 where they are open.
        new_builder: Makes a builder.
        build: Builds the network for a size, or starts it as it is stored, at low priority, and with it what this
            gives; None for a part of a network: nobody asks for it, nor is told that it can not be lowered with open
            extents.
        is_open: Whether the network surely is for several sizes.
        later: As what it may be asked for again, with open extents, as far as that can be guessed: the kernels that
            compute it are made behind the first call. None if it is not asked for again.
    """

    def __init__(
        self,
        source: Openable,
        stores: Stores,
        declared: Sequence[Sequence[int]],
        new_builder: Callable[[], Builder],
        build: Callable[[Shapes, AnySize], Bound] | None = None,
        *,
        is_open: bool,
        later: Sequence[Openable] | None = None,
    ) -> None:
        self._source, self._stores, self._declared = source, stores, declared
        self._later = None if is_open else later
        self._new_builder, self._build = new_builder, build
        self._lock, self._making = RLock(), Lock()
        self._process = os.getpid()
        self._opened: list[DynamicNetwork] = []
        self._reported: tuple[object, tuple[OperatorReport, ...]] = None, ()
        self._failed = 0
        self._is_open, self._is_loaded, self._sizes = is_open, False, 0
        self._asked: Shapes = ()
        source.keeps = is_open
        self._loaded: LoadedKernels | None = None
        self._arrived: list[tuple[Mapping[OpDesc, str], Library]] = []
        self._first: Opening | None = None
        self._keep: Callable[[], None] | None = None
        self._preparing: Background[None] | None = None

    # -- with the first size ------------------------------------------------------------------------------------------

    def lower(self) -> Mapping[OpDesc, tuple[str, ...]]:
        """Lower the model with open extents before a size is built, and return the kernels to be built with it."""
        if self._preparing is None and self._is_for_several(self._sizes + 1):
            self._first = self._attempt(lambda: self._lowered(self._asked))
        return {} if self._first is None else self._first.kernels

    def pack(self, packer: Packer) -> None:
        """Pack the template's constants, while kernels are compiled; most were packed for the network."""
        first = self._first
        if first is not None:
            self._first = self._attempt(lambda: self._packed(first, packer))

    def built(self, built: Built, library: Library | None) -> None:
        """Take note of kernels that a binding has loaded, and add the template for which some were built."""
        self._add(built.symbols, library)
        if self._later is not None and not self._stores.setup.why_not_compiled:
            from opbuild.pipeline.opening import build_for_other_sizes

            later, name = self._later, self._source.declaration.name
            begin(partial(build_for_other_sizes, built.symbols, later, self._asked, self._stores, name), _THREAD)
        first, self._first = self._first, None
        if first is not None:
            self._keep = self._attempt(lambda: self._finished(first, built))

    def begin(self, shapes: Shapes, bound: Bound) -> None:
        """Prepare for further sizes, in the background, after one was built: the first, or the second that is.

        A network in parts has no template, nor has one that is debugged or may be called with one size only.
        """
        self._sizes += 1
        if self._preparing is not None:
            return
        if not isinstance(bound, Binding) or self._stores.setup.debug.active:
            self._source.forget()
            self._failed = MOST_TEMPLATES
        elif self._is_for_several(self._sizes):
            self._preparing = Background(lambda: self._prepare(shapes), _THREAD)
            self._preparing.start()

    def wait(self) -> None:
        """Wait until what ``begin`` began is done."""
        if self._preparing is not None:
            self._preparing.result()

    def _is_for_several(self, sizes: int) -> bool:
        return (self._is_open or sizes > 1) and not self._stores.setup.debug.active

    # -- with other sizes ---------------------------------------------------------------------------------------------

    def bind(self, shapes: Shapes) -> Binding | None:
        """Bind a size by a template, made for it if there is none; None if it is to be built."""
        self._asked = shapes
        if self._process != os.getpid():
            self._begin_again()
        if self._preparing is None:
            return None
        bound = self._bound(shapes)
        if bound is not None:
            return bound
        with self._making:  # which may just be making the one
            bound = self._bound(shapes)
            if bound is None and not self._is_loaded and self._load_stored():
                bound = self._bound(shapes)
            made = self._prepare_more(shapes) if bound is None else None
            return self._bound(shapes, made) if made is not None else bound

    def bind_stored(self) -> Binding | None:
        """Bind a size by a stored template before anything is prepared; None if there is none for it."""
        if self._preparing is not None:
            return None
        with self._making:
            return self._bound(self._asked) if self._load_stored() else None

    def _begin_again(self) -> None:
        """Go on in the child of a fork: threads that had begun something, and may hold locks, stayed in the parent."""
        self._process = os.getpid()
        self._lock, self._making = RLock(), Lock()

    def bind_now(self, shapes: Shapes, built: Shapes) -> Binding | None:
        """Bind the first size by a template, made at one that was ``built`` if possible; None if it is to be built."""
        self._asked = shapes
        with self._making:
            bound = self._bound(shapes) if self._load_stored() else None
            operators: dict[str, OperatorReport] = {}
            for size in dict.fromkeys((built, shapes)):
                made = self._prepare_more(size, is_asked_for=False) if bound is None else None
                if made is not None:
                    operators = {**made, **operators}  # what the first compiled is there for the second
                    bound = self._bound(shapes, operators)
        return bound

    # -- binding ------------------------------------------------------------------------------------------------------

    def _bound(self, shapes: Shapes, made: Mapping[str, OperatorReport] = MappingProxyType({})) -> Binding | None:
        """Bind a size by a template that is there, for which the kernels ``made``, by symbol, were built just now."""
        clock = Clock()
        with clock("bind"):
            found = self._fitting(shapes)
        if found is None:
            return None
        executor, decision = found
        wants = self._build is not None and (decision.replaced or not decision.suits)
        improves = wants and not self._stores.setup.why_not_compiled
        report = make_report(
            executor.record,
            self._operators(executor.record, decision, made),
            clock,
            self._stores.setup.level_text,
            "it was bound by numbers to what is lowered for any size",
        )
        return Binding(executor, report, (lambda: self._better(shapes)) if improves else None)

    def _fitting(self, shapes: Shapes) -> Sized | None:
        """Return a binding of a size by a template that is there: of one that suits it if any does."""
        others: Sized | None = None
        for network in tuple(self._opened):
            with self._lock:
                found = network.bind(shapes, self._kernels.decide, len(self._kernels))
            if found is not None and found.decision.suits:
                return found
            others = others or found
        return others

    def _operators(
        self, record: Record, decision: Decision, made: Mapping[str, OperatorReport]
    ) -> tuple[OperatorReport, ...]:
        """Return what became of the kernels of a binding; the same for all that make the same calls."""
        key = tuple(each.kernel.symbol for each in decision.kernels), decision.replaced
        if key == self._reported[0] and not made:
            return self._reported[1]
        steps, nodes = record.steps, [dict[str, None]() for _ in record.steps.kinds]
        for kind, names in zip(steps.called.tolist(), steps.nodes, strict=True):
            nodes[kind].update(dict.fromkeys(names))
        served: dict[tuple[str, str], dict[str, None]] = {}
        for number, each in enumerate(decision.kernels):
            reason = SUITING if number not in decision.replaced else REPLACING
            served.setdefault((each.kernel.symbol, reason), {}).update(nodes[number])
        operators = [
            made[name]._replace(nodes=tuple(of)) if name in made else OperatorReport(name, "reused", why, tuple(of))
            for (name, why), of in served.items()
        ]
        chosen_names = {name for name, _ in served}
        operators += [each for name, each in made.items() if each.status == "built" and name not in chosen_names]
        if not made:
            self._reported = key, tuple(operators)
        return tuple(operators)

    def _better(self, shapes: Shapes) -> Bound | None:
        """Build the network for a size that was asked for again; tell what goes wrong, which stops nothing."""
        try:
            return self._build(shapes, self) if self._build is not None else None
        except Exception as error:
            self._warn(f"better kernels for {self._source.declaration.name} at {list(shapes)} were not built", error)
            return None

    # -- preparing ----------------------------------------------------------------------------------------------------

    @property
    def _kernels(self) -> LoadedKernels:
        if self._loaded is None:
            from opbuild.kernel.machine import Machine
            from opbuild.pipeline.loaded import LoadedKernels

            self._loaded = LoadedKernels(Machine.of(self._stores.setup.level))
        while self._arrived:
            self._loaded.add(*self._arrived.pop())
        return self._loaded

    def _prepare(self, shapes: Shapes) -> None:
        """Make what further sizes need, behind calls: what goes wrong stops none, and is told.

        Who finds a template stored leaves those for other sizes to the calls that ask for them: the model is not read.
        """
        keep, self._keep = self._keep, None
        try:
            self._store(keep)
            with self._making:
                is_new = keep is not None or (not self._load_stored() and self._prepare_more(shapes) is not None)
            if is_new:
                self._prepare_nearby(shapes)
        except Exception as error:
            self._warn(f"not all is ready for other sizes of {self._source.declaration.name}", error)
        finally:
            self._source.forget()

    def _prepare_nearby(self, shapes: Shapes) -> None:
        """Make templates for other sizes, where none suits them."""
        from opbuild.pipeline.nearby import nearby

        for size in nearby(self._opened[0].record, shapes, self._declared):
            with self._making:
                found = self._fitting(size)
                if found is None or not found.decision.suits:
                    self._prepare_more(size, is_asked_for=False)

    def _load_stored(self) -> bool:
        """Load what is stored, once; return whether there is anything."""
        if self._is_loaded:
            return bool(self._opened)
        self._is_loaded = True
        images = self._stores.images
        try:
            for number in range(MOST_TEMPLATES):
                found = images.load_open(images.open_key(self._source, number))
                if found is None:
                    break
                from opbuild.runtime.dynamic import DynamicNetwork  # a network of one size has none

                self._add(found.symbols, self._library(found.library))
                self._opened.append(DynamicNetwork(found.record, found.constants, evaluate, images.blocks))
        except Exception as error:  # it may be damaged in a way that no digest shows
            self._warn(f"stored templates of {self._source.declaration.name} are not used", error)
        return bool(self._opened)

    def _prepare_more(self, shapes: Shapes, *, is_asked_for: bool = True) -> Mapping[str, OperatorReport] | None:
        """Make a template at a size; return what became of its kernels, by symbol, or None if there is no template."""
        made = self._attempt(lambda: self._made(shapes, is_asked_for=is_asked_for), is_asked_for=is_asked_for)
        if made is None:
            return None
        keep, operators = made
        self._store(keep)
        return operators

    def _store(self, keep: Callable[[], None] | None) -> None:
        """Store a template, if there is one; tell what goes wrong, which stops nothing."""
        try:
            if keep is not None:
                keep()
        except Exception as error:
            self._warn(f"what other sizes of {self._source.declaration.name} need is not stored", error)

    def _attempt(self, make: Callable[[], T], *, is_asked_for: bool = True) -> T | None:
        """Return what belongs to a template, or None.

        What goes wrong is told, but not what a model, or what does not know open extents, says of a size that nobody
        asked for.
        """
        if self._stores.setup.why_not_compiled or len(self._opened) + self._failed >= MOST_TEMPLATES:
            return None
        try:
            return make()
        except Exception as error:  # whatever does not know open extents: the size is built as it is
            self._failed += 1
            asked = is_asked_for and self._build is not None and isinstance(error, OpbuildError)
            if asked or isinstance(error, (BuildError, OSError, MemoryError)):
                self._warn(f"{self._source.declaration.name} is built for each size", error)
            return None

    def _made(self, shapes: Shapes, *, is_asked_for: bool) -> tuple[Callable[[], None], Mapping[str, OperatorReport]]:
        """Add a template, built on its own; return what stores it, and what became of its kernels, by symbol."""
        opening = self._packed(self._lowered(shapes, is_asked_for=is_asked_for), self._stores.packer())
        built = opening.build(self._new_builder)
        self._add(built.symbols, self._library(built.library))
        operators = {built.symbols[desc]: operator for desc, operator in built.operators.items()}
        return self._finished(opening, built), operators

    def _lowered(self, shapes: Shapes, *, is_asked_for: bool = True) -> Opening:
        from opbuild.pipeline.opening import Opening

        def alike(desc: OpDesc) -> list[OpDesc]:
            with self._lock:
                return [*self._kernels.alike(desc), *([desc] if is_asked_for else [])]

        return Opening(self._source, self._stores, self._declared, shapes, alike)

    def _packed(self, opening: Opening, packer: Packer) -> Opening:
        opening.pack(packer)
        return opening

    def _finished(self, opening: Opening, built: Built) -> Callable[[], None]:
        """Add a template whose kernels are loaded; return what stores it."""
        with self._lock:
            network = opening.network(built, self._kernels)
        number = len(self._opened)
        self._opened.append(network)
        return partial(opening.keep, number, built)

    def _library(self, data: bytes) -> Library | None:
        return Library(data, self._stores.setup.config.num_threads) if data else None

    def _add(self, symbols: Mapping[OpDesc, str], library: Library | None) -> None:
        if library is not None:
            self._arrived.append((symbols, library))  # nobody who built should wait for who prepares

    def _warn(self, message: str, error: Exception) -> None:
        told = str(error) if isinstance(error, OpbuildError) else f"{type(error).__name__}: {error}"
        self._stores.setup.observer(Warned(f"{message}: {told}"))
