"""Sharing: the needs of models go from one's own store to one that others share, and come from there.

Unlike a build these say what cannot be done, and wait longer for it. All that lies there can be checked.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from itertools import count

from opbuild.cli.store.transfers import Named, Transfer, add, choose, entries_of, networks_of, note_compilers, trust_of
from opbuild.config import Config
from opbuild.errors import BuildError, MissingPackageError, OptionError
from opbuild.events import Watch, unwatched
from opbuild.frontend.models.declaration import signature_of
from opbuild.frontend.models.source import ModelSource, open_model
from opbuild.kernel.entry import Entry
from opbuild.kernel.networks import Bytes, NetworkKey, StoredNetwork, Weight
from opbuild.kernel.reason import Reason
from opbuild.pipeline.remote import Remote, remote_for_transfer
from opbuild.pipeline.setup import Setup, set_up
from opbuild.pipeline.stages import Planned
from opbuild.pipeline.stores import Stores, deciding_builder
from opbuild.platform.files.trust import NETWORK
from opbuild.platform.paths import Path
from opbuild.platform.records import NamedTuple, dataclass, replace
from opbuild.report import Clock
from opbuild.runtime.binding import Shapes
from opbuild.runtime.record_json import from_json
from opbuild.session import Session
from opbuild.store.blobs import Data
from opbuild.store.concurrent_map import results_of, watched_map
from opbuild.store.networks import networks_in
from opbuild.store.remote.address import FOLDER
from opbuild.store.remote.failures import ABSENT, REFUSED, SLOW
from opbuild.store.remote.manifest import PIECE, Manifest
from opbuild.store.remote.networks import TieredNetworks
from opbuild.store.remote.objects import (
    ANSWERS,
    BLOBS,
    GROUPS,
    NAMESPACE,
    NETWORKS,
    OPERATORS,
    ORIGINS,
    TUNING_DATABASE,
)
from opbuild.store.remote.operators import mend_group, problem_of_group
from opbuild.store.remote.service import described
from opbuild.store.weights import weights_in
from opbuild.target.level import BuildTarget

InputShapes = Mapping[str, Sequence[int]]


_ABILITIES = "'opbuild cache check --remote URL' says what it can do"

_SERVES = "absent from the remote store; one with other variants came, which serves where nothing can be compiled"
"""Why a network is another one than tuning chooses here."""


def push(
    models: Sequence[Path], url: str, config: Config, target: BuildTarget, shapes: InputShapes | None = None
) -> Transfer:
    """Write the needs of models to a remote store: operators, which models share, and stored networks with weights.

    Each was built before, for the target.

    Raises:
        ModelError: If a model is at fault.
        OptionError: If the URL or a shape is at fault.
        BuildError: If the cache lacks an operator, or the remote store refuses.
    """
    setup, remote = _opened(url, config, target)
    entries: dict[str, Entry] = {}
    networks: dict[str, tuple[NetworkKey, StoredNetwork, dict[str, Bytes]]] = {}
    left_out, groups = [], list[list[Entry]]()
    for model in models:
        session, source, signature = _model(model, setup, shapes)
        for key, kernels in networks_of(source, signature, session):
            needed = entries_of(kernels, deciding_builder(setup, session.stores))
            entries |= {entry.name: entry for entry in needed}
            groups.append([entry for entry in needed if (setup.config.kernel_meta / f"{entry.name}.json").exists()])
            stored = _stored(key, setup)
            if isinstance(stored, Reason):
                left_out.append((f"the network of {model.name}", stored.text))
            else:
                networks[key.stem] = key, *stored
    present = sum(results_of(entries.values(), lambda entry: _push(entry, remote)))
    for key, network, weights in networks.values():
        problem = remote.networks.publish(key, network, weights)
        if problem is not None:
            raise _refused(remote, problem)
    for group in groups:
        if (wrong := mend_group(remote.objects, group)) is not None:
            raise _refused(remote, described(wrong))
    records = _push_records(setup, remote)
    nbytes = remote.service.traffic.bytes_written
    replaced = len(remote.service.mended)
    added = len(entries) - present
    return Transfer(target, added, len(networks), nbytes, present, records, replaced, tuple(left_out))


def pull(
    url: str, models: Sequence[Path], config: Config, target: BuildTarget, shapes: InputShapes | None = None
) -> Transfer:
    """Put the needs of models, or everything for a target, from a remote store into one's own.

    Redis and web servers cannot list everything.

    Raises:
        ModelError: If a model is at fault.
        OptionError: If the URL or a shape is at fault.
        BuildError: If the remote store refuses, or one's own cannot be written.
    """
    setup, remote = _opened(url, config, target)
    left_out: list[Named] = []
    records = remote.tuning_database.take(
        setup.config.tune_bank
    )  # first: what tuning found decides which networks are taken
    if isinstance(records, Reason):
        left_out.append(("what tuning found", described(records)))
        records = 0
    here, lacking = set[str](), dict[str, Path]()
    manifests: Iterable[Manifest]
    if models:
        stems, manifests = _items_of_models(models, setup, remote, shapes, left_out, here, lacking)
    else:
        stems, manifests = _all_items(remote, target, left_out)
    chosen = choose(watched_map([(stems, remote.operators.entry)], unwatched), target, described)
    left_out += chosen.left_out
    added = add(chosen.entries, setup.config.kernel_meta, setup.trust, _unwritable)
    folder = setup.config.network_meta
    weights = weights_in(folder / "weights", trust=setup.trust)
    own = networks_in(folder, trust=setup.trust)
    networks = TieredNetworks(own, weights, remote.networks)
    taken = 0
    for manifest in manifests:
        network = networks.take(manifest)
        if isinstance(network, Reason):
            left_out.append((manifest.key.stem, described(network)))
        elif None in network.states.values() or isinstance(own.lookup(manifest.key), Reason):
            raise _unwritable(f"{folder}: the network {manifest.key.stem} came, and could not be kept")
        else:
            taken += 1
            lacking.pop(manifest.key.stem, None)
    return Transfer(
        target,
        operators=added,
        networks=taken,
        nbytes=remote.service.traffic.bytes_read,
        present=len(here.union(entry.name for entry in chosen.entries)) - added,
        records=records,
        left_out=tuple(left_out),
        warnings=note_compilers(chosen.entries, setup.config, setup.trust),
        lacking=tuple(lacking.values()),
    )


def _opened(url: str, config: Config, target: BuildTarget) -> tuple[Setup, Remote]:
    trust_of(config)
    setup = set_up(replace(config, remote_mode="off"), target, None, runs_elsewhere=True)
    remote = remote_for_transfer(url, setup)
    if remote.service.address.service != FOLDER and find_spec("opendal") is None:
        raise MissingPackageError("the package opendal is not installed", "pip install 'opbuild[remote]'")
    return setup, remote


def _model(model: Path, setup: Setup, shapes: InputShapes | None) -> tuple[Session, ModelSource, Shapes]:
    session = Session(setup)
    source = open_model(model, session.stores.models)
    names = {name for name, *_ in source.declaration.inputs}
    own = {name: shape for name, shape in (shapes or {}).items() if name in names}
    return session, source, signature_of(source.declaration, model.name, own)


def _plan_of(source: ModelSource, signature: Shapes, session: Session) -> Planned:
    return session.plan([source.graph(signature, Clock())], Clock())


def _stored(key: NetworkKey, setup: Setup) -> tuple[StoredNetwork, dict[str, Bytes]] | Reason:
    """Return a stored network with its weights."""
    folder = setup.config.network_meta
    network = networks_in(folder, trust=setup.trust).lookup(key)
    if isinstance(network, Reason):
        return network
    weights, store = {}, weights_in(folder / "weights", trust=setup.trust)
    for digest, nbytes in from_json(network.record).constants.weights.items():
        weight = store.get(digest, nbytes, network.states.get(digest))
        if not isinstance(weight, Weight):
            return weight
        weights[digest] = weight.array
    return network, weights


def _push(entry: Entry, remote: Remote) -> bool:
    """Write an operator; return whether it was there."""
    if remote.operators.holds(entry):
        return True
    if problem := remote.operators.publish(entry):
        raise _refused(remote, problem)
    return False


def _push_records(setup: Setup, remote: Remote) -> int:
    """Write the tuning records of this host, if there are any; return how many the remote store lacked."""
    if not setup.has_own_tuning_database:
        return 0
    from opbuild.store.tuning_database import read_database  # few have a database

    added = remote.tuning_database.publish(read_database(setup.config.tune_bank, setup.trust))
    if isinstance(added, Reason):
        raise _refused(remote, described(added))
    return added


def _items_of_models(
    models: Sequence[Path],
    setup: Setup,
    remote: Remote,
    shapes: InputShapes | None,
    left_out: list[Named],
    here: set[str],
    lacking: dict[str, Path],
) -> tuple[list[str], list[Manifest]]:
    """Return the names of the operators that models lack, and their networks.

    What they do not lack is put in ``here``, and models whose networks are not here, by these, in ``lacking``.
    """
    stems: dict[str, None] = {}
    manifests = []
    for model in models:
        session, source, signature = _model(model, setup, shapes)
        stores = session.stores
        untuned = stores.networks.key(source.declaration.name, source.digest, source.types(signature))
        own = stores.networks.own(untuned, remote.networks.answers(untuned))
        if own is None:
            own = stores.networks.made_by(untuned, _plan_of(source, signature, session).programs[0].answers)
        is_lacking = isinstance(_stored(own, setup), Reason) and not any(stores.networks.dynamic_networks(source))
        manifest = remote.networks.manifest(own)
        absent = manifest.elsewhere if isinstance(manifest, Reason) else ""
        if isinstance(manifest, Reason) and manifest.code != ABSENT:
            raise _refused(remote, described(manifest))
        found = _with_symbolic_extents(source, stores, remote) if isinstance(manifest, Reason) else [manifest]
        if found:
            lacking |= {each.key.stem: model for each in found if is_lacking}
            manifests += found
            stems |= dict.fromkeys(operator for each in found for operator in each.operators)
            continue
        lacking |= {own.stem: model} if is_lacking else {}
        other = _with_other_variants(untuned, own, stores, remote)
        if other is None:
            left_out.append((f"the network of {model.name}", absent))
        elif lacking.pop(own.stem, None):
            lacking[other.key.stem] = model
            left_out.append((f"the network of {model.name} as tuning chooses it here", _SERVES))
            manifests.append(other)
            stems |= dict.fromkeys(other.operators)
        builder = deciding_builder(setup, stores)
        for job in builder.plan(_plan_of(source, signature, session).kernels):
            if job.must_compile:
                stems[job.key.stem] = None
            else:  # the pack's have keys of their own
                here.add(job.name)
    return list(stems), manifests


def _with_symbolic_extents(source: ModelSource, stores: Stores, remote: Remote) -> list[Manifest]:
    """Return the networks of a model that are there and are for several sizes."""
    found = list[Manifest]()
    for number in count():
        manifest = remote.networks.manifest(stores.networks.dynamic_key(source, number))
        if isinstance(manifest, Reason):
            return found
        found.append(manifest)
    return found


def _with_other_variants(untuned: NetworkKey, own: NetworkKey, stores: Stores, remote: Remote) -> Manifest | None:
    """Return a network that is there with other variants than tuning chooses here; None if none is."""
    others = (each for each in stores.networks.others(untuned, remote.networks.answers(untuned)) if each != own)
    manifests = map(remote.networks.manifest, others)
    return next((each for each in manifests if isinstance(each, Manifest)), None)


def _all_items(remote: Remote, target: BuildTarget, left_out: list[Named]) -> tuple[list[str], Iterator[Manifest]]:
    """Return the names of all operators, and the networks for a target, which are read one by one."""
    address = remote.service.address
    if address.service == FOLDER and not os.path.isdir(address.options["root"]):  # noqa: PTH112  pathlib's may raise
        raise OptionError(
            f"URL is {address.url!r}, and there is no such folder", "give the one that 'opbuild push' wrote to"
        )
    stems, names = remote.operators.stems(), remote.service.names(NETWORKS)
    for answer in (stems, names):
        if isinstance(answer, Reason):
            raise BuildError(
                f"what the remote store {remote.service.address.url} holds cannot be listed: {described(answer)}",
                f"{_ABILITIES}; where it lists nothing, name the models: opbuild pull URL MODEL.onnx",
            )
    return list(stems), _networks(list(names), remote, target, left_out)


def _networks(names: Sequence[str], remote: Remote, target: BuildTarget, left_out: list[Named]) -> Iterator[Manifest]:
    """Yield those networks of some names that are for a target."""
    for name in names:
        manifest = remote.networks.named(name)
        if isinstance(manifest, Reason):
            left_out.append((name, described(manifest)))
        elif manifest.key.target == target.name and manifest.key.stem == name:
            yield manifest


def _unwritable(problem: str) -> BuildError:
    return BuildError(f"the cache cannot be written: {problem}", "make room or give the right to write")


def _refused(remote: Remote, problem: str) -> BuildError:
    return BuildError(
        f"the remote store {remote.service.address.url} cannot be used: {problem}",
        _ABILITIES,
    )


class CheckStep(NamedTuple):
    """A question to a remote store, its answer, ``ok`` if that is as it should be, and the time that it took."""

    name: str
    answer: str
    milliseconds: float


def named_remote(config: Config, target: BuildTarget, *, reads_all: bool) -> Remote | None:
    """Return the remote store that a build for a target uses; None: there is none.

    Where all of it is to be read, it is as commands use it that wait longer.
    """
    stores = Stores(set_up(config, target, None, runs_elsewhere=True))
    if stores.remote is None or not reads_all:
        return stores.remote
    return remote_for_transfer(config.remote or stores.policy.remote, stores.setup)


def probe(remote: Remote) -> list[CheckStep]:
    """Ask a remote store to read, and where builds write to it, to write and to remove a small object."""
    objects, service, path = remote.objects, remote.service, f"{NAMESPACE}check/{os.urandom(8).hex()}"
    steps: list[tuple[str, Callable[[], Data | Reason | None]]] = [
        ("read", lambda: objects.problem(path) or service.get(path, 64))
    ]
    if remote.writes:
        steps += [("write", lambda: service.put([(path, b"check")])), ("remove", lambda: service.delete(path))]
    answers = []
    for name, ask in steps:
        started = time.perf_counter()
        answer = ask()
        word = described(answer) if isinstance(answer, Reason) and answer.code != ABSENT else "ok"
        answers.append(CheckStep(name, word, 1e3 * (time.perf_counter() - started)))
    return answers


@dataclass(frozen=True)
class RemoteProblem:
    """An object that nobody would use, by its path, and why."""

    path: str
    reason: Reason


class RemoteCheck:
    """A check of everything in a remote store. Objects written there meanwhile are checked or not."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        self._blobs: dict[str, bool] = {}

    def problems(self, watch: Watch = unwatched) -> Iterator[RemoteProblem]:
        """Yield everything that nobody would use.

        Raises:
            BuildError: If the store cannot be listed, or does not answer.
        """
        kinds: Mapping[str, Callable[[str], Reason | None]] = {
            BLOBS: self._blob,  # before the networks that name them
            OPERATORS: self._operator,
            GROUPS: partial(problem_of_group, self._remote.objects),
            NETWORKS: self._network,
        }

        def look(path: str) -> Reason | None:
            folder, _, name = path.rpartition("/")
            return kinds[f"{folder}/"](name) if f"{folder}/" in kinds else self._hint(path)

        parts = [(self._paths(folder), look) for folder in (*kinds, ORIGINS, ANSWERS)]
        for path, reason in watched_map([*parts, ([TUNING_DATABASE], self._tuning_database)], watch):
            if reason is not None and reason.code in (REFUSED, SLOW):
                raise self._failed(reason)
            if reason is not None and reason.code not in (ABSENT, "other-format"):  # removed meanwhile, or of others
                yield RemoteProblem(path, reason)

    def repair(self, problem: RemoteProblem) -> bool:
        """Remove an object that nobody would use; return whether it is gone."""
        return self._remote.objects.delete(problem.path) is None

    def _paths(self, folder: str) -> list[str]:
        names = self._remote.objects.names(folder)
        if isinstance(names, Reason):
            raise self._failed(names)
        return [folder + name for name in names]

    def _failed(self, reason: Reason) -> BuildError:
        message = f"the remote store {self._remote.service.address.url} cannot be checked: {described(reason)}"
        return BuildError(message, "'opbuild push' checks and writes what models need; web servers cannot be listed")

    def _blob(self, digest: str) -> Reason | None:
        found = self._remote.objects.get_blob(digest, PIECE)
        self._blobs[digest] = isinstance(found, bytes)
        return found if isinstance(found, Reason) else None

    def _operator(self, stem: str) -> Reason | None:
        entry = self._remote.operators.entry(stem)
        return None if isinstance(entry, Entry) else entry

    def _hint(self, path: str) -> Reason | None:
        """Return the problem of a hint: damage in it, too, ends that anything is read."""
        body = self._remote.objects.get(path, NETWORK)
        return body if isinstance(body, Reason) else None

    def _tuning_database(self, _: str) -> Reason | None:
        found = self._remote.tuning_database.read()
        return found if isinstance(found, Reason) else None

    def _network(self, stem: str) -> Reason | None:
        manifest = self._remote.networks.named(stem)
        if isinstance(manifest, Reason):
            return manifest
        if manifest.key.stem != stem:
            return Reason("other-key", f"it is {manifest.key.stem}")
        return next(filter(None, map(partial(self._missing_piece, manifest), _pieces(manifest))), None)

    def _missing_piece(self, manifest: Manifest, digest: str) -> Reason | None:
        """Return the reason that a piece of a network cannot be had."""
        if digest not in manifest.held and digest not in self._blobs:
            reason = self._blob(digest)  # written since they were listed
            if reason is not None and reason.code in (REFUSED, SLOW):
                return reason
        if digest in manifest.held or self._blobs[digest]:
            return None
        return Reason("incomplete", f"the blob {digest} that it names is damaged or missing")


def _pieces(manifest: Manifest) -> list[str]:
    """Return the digests of all pieces of a network."""
    contents = (manifest.library, manifest.constants, *manifest.weights.values())
    return [digest for each in contents for digest in each.pieces]
