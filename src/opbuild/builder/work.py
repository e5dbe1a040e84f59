"""Work: in the background jobs go to the compile server, and its answers are checked and published."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from opbuild.builder.client import CompileServer, ServerEndedError
from opbuild.builder.explain import Explainer
from opbuild.builder.job import BuildResult, CompileFailure, OperatorJob, compile_error, remember_origins
from opbuild.builder.queue import Queue
from opbuild.builder.wire import artifact_of
from opbuild.config import Config
from opbuild.errors import BuildError
from opbuild.events import (
    BuildFinished,
    CompileFinished,
    CompileStarted,
    Event,
    Observer,
    Taken,
    Waiting,
    Warned,
    note_pending,
)
from opbuild.families.catalogue import find
from opbuild.kernel.artifact import NotAnArtifactError
from opbuild.kernel.entry import Entry, make_entry, record_bytes
from opbuild.kernel.interfaces import Claims, Found, Store
from opbuild.kernel.key import CompilerIdentity, Key
from opbuild.kernel.opdesc import OpDesc
from opbuild.platform.background import Background, without_frames
from opbuild.platform.records import dataclass, replace
from opbuild.text.plural import counted, verb

if TYPE_CHECKING:
    from opbuild.builder.spread import SpreadServer

Server: TypeAlias = "CompileServer | SpreadServer"
"""A compile server: a process of this host, or an executor's workers."""

_SERVERS_AT_MOST = 2
"""A server that was killed from outside (out of memory, say) is replaced once; its finished operators are kept."""

_CHANGES = {"compiler": "the compiler was replaced", "sources": "its sources were edited"}
"""What the server calls what has changed, and how the user is told."""


def longest_first(desc: OpDesc) -> tuple[int, str]:
    """Return a sort key that puts operators which take longest first, in one order whatever the network.

    So no worker begins the longest one when the others are done.
    """
    return -find(desc.family).cost(desc), desc.canonical()


class WorkOwner(Protocol):
    """The attributes of a ``Builder`` that a build under way uses; the builder describes them."""

    config: Config
    force: bool
    claims: Claims | None
    write_debug: Callable[[Sequence[tuple[str, bytes]]], str | None] | None

    def others(self) -> Sequence[Store]:
        """Return stores of other levels, for explaining."""

    def identity(self) -> CompilerIdentity:
        """Return the identity of the compiler."""

    @property
    def max_in_flight(self) -> int:
        """The largest number of operators that a compile server has in flight."""

    def take_server(self) -> Server:
        """Return a compile server, which is the caller's until ``give_server``."""

    def give_server(self, server: Server, /) -> None:
        """Take a compile server back."""

    def finish(self, jobs: Collection[OperatorJob], /) -> BuildResult | None:
        """Note the compiled operators; build the compiler's runtime library if some object calls it."""


