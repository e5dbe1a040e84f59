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
from opbuild.target.level import CPU
from opbuild.text.plural import counted
from opbuild.version import __version__

if TYPE_CHECKING:
    from opbuild.builder.job import OperatorJob
    from opbuild.frontend.models.recorded import RecordedSize
    from opbuild.kernel.opdesc import OpDesc

WHEEL = ".whl"


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
        with_released: Whether also those kernels are packed that the release's pack has.
        observer: Told what happens.

    Raises:
        ModelError, BuildError: If a model is at fault or cannot be built.
        OptionError: If an argument is at fault, or the file cannot be written.
    """
    wheel = WheelName.parse(path.name) if path.suffix == WHEEL else None
    setups = [set_up(config, target, observer, runs_elsewhere=True) for target in parsed_targets(targets)]
    wanted = requests_of(models, variants, setups, recorded)
    built = (_build([each for each in wanted if each.setup is setup], setup, with_released) for setup in setups)
    done = [packed for each in built for packed in each]
    files = {name: data for each in done for name, data in _files(each).items()}
    about = {"opbuild": __version__, "models": sorted({os.path.basename(each) for each in models})}  # noqa: PTH119
    parts: Iterable[bytes | memoryview] = archive_parts(KIND, about, files, setups[0].trust)
    if wheel is not None:
        parts = [wheel.content(b"".join(parts), ", ".join(map(str, about["models"])))]
    return ModelPackMade(tuple(done), write_whole(path, parts, KIND.word))


def _build(wanted: Sequence[NetworkRequest], setup: Setup, with_released: bool) -> Iterator[TargetPacked]:
    """Build the kernels of networks for a level and the device beside it, at once, and yield those for each."""
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


def _sources(job: OperatorJob) -> FamilySources:
    own = str(job.key.components["sources"])
    return FamilySources(released_sources(job.desc.family) if job.desc.device == CPU else own, own)


def _files(packed: TargetPacked) -> Mapping[str, bytes]:
    """Return the pack files of a target, by name: of each compiler one a family."""
    groups: defaultdict[CompilerIdentity, defaultdict[str, list[Object]]] = defaultdict(lambda: defaultdict(list))
    for job in packed.jobs:
        if job.entry is not None:
            parts = job.entry.key.components["compiler"]
            groups[CompilerIdentity(**parts)][job.desc.family].append(Object.of(job.desc, job.entry))
    sources = {job.desc.family: _sources(job) for job in packed.jobs}
    return {
        f"{number}/{packed.target}/{family}{SUFFIX}": pack_bytes(
            packed.target, family, compiler, sources[family], objects
        )
        for number, compiler in enumerate(sorted(groups, key=lambda each: (each.name, each.version, each.digest)))
        for family, objects in groups[compiler].items()
    }
