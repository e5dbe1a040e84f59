"""Lower levels: whose operators and networks serve where nothing can be compiled.

A network runs code of its own level, or of the level below, never of a higher one. What a lower level serves is stored
as that level's, so it never hides the own level's build where compiling is possible again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

from opbuild.errors import BuildError
from opbuild.events import LowerServes
from opbuild.graph.cut import is_tensor
from opbuild.models.source import Model, ModelSource, open_model
from opbuild.pipeline.setup import Setup
from opbuild.pipeline.stores import Stores, deciding_builder
from opbuild.platform.records import NamedTuple
from opbuild.report import Clock
from opbuild.runtime.binding import Binding, Shapes
from opbuild.runtime.executor import Executor

if TYPE_CHECKING:
    from opbuild.builder.build import Builder
    from opbuild.builder.job import Job
    from opbuild.kernel.networks import ImageKey
    from opbuild.pipeline.stages import Planned


class Served(NamedTuple):
    """What a network needs at the level that serves it.

    Attributes:
        needed: Programs and kernels.
        stores: Where they are.
        builder: Finds them, or builds them.
    """

    needed: Planned
    stores: Stores
    builder: Builder


def open_known(model: Model, stores: Stores) -> ModelSource:
    """Return a model as it is known where it was built before, at a lower level too, so that it need not be read.

    The caller releases it: see ``open_model``.

    Raises:
        InvalidModelError: If it can not be read.
    """
    source = open_model(model, stores.models, releases=True)
    if source.was_built:
        return source
    apart = (each for each in stores.lower if each.setup.config.network_meta != stores.setup.config.network_meta)
    others = (open_model(model, lower.models) for lower in apart)
    return next((other for other in others if other.was_built), source)


def start_stored(key: ImageKey | None, stores: Stores, clock: Clock) -> Binding | str:
    """Return a network started as it is stored, at its own level or one that may serve, or why it can not be."""
    own = stores.images.start(key, clock)
    if isinstance(own, Binding):
        return own
    for lower in (each for each in stores.lower if each.setup.level != stores.setup.level):
        started = lower.images.start(key, clock)
        if isinstance(started, Binding):
            _tell(lower.setup, started.report.network, stores.setup)
            return started
    return own


def start_whole(source: ModelSource, signature: Shapes, stores: Stores) -> Binding | None:
    """Return a model's network as it is stored for a signature; None if it is not, or may be one in parts."""
    types = source.types(signature)
    if not source.was_built or not all(map(is_tensor, types.values())):
        return None
    started = start_stored(stores.images.key(source.declaration.name, source.digest, types), stores, Clock())
    if isinstance(started, Binding) and isinstance(started.executor, Executor):
        return started if started.executor.record.cut is None else None
    return None


def plan_served(stores: Stores, builder: Builder, plan: Callable[[Setup], Planned]) -> Served:
    """Return what a network needs: at its own level, or if nothing can be compiled, at the highest that has it all.

    A level has it if single operators of lower levels serve beside its own, too; one without any of its own has it only
    if no lower level has.

    Args:
        stores: Of its own level.
        builder: The same.
        plan: Returns what it needs, lowered for the level of a setup.
    """
    own = Served(plan(stores.setup), stores, builder)
    if not stores.lower:
        return own
    of_others: list[Served] = []
    for served in chain([own], _lower(stores, plan)):
        jobs = _jobs(served)
        if jobs is None:
            continue
        if jobs and all(job.is_borrowed for job in jobs):
            of_others.append(served)
            continue
        return _told(served, own)
    return _told(of_others[0], own) if of_others else own


def _lower(stores: Stores, plan: Callable[[Setup], Planned]) -> Iterator[Served]:
    for lower in stores.lower:
        try:
            builder = deciding_builder(lower.setup, lower)
        except BuildError:  # it is not known which compiler made what is there
            continue
        yield Served(plan(lower.setup), lower, builder)


def _jobs(served: Served) -> tuple[Job, ...] | None:
    """Return a network's operators; None if one must be compiled, or it is not known which compiler made them."""
    try:
        return served.builder.found(served.needed.kernels)
    except BuildError:  # where nothing else serves either, the build says it
        return None


def _told(served: Served, own: Served) -> Served:
    if served is not own:
        _tell(served.stores.setup, served.needed.name, own.stores.setup)
    return served


def _tell(served: Setup, network: str, own: Setup) -> None:
    if served.level != own.level:  # else it is the same level's without what tuning found
        own.observer(LowerServes(network, served.level_text))