@dataclass(eq=False, repr=False)
class Work:
    """A build under way: compiles missing operators in the background; ``Builder.start`` makes it.

    Attributes:
        builder: Says how, and has the compile server.
        network: The network's name, for events.
        all: All operators.
        store: Where all of them are published.
        observer: Told what happens, from the thread.
        started: When the build began.
        compiles: Whether anything may be compiled; else only what was compiled from other sources is taken.
        jobs: Those that must be compiled, in the order of compiling.
    """

    builder: WorkOwner
    network: str
    all: tuple[OperatorJob, ...]
    store: Store
    observer: Observer
    started: float
    compiles: bool = True

    def __post_init__(self) -> None:
        self._config = self.builder.config
        self.jobs = sorted((job for job in self.all if job.must_compile), key=lambda job: longest_first(job.desc))
        self._numbers = {job: number for number, job in enumerate(self.jobs)}
        self._explainer = Explainer(self.store, self.builder.others)
        self._queue = Queue(self.jobs, self.builder.claims, self.builder.max_in_flight, self._config.compile_timeout)
        self._certain = True
        self._result: BuildResult | None = None
        self._not_kept = 0
        self._warnings: list[str] = []
        self._not_stored: list[str] = []
        self._error: BaseException | None = None
        self._server: Server | None = None
        self._stop = threading.Event()
        self._doing: Background[None] | None = None

    def start(self) -> None:
        """Begin.

        Raises:
            BuildError: If the compile server cannot be started.
        """
        if self.jobs:
            self._server = self.builder.take_server()
            self._doing = Background(self._run, "opbuild-build")
            self._doing.start()
        # What other stores lend becomes this build's own.
        lent = [
            (job.store, job.decision)
            for job in self.all
            if isinstance(job.decision, Found) and job.decision.is_cacheable
        ]
        self._not_kept = sum(store.publish(found.entry) is not None for store, found in lent)

    def wait(self) -> None:
        """Wait for its end, whatever became of operators.

        Raises:
            BuildError: If the compiler could not be loaded.
        """
        try:
            if self._doing is not None:
                self._doing.result()
        except BaseException:  # Ctrl-C: what was published stays, what is under way ends
            self._stop.set()
            if self._server is not None:
                self._server.close()
            raise
        if self._error is not None:
            error, self._error = self._error, without_frames(self._error)
            try:
                raise error
            finally:
                del error

    def result(self) -> BuildResult:
        """Wait for the build and return its result; may be called again.

        Raises:
            CompileError: If operators could not be compiled; names each with its nodes and the step that failed. All
                others were compiled and stored.
            BuildError: If the compiler could not be loaded.
        """
        if self._result is None:
            if self.jobs:
                self._join()
            result = self._result = self._collect()
            self.observer(result.told(self.network))
        return self._result

    def _collect(self) -> BuildResult:
        entries = {job.desc: job.entry for job in self.all if job.entry is not None}
        jobs = tuple(job for job in self.all if job.entry is not None)
        runtime = self.builder.finish(jobs)
        warned = (*self._own_warnings(), *self._warnings, *(runtime.warnings if runtime else ()))
        own = not any(job.is_borrowed for job in jobs)
        certain = self._certain and own and (runtime is None or runtime.certain)
        compiler = "" if runtime is None and all(job.is_prebuilt for job in jobs) else self.builder.identity().digest
        return BuildResult(entries, runtime, jobs, perf_counter() - self.started, warned, certain, compiler)

    def _own_warnings(self) -> tuple[str, ...]:
        if not self._not_kept:
            return ()
        entries = counted(self._not_kept, "entry", "entries")
        problem = f"{entries} of other ranks {verb(self._not_kept, 'is', 'are')} used but could not be stored here"
        self.observer(Warned(problem))
        return (problem,)

    def _join(self) -> None:
        self.wait()
        failed = [job for job in self.jobs if job.failure is not None]
        if any(job.is_needed for job in failed):
            raise compile_error(self.jobs)
        if failed:
            self.observer(Warned(str(compile_error(failed))))

    def _run(self) -> None:
        note_pending(self, lambda: len(self._open()) if self.compiles else 0)
        try:
            if not self.builder.force:
                remember_origins(self.jobs)  # while the server starts
            self._serve()
            self._report_not_stored()
        except BaseException as error:  # raised again in the thread that waits
            self._error = error
        finally:
            note_pending(self, None)
            self._release()

    def _serve(self) -> None:
        for number in range(_SERVERS_AT_MOST):
            try:
                if self._server is None:
                    self._server = self.builder.take_server()
                self._compile(self._server)
                return
            except ServerEndedError as error:
                if self._server is not None:
                    self._server.close()
                    self._server = None
                if self._stop.is_set():
                    raise KeyboardInterrupt from error
                self._queue.lost()
                if number + 1 == _SERVERS_AT_MOST:
                    for job in self._open():
                        job.failure = CompileFailure("start", str(error))

    def _compile(self, server: Server) -> None:
        """Have everything compiled that others do not compile, and take their entries."""
        self._fill(server)
        while self._open():
            if self._queue.busy:
                messages = server.receive(self._queue.pause())
            else:
                messages = []
                if self._stop.wait(self._queue.pause()):
                    raise KeyboardInterrupt
                for job, holder, seconds in self._queue.overdue():
                    self.observer(Waiting(job.name, str(holder), seconds))
            for header, _ in messages:
                if header["kind"] in ("done", "failed"):
                    self._queue.answered(self.jobs[header["id"]])
            self._fill(server)  # first, so that no worker waits while an answer is dealt with
            for header, payload in messages:
                self._handle(header, payload)

    def _fill(self, server: Server) -> None:
        """Send the server as much as it has workers for, and a little more; take the entries of others."""
        while (job := self._queue.next()) is not None:
            server.send(self._request(job))
        for job, found in self._queue.taken():
            if found.is_cacheable and (problem := job.store.publish(found.entry)):
                self._not_stored.append(problem)
            self.observer(Taken(found.entry.name, job.reason.text, *self._progress()))

    def _request(self, job: OperatorJob) -> dict[str, Any]:
        return {
            "id": self._numbers[job],
            "desc": job.desc.components(),
            "symbol": job.key.symbol,
            "target": job.key.components["target"],
            "sources": job.key.components["sources"],
            "timeout": self._config.compile_timeout,
            "debug": job.debug or (),
            "known": list(job.origins),
            "compiles": self.compiles,
        }

    def _progress(self) -> tuple[int, int]:
        return len(self.jobs) - len(self._open()), len(self.jobs)

    def _open(self) -> list[OperatorJob]:
        return [job for job in self.jobs if job.open]

    def _handle(self, header: dict[str, Any], payload: bytes) -> None:
        kind = header["kind"]
        if kind == "fatal":
            raise BuildError(f"the compiler cannot be loaded:\n{header['text']}", header["hint"])
        if kind == "ready":
            return
        if kind == "note":
            self.observer(Warned(header["text"]))
            return
        job = self.jobs[header["id"]]
        if kind == "started":
            job.reason = self._explainer.explain(job.key, job.reason)
            self.observer(CompileStarted(job.name, job.reason.text))
            return
        if kind == "done":
            self._finish(job, header, payload)
        else:
            job.failure = CompileFailure(header["step"], header["text"])
        if job.open:  # after all it is compiled
            return
        job.release()
        if job.must_compile:
            self.observer(self._told(job, header.get("milliseconds", 0.0)))
        else:
            self.observer(Taken(job.name, job.reason.text, *self._progress()))

    def _told(self, job: OperatorJob, milliseconds: float) -> CompileFinished:
        """Return the event of an operator that was compiled, or could not be."""
        nbytes = len(job.entry.artifact.data) if job.entry is not None else 0
        failure = "" if job.failure is None else f"step {job.failure.step}: {job.failure.text}"
        return CompileFinished(job.name, milliseconds, *self._progress(), nbytes, job.reason.text, failure)

    def _finish(self, job: OperatorJob, header: dict[str, Any], payload: bytes) -> None:
        files = _split(header, payload)
        job.pipeline = "" if header["changed"] else header["pipeline"]
        try:
            entry = self._entry(job, header, files)
        except ValueError as error:
            job.failure = CompileFailure("check", f"the compiler delivered no usable object: {error}")
            return
        if entry is None:
            self._recompile(job)
            return
        if files:
            job.entry = entry
        else:
            job.adopt(entry)
        if job.debug is not None:
            self._keep(_debug_files(entry, job.key, job.nodes, job.debug, files))
        elif header["changed"]:
            self._certain = False
            self._warn(f"{entry.name} is used but not stored: {_CHANGES[header['changed']]} while it was built", 1)
        elif problem := job.store.publish(entry):
            self._not_stored.append(problem)

    def _entry(self, job: OperatorJob, header: Mapping[str, Any], files: Mapping[str, bytes]) -> Entry | None:
        """Return the entry of a compiled operator, or of one that need not be; None if that is not there any more."""
        pipeline, milliseconds, artifact, origin = header["pipeline"], header["milliseconds"], artifact_of(files), ""
        if artifact is None:
            if not job.origins and self.compiles:  # else it would be asked for again and again
                raise NotAnArtifactError("there is none")
            origin = job.origins.get(pipeline, "")
            found = job.store.lookup(job.key.of_origin(origin)) if origin else None
            if not isinstance(found, Found) or found.entry.pipeline != pipeline:
                return None
            artifact, milliseconds = found.entry.artifact, found.entry.milliseconds
        return make_entry(
            job.desc, job.key, self._config.device_id, artifact, milliseconds,
            nodes=job.nodes, pipeline=pipeline, origin=origin,
        )  # fmt: skip

    def _recompile(self, job: OperatorJob) -> None:
        """Have an operator compiled whose pipeline is another one than before, or whose entry is gone."""
        job.origins = {}
        if self.compiles:
            self._queue.again(job)
        else:
            if job.pipeline:
                job.store.note_origin(job.key, job.pipeline)
            job.failure = CompileFailure("compile", "what its sources define has changed")

    def _keep(self, files: Sequence[tuple[str, bytes]]) -> None:
        """Write the files of an operator that is debugged."""
        write = self.builder.write_debug
        problem = write(files) if files and write is not None else None
        if problem:
            self._warn(f"the files of {files[-1][0]} are not written: {problem}")

    def _report_not_stored(self) -> None:
        if self._not_stored:
            count = len(self._not_stored)
            what = f"{counted(count, 'operator')} {verb(count, 'is', 'are')}"
            self._warn(f"{what} used but not stored, so the next run builds again: {self._not_stored[0]}", count)

    def _warn(self, message: str, not_stored: int = 0) -> None:
        self._warnings.append(message)
        self.observer(Warned(message, not_stored))

    def _release(self) -> None:
        """Keep an idle server for the next build; end one that still works on operators that nobody waits for."""
        for job in self.jobs:
            job.release()
        if self.builder.claims is not None:
            self.builder.claims.close()
        server, self._server = self._server, None
        if server is None:
            return
        if self._error is None and not self._open():
            self.builder.give_server(server)
        else:
            server.close()


