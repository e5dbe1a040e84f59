"""Checking a remote store: its answers, and whether everything that lies there is sound."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import count

from opbuild.config import Config
from opbuild.errors import BuildError
from opbuild.events import Watch, unwatched
from opbuild.files.trust import NETWORK
from opbuild.kernel.entry import Entry
from opbuild.kernel.reason import Reason
from opbuild.pipeline.remote import Remote, remote_for_transfer
from opbuild.pipeline.setup import set_up
from opbuild.pipeline.stores import Stores
from opbuild.platform.records import NamedTuple, dataclass
from opbuild.store.concurrent_map import concurrent_map
from opbuild.store.remote.failures import ABSENT, REFUSED, SLOW
from opbuild.store.remote.manifest import PIECE, Manifest
from opbuild.store.remote.objects import ANSWERS, BANK, BLOBS, GROUPS, NAMESPACE, NETWORKS, OPERATORS, ORIGINS
from opbuild.store.remote.operators import problem_of_group
from opbuild.store.remote.service import described
from opbuild.target.level import Level


class CheckStep(NamedTuple):
    """A question to a remote store, its answer, ``ok`` if that is as it should be, and the time that it took."""

    name: str
    answer: str
    milliseconds: float


def named_remote(config: Config, level: Level, *, reads_all: bool) -> Remote | None:
    """Return the remote store that a build for a level uses; None: there is none.

    Where all of it is to be read, it is as commands use it that wait longer.
    """
    stores = Stores(set_up(config, level, None, runs_elsewhere=True))
    if stores.remote is None or not reads_all:
        return stores.remote
    return remote_for_transfer(config.remote or stores.policy.remote, stores.setup)


def asked(remote: Remote) -> list[CheckStep]:
    """Ask a remote store to read, and where builds write to it, to write and to remove a small object."""
    objects, service, path = remote.objects, remote.service, f"{NAMESPACE}check/{os.urandom(8).hex()}"
    steps: list[tuple[str, Callable[[], bytes | Reason | None]]] = [
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
    """An object that nobody would use.

    Attributes:
        path: Where it is.
        reason: What is wrong.
    """

    path: str
    reason: Reason


class RemoteCheck:
    """A look at everything in a remote store. What is written there meanwhile is looked at or not."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        self._blobs: dict[str, bool] = {}

    def problems(self, watch: Watch = unwatched) -> Iterator[RemoteProblem]:
        """Yield everything that nobody would use.

        Raises:
            BuildError: If the store cannot be listed, or does not answer.
        """
        kinds: Sequence[tuple[str, Callable[[str], Reason | None]]] = (
            (BLOBS, self._blob), (OPERATORS, self._operator), (GROUPS, self._group), (NETWORKS, self._network),
            (ORIGINS, partial(self._hint, ORIGINS)), (ANSWERS, partial(self._hint, ANSWERS)),
        )  # fmt: skip
        listed = [(folder, look, self._names(folder)) for folder, look in kinds]
        numbers, total = count(), 1 + sum(len(names) for *_, names in listed)
        watch(next(numbers), total)
        for folder, look, names in listed:  # blobs before the networks that name them
            with closing(concurrent_map(names, look)) as answers:
                for name, reason in answers:
                    watch(next(numbers), total)
                    yield from self._problem(folder + name, reason)
        bank = self._remote.bank.read()
        watch(next(numbers), total)
        yield from self._problem(BANK, bank if isinstance(bank, Reason) else None)

    def repair(self, problem: RemoteProblem) -> bool:
        """Remove an object that nobody would use; return whether it is gone."""
        return self._remote.objects.delete(problem.path) is None

    def _problem(self, path: str, reason: Reason | None) -> Iterator[RemoteProblem]:
        if reason is not None and reason.code in (REFUSED, SLOW):
            raise self._failed(reason)
        if reason is not None and reason.code != ABSENT:  # somebody removed it meanwhile
            yield RemoteProblem(path, reason)

    def _names(self, folder: str) -> tuple[str, ...]:
        names = self._remote.objects.names(folder)
        if isinstance(names, Reason):
            raise self._failed(names)
        return names

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

    def _group(self, name: str) -> Reason | None:
        return problem_of_group(self._remote.objects, name)

    def _hint(self, folder: str, name: str) -> Reason | None:
        """Return the problem of a hint: damage in it, too, ends that anything is read."""
        body = self._remote.objects.get(folder + name, NETWORK)
        return body if isinstance(body, Reason) else None

    def _network(self, stem: str) -> Reason | None:
        manifest = self._remote.networks.named(stem)
        if isinstance(manifest, Reason):
            return manifest
        if manifest.key.stem != stem:
            return Reason("other-key", f"it is {manifest.key.stem}")
        return next(filter(None, map(partial(self._lacking, manifest), _pieces(manifest))), None)

    def _lacking(self, manifest: Manifest, digest: str) -> Reason | None:
        """Return the reason that a network cannot be had that names a piece."""
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
