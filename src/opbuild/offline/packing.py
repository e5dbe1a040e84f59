"""Packing: the kernels of one's own models in one file, from which first starts take them, or in a wheel of that file.

A model pack is what ``warm`` would build, without networks and weights: kernels at the sizes that are named, and those
that compute any other one, if more slowly. Of a network in segments they are those that made-up values lead to. What
tuning found here decides which variants there are; those of who has not tuned are there, too.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from opbuild.backend.compilers import make_compiler
from opbuild.config import Config
from opbuild.errors import OptionError
from opbuild.events import Observer, Warned
from opbuild.families.catalogue import names
from opbuild.kernel.interfaces import Found
from opbuild.kernel.key import KEY_FORMAT, CompilerIdentity
from opbuild.kernel.opdesc import OpDesc
from opbuild.offline.kernels import without_limits
from opbuild.offline.warming import NetworkRequest, opened_for, parsed_targets, requests_of
from opbuild.offline.wheel import WheelName
from opbuild.pipeline.setup import Setup, set_up
from opbuild.platform.paths import Path
from opbuild.platform.records import NamedTuple, replace
from opbuild.session import Session
from opbuild.store.archive import archive_parts, write_whole
from opbuild.store.model_packs import KIND
from opbuild.store.operators import operators_in
from opbuild.store.pack import SUFFIX, FamilySources, Object, Pack, pack_bytes
from opbuild.target.level import target_named
from opbuild.text.plural import counted
from opbuild.version import __version__

if TYPE_CHECKING:
    from opbuild.builder.job import OperatorJob
    from opbuild.frontend.models.recorded import RecordedSize
    from opbuild.frontend.models.shapes import Given

WHEEL = ".whl"

STORED = "what ran with a cache"
"""The name, in a pack, of what it was made of besides models."""


class TargetPacked(NamedTuple):
    """The kernels for one target: a level, or a device.

    Attributes:
        target: Its name.
        jobs: The kernels that were packed.
        released: How many the release's pack has, which were left out.
        built: How many were compiled for it.
    """

    target: str
    jobs: tuple[OperatorJob, ...]
    released: int
    built: int


class ModelPackMade(NamedTuple):
    """A model pack that was written: for each target its kernels, and its size in bytes."""

    targets: tuple[TargetPacked, ...]
    nbytes: int


def pack_models(
    models: Sequence[Path],
    path: Path,
    config: Config,
    variants: Sequence[Given] = (),
    targets: Sequence[str] | None = None,
    *,
    recorded: Sequence[RecordedSize] = (),
    with_stored: bool = False,
    with_released: bool = False,
    observer: Observer | None = None,
) -> ModelPackMade:
    """Build the kernels that models need, and write them as one file, whole or not at all.

    Args:
        models: The models.
        path: The file; with the suffix ``.whl`` a wheel, whose name says what it is.
        config: Settings.
        variants: Shapes by input name, or several of these: as ``warm``.
        targets: The levels, or classes of devices beside the CPU; default this machine's level.
        recorded: Sizes that were recorded of the models where they ran.
        with_stored: Whether also those kernels are packed that the store has for the targets, of whatever ran with it.
        with_released: Whether also those kernels are packed that the release's pack has.
        observer: Told what happens.

    Raises:
        ModelError, BuildError: If a model is at fault or cannot be built.
        OptionError: If an argument is at fault, the store has nothing to pack, or the file cannot be written.
    """
    wheel = WheelName.parse(path.name) if path.suffix == WHEEL else None
    setups = [set_up(config, target, observer, runs_elsewhere=True) for target in parsed_targets(targets)]
    wanted = requests_of(models, variants, setups, recorded) if models or variants else []
    stored = [_stored(setup) if with_stored else {} for setup in setups]
    if not wanted and not any(stored):
        asked = ", ".join(setup.target.name for setup in setups)
        raise OptionError(
            f"the cache {config.cache_folder} has no kernel for {asked}", "run with it first what is packed"
        )
    done = [
        packed
        for setup, kernels in zip(setups, stored, strict=True)
        for packed in _build(
            [each for each in wanted if each.setup is setup], setup, kernels, with_released=with_released
        )
    ]
    files = {name: data for each in done for name, data in _files(each).items()}
    made_of = {os.path.basename(each) for each in models} | ({STORED} if with_stored else set())  # noqa: PTH119
    about = {"opbuild": __version__, "models": sorted(made_of)}
    parts: Iterable[bytes | memoryview] = archive_parts(KIND, about, files, setups[0].trust)
    if wheel is not None:
        parts = [wheel.content(b"".join(parts), ", ".join(map(str, about["models"])))]
    return ModelPackMade(tuple(done), write_whole(path, parts, KIND.word))


def _stored(setup: Setup) -> dict[OpDesc, tuple[str, ...]]:
    """Return the kernels that a store has for one target, and those for any size; users' own operators are left out."""
    operators = operators_in(setup.config.kernel_meta, trust=setup.trust)
    found: dict[OpDesc, tuple[str, ...]] = {}
    for name in operators.names():
        parts = operators.components(name) or {}
        if parts.get("target") not in setup.target.names or parts.get("format") != KEY_FORMAT or parts.get("debug"):
            continue
        with suppress(KeyError, TypeError, ValueError):  # from what is damaged, which is compiled where it is needed
            desc = OpDesc.from_components(parts)
            if desc.family in names() and not desc.source:
                found[desc] = ()
    return found | without_limits(found)