_STAGE = re.compile(r"^\s*(?:produce|consume) (\S+) ?\{")


def _split(header: Mapping[str, Any], payload: bytes) -> dict[str, bytes]:
    """Return the files of an answer by suffix: the object, and those of debugging."""
    files, begin = {}, 0
    for suffix, size in header["files"]:
        files[suffix] = payload[begin : begin + size]
        begin += size
    return files


def _debug_files(
    entry: Entry, key: Key, nodes: Sequence[str], options: Collection[str], files: Mapping[str, bytes]
) -> list[tuple[str, bytes]]:
    """Return the names and contents of the files kept of one operator that is debugged; the JSON record comes last."""
    kept = {suffix: content for suffix, content in files.items() if suffix != ".o"}
    if "dump_loc" in options:
        kept["_loc.json"] = record_bytes(_location(entry, key, nodes, files.get(".stmt", b"")))
    if "dump_bin" in options:
        kept |= {".o": entry.object, ".json": record_bytes(entry.record)}
    return [(entry.name + suffix, content) for suffix, content in kept.items()]


def _location(entry: Entry, key: Key, nodes: Sequence[str], statements: bytes) -> dict[str, Any]:
    """Return the map from a kernel to the model: its nodes, its computation, the place of each stage in ``.stmt``."""
    stages: dict[str, list[int]] = {}
    for number, line in enumerate(statements.decode(errors="replace").splitlines(), 1):
        if found := _STAGE.match(line):
            stages.setdefault(found[1], []).append(number)
    return {
        "kernelName": entry.symbol,
        "nodes": list(nodes),
        "op_types": key.components["op_types"],
        "family": key.components["family"],
        "arguments": entry.record["arguments"],
        "stages": stages,
    }


