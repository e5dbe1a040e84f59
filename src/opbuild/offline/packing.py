"""Packing: the kernels of one's own models in one file, from which first starts take them, or in a wheel of that file.

A model pack is what ``warm`` would build, without networks and weights: kernels at the sizes that are named, and those
that compute any other one, if more slowly. Of a network in segments the first one's are known before it runs. What
tuning found here decides which variants there are; those of who has not tuned are there, too.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from opbuild.config import Config
from opbuild.errors import OptionError
from opbuild.events import Observer, Warned
from opbuild.families.catalogue import find
from opbuild.kernel.interfaces import Found
from opbuild.kernel.key import CompilerIdentity
from opbuild.offline.warming import Given, NetworkRequest, kernels_of, opened_for, parsed_targets, requests_of
from opbuild.offline.wheel import WheelName
from opbuild.pipeline.setup import Setup, set_up
from opbuild.pipeline.tuned import released_sources
from opbuild.platform.paths import Path
from opbuild.platform.records import NamedTuple, replace
from opbuild.session import Session
from opbuild.store.archive import archive_parts, write_whole
from opbuild.store.model_packs import KIND
from opbuild.store.pack import SUFFIX, FamilySources, Object, Pack, pack_bytes
from opbuild.text.plural import counted
from opbuild.version import __version__

if TYPE_CHECKING:
    from opbuild.builder.job import OperatorJob
    from opbuild.frontend.models.recorded import RecordedSize
    from opbuild.kernel.opdesc import OpDesc

WHEEL = ".whl"


class LevelPacked(NamedTuple):
    """The kernels for one level.

    Attributes:
        level: Its name.
        jobs: The kernels that were packed.
        released: How many the release's pack has, which were left out.
        built: How many were compiled for it.
    """

    level: str
    jobs: tuple[OperatorJob, ...]
    released: int
    built: int


class ModelPackMade(NamedTuple):
    """A model pack that was written: for each level its kernels, and its size in bytes."""

    levels: tuple[LevelPacked, ...]
    nbytes: int


def pack_models(
    models: Sequence[Path],
    path: Path,
    config: Config,
    variants: Sequence[Given] = (),
    targets: Sequence[str] | None = None,
    *,
    recorded: Sequence[RecordedSize] = (),
    with_released: bool = False,
    observer: Observer | None = None,
) -> ModelPackMade:
    """Build the kernels that models need, and write them as one file, whole or not at all.

    Args:
        models: The models.
        path: The file; with the suffix ``.whl`` a wheel, whose name says what it is.
        config: Settings.
        variants: Shapes by input name, or several of these: as ``warm``.
        targets: The levels; default this machine's.
        recorded: Sizes that were recorded of the models where they ran.
        with_released: Whether also those kernels are packed that the release's pack has.
        observer: Told what happens.

    Raises:
        ModelError, BuildError: If a model is at fault or cannot be built.
        OptionError: If an argument is at fault, or the file cannot be written.
    """
    wheel = WheelName.parse(path.name) if path.suffix == WHEEL else None
    setups = [set_up(config, target, observer, runs_elsewhere=True) for target in parsed_targets(targets)]
    for setup in setups:
        if setup.device is not None:
            raise OptionError(f"targets has {setup.target.name!r}", "packs have kernels of levels, as x86-64-v3")
    wanted = requests_of(models, variants, setups, recorded)
    done = [_build([each for each in wanted if each.setup is setup], setup, with_released) for setup in setups]
    files = {name: data for each in done for name, data in _files(each).items()}
    about = {"opbuild": __version__, "models": sorted({os.path.basename(each) for each in models})}  # noqa: PTH119
    parts: Iterable[bytes | memoryview] = archive_parts(KIND, about, files, setups[0].trust)
    if wheel is not None:
        parts = [wheel.content(b"".join(parts), ", ".join(map(str, about["models"])))]
    return ModelPackMade(tuple(done), write_whole(path, parts, KIND.word))


def _build(wanted: Sequence[NetworkRequest], setup: Setup, with_released: bool) -> LevelPacked:
    """Build the kernels of networks for one level, at once."""
    needed: dict[OpDesc, tuple[str, ...]] = {}
    for each in wanted:
        for own in _tuned_or_not(each):
            opened = opened_for(own)
            kernels, are_all = kernels_of(opened)
            needed |= kernels
            if opened.source.declaration.is_open:  # a size that is not packed is computed by these
                needed |= {find(desc.family).without_limits(desc): nodes for desc, nodes in kernels.items()}
        if not are_all:
            problem = f"{each} runs in segments, of which the first is packed: the others are known when it runs"
            setup.observer(Warned(problem))
    session = Session(setup)
    with session.builder() as builder:
        result = builder.build(needed, counted(len(wanted), "network"))
    session.stores.count(result)
    release = Pack(setup.level.name)
    jobs = [job for job in result.decisions if with_released or not _is_released(job, release)]
    return LevelPacked(setup.level.name, tuple(jobs), len(result.decisions) - len(jobs), result.built)


def _tuned_or_not(wanted: NetworkRequest) -> Iterator[NetworkRequest]:
    yield wanted
    if wanted.setup.has_tuning_database:
        yield replace(wanted, setup=replace(wanted.setup, uses_tuning_database=False))


def _is_released(job: OperatorJob, release: Pack) -> bool:
    return isinstance(release.lookup(job.key), Found)


def _files(packed: LevelPacked) -> Mapping[str, bytes]:
    """Return the pack files of a level, by name: of each compiler one a family."""
    groups: defaultdict[CompilerIdentity, defaultdict[str, list[Object]]] = defaultdict(lambda: defaultdict(list))
    for job in packed.jobs:
        if job.entry is not None:
            parts = job.entry.key.components["compiler"]
            groups[CompilerIdentity(**parts)][job.desc.family].append(Object.of(job.desc, job.entry))
    sources = {job.desc.family: str(job.key.components["sources"]) for job in packed.jobs}
    return {
        f"{number}/{packed.level}/{family}{SUFFIX}": pack_bytes(
            packed.level, family, compiler, FamilySources(released_sources(family), sources[family]), objects
        )
        for number, compiler in enumerate(sorted(groups, key=lambda each: (each.name, each.version, each.digest)))
        for family, objects in groups[compiler].items()
    }