def _build(
    wanted: Sequence[NetworkRequest], setup: Setup, stored: Mapping[OpDesc, tuple[str, ...]], *, with_released: bool
) -> Iterator[TargetPacked]:
    """Build the kernels of networks and those that were stored, at once, and yield those of each target."""
    needed = dict(stored)
    for each in wanted:
        for own in _tuned_or_not(each):
            opened = opened_for(own)
            kernels = opened.kernels
            needed |= kernels.all
            if opened.source.declaration.is_open:  # a size that is not packed is computed by these
                needed |= without_limits(kernels.own)
        if not kernels.are_all:
            problem = f"{each} runs in segments, of which the first is packed: the others are known when it runs"
            setup.observer(Warned(problem))
    session = Session(setup)
    with session.builder() as builder:
        result = builder.build(needed, counted(len(wanted), "network") if wanted else STORED)
    session.stores.count(result)
    for target in setup.target.names:
        mine = [job for job in result.decisions if job.key.components["target"] == target]
        release = Pack(target)
        jobs = [job for job in mine if with_released or not _is_released(job, release)]
        yield TargetPacked(target, tuple(jobs), len(mine) - len(jobs), sum(job.outcome == "built" for job in mine))


def _tuned_or_not(wanted: NetworkRequest) -> Iterator[NetworkRequest]:
    yield wanted
    if wanted.setup.has_tuning_database:
        yield replace(wanted, setup=replace(wanted.setup, uses_tuning_database=False))


def _is_released(job: OperatorJob, release: Pack) -> bool:
    return isinstance(release.lookup(job.key), Found)


def _files(packed: TargetPacked) -> Mapping[str, bytes]:
    """Return the pack files of a target, by name: of each compiler one a family."""
    groups: defaultdict[CompilerIdentity, defaultdict[str, list[Object]]] = defaultdict(lambda: defaultdict(list))
    for job in packed.jobs:
        if job.entry is not None:
            parts = job.entry.key.components["compiler"]
            groups[CompilerIdentity(**parts)][job.desc.family].append(Object.of(job.desc, job.entry))
    compiler = make_compiler(target_named(packed.target).device)
    sources = {
        job.desc.family: FamilySources(compiler.released_digest(job.desc), str(job.key.components["sources"]))
        for job in packed.jobs
    }
    return {
        f"{number}/{packed.target}/{family}{SUFFIX}": pack_bytes(
            packed.target, family, identity, sources[family], objects
        )
        for number, identity in enumerate(sorted(groups, key=lambda each: (each.name, each.version, each.digest)))
        for family, objects in groups[identity].items()
    }