def of_device(needed: Mapping[OpDesc, tuple[str, ...]], device: str) -> dict[OpDesc, tuple[str, ...]]:
    """Return those operators of a network that are for one class of devices, with the nodes that need them."""
    return {desc: nodes for desc, nodes in needed.items() if desc.device == device}


def without_end(observer: Observer) -> Observer:
    """Return an observer that tells another one everything but that a build has ended: it is one of several."""

    def observe(event: Event) -> None:
        if not isinstance(event, BuildFinished):
            observer(event)

    return observe


class SeveralWorks:
    """Builds under way that are one network's."""

    def __init__(self, works: Sequence[Work], order: Sequence[OpDesc], network: str, observer: Observer) -> None:
        self._works, self._order, self._network, self._observer = works, order, network, observer
        self._result: BuildResult | None = None
        self.jobs = [job for work in works for job in work.jobs]

    def result(self) -> BuildResult:
        """Wait for all and return their results; see ``Work.result``."""
        if self._result is None:
            result = self._result = self._joined()
            self._observer(result.told(self._network))
        return self._result

    def _joined(self) -> BuildResult:
        results, failed = [], []
        for work in self._works:
            try:
                results.append(work.result())
            except Exception as error:  # what others compile is kept all the same
                failed.append(error)
        if failed:
            raise failed[0]
        entries = {desc: entry for result in results for desc, entry in result.entries.items()}
        decisions = {job.desc: job for result in results for job in result.decisions}
        return replace(
            results[0],
            entries={desc: entries[desc] for desc in self._order if desc in entries},
            decisions=tuple(decisions[desc] for desc in self._order if desc in decisions),
            seconds=max(result.seconds for result in results),
            warnings=tuple(warning for result in results for warning in result.warnings),
            certain=all(result.certain for result in results),
        )


UnderWay = Work | SeveralWorks
"""A build under way, of one device or of several."""
