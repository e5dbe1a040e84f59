"""Doing: in the background jobs go to the compile server, and what comes back is checked and published.

Who started it waits for the result meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

from opbuild.builder.client import CompileServer, ServerEndedError
from opbuild.builder.debug import debug_files, split_answer
from opbuild.builder.explain import Explainer
from opbuild.builder.job import Failure, Job
from opbuild.builder.queue import Queue
from opbuild.builder.result import BuildResult, compile_error
from opbuild.errors import BuildError
from opbuild.events import BuildFinished, CompileFinished, CompileStarted, Observer, Taken, Waiting, Warned
from opbuild.kernel.elf import NotAnObjectError
from opbuild.kernel.entry import Entry, make_entry
from opbuild.kernel.interfaces import Found, Store
from opbuild.platform.background import Background
from opbuild.text.plural import counted, verb

if TYPE_CHECKING:
    from opbuild.builder.build import Builder

_SERVERS_AT_MOST = 2
"""A server that was killed from outside (out of memory, say) is replaced once; its finished operators are kept."""

_CHANGES = {"compiler": "the compiler was replaced", "sources": "its sources were edited"}
"""What the server calls what has changed, and how the user is told."""


class Work:
    """Compiles jobs in the background.

    Args:
        builder: Says how, and has the compile server.
        jobs: The operators, in the order in which to compile them.
        store: Where all of them are published.
        observer: Told what happens, from the thread.

    Attributes:
        jobs: All jobs in the order of compiling.
        observer: As it was given.
        certain: Whether every object is what its key says: no source and no compiler changed meanwhile.
    """

    def __init__(self, builder: Builder, jobs: Sequence[Job], store: Store, observer: Observer) -> None:
        self._builder = builder
        self._config = builder.config
        self.observer = observer
        self.jobs = tuple(jobs)
        self._numbers = {job: number for number, job in enumerate(self.jobs)}
        self._explainer = Explainer(store, builder.others)
        self._queue = Queue(self.jobs, builder.claims, self._config.workers + 1, self._config.compile_timeout)
        self.certain = True
        self._warnings: list[str] = []
        self._not_stored: list[str] = []
        self._error: BaseException | None = None
        self._server: CompileServer | None = None
        self._stop = threading.Event()
        self._doing = Background(self._run, "opbuild-build")

    def start(self) -> None:
        """Begin.

        Raises:
            BuildError: If the compile server can not be started.
        """
        if self.jobs:
            self._server = self._builder.take_server()
            self._doing.start()

    def join(self) -> tuple[str, ...]:
        """Wait for the end and return warnings.

        Raises:
            CompileError: If operators could not be compiled.
            BuildError: If the compiler could not be loaded.
        """
        if not self.jobs:
            return ()
        try:
            self._doing.result()
        except BaseException:  # Ctrl-C: what was published stays, what is under way ends
            self._stop.set()
            if self._server is not None:
                self._server.close()
            raise
        if self._error is not None:
            raise self._error
        if any(job.failure is not None for job in self.jobs):
            raise compile_error(self.jobs)
        return tuple(self._warnings)

    def _run(self) -> None:
        try:
            self._serve()
            self._report_not_stored()
        except BaseException as error:  # raised again in the thread that waits
            self._error = error
        finally:
            self._release()

    def _serve(self) -> None:
        for number in range(_SERVERS_AT_MOST):
            try:
                if self._server is None:
                    self._server = self._builder.take_server()
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
                        job.failure = Failure("start", str(error))

    def _compile(self, server: CompileServer) -> None:
        """Have everything compiled that others do not compile, and take what they do."""
        self._fill(server)
        while self._open():
            if self._queue.busy:
                messages = server.receive(self._queue.pause())
            else:
                messages = []
                if self._stop.wait(self._queue.pause()):
                    raise KeyboardInterrupt
                self._say()
            for header, _ in messages:
                self._free(header)
            self._fill(server)  # first, so that no worker waits while an answer is dealt with
            for header, payload in messages:
                self._handle(header, payload)

    def _fill(self, server: CompileServer) -> None:
        """Send the server what it has workers for, and a little more; take what others built."""
        while (job := self._queue.next()) is not None:
            server.send(self._request(job))
        for job, found in self._queue.taken():
            if found.source and (problem := job.store.publish(found.entry)):
                self._not_stored.append(problem)
            self.observer(Taken(found.entry.name, job.reason.text, *self._progress()))

    def _request(self, job: Job) -> dict[str, Any]:
        return {
            "id": self._numbers[job],
            "desc": job.desc.components(),
            "symbol": job.key.symbol,
            "target": str(self._builder.target),
            "sources": job.key.components["sources"],
            "timeout": self._config.compile_timeout,
            "debug": job.debug or (),
        }

    def _say(self) -> None:
        for job, holder, seconds in self._queue.overdue():
            self.observer(Waiting(job.name, str(holder), seconds))

    def _progress(self) -> tuple[int, int]:
        return len(self.jobs) - len(self._open()), len(self.jobs)

    def _open(self) -> list[Job]:
        return [job for job in self.jobs if job.open]

    def _free(self, header: dict[str, Any]) -> None:
        """Take note that a worker has nothing left to do for a job."""
        if header["kind"] in ("done", "failed"):
            self._queue.answered(self.jobs[header["id"]])

    def _handle(self, header: dict[str, Any], payload: bytes) -> None:
        kind = header["kind"]
        if kind == "fatal":
            raise BuildError(f"the compiler can not be loaded:\n{header['text']}", header["hint"])
        if kind == "ready":
            return
        job = self.jobs[header["id"]]
        if kind == "started":
            job.reason = self._explainer.explain(job.key, job.reason)
            self.observer(CompileStarted(job.name, job.reason.text))
            return
        if kind == "done":
            self._finish(job, header, payload)
        else:
            job.failure = Failure(header["step"], header["text"])
        job.release()
        self.observer(CompileFinished(job.name, header.get("milliseconds", 0.0), *self._progress()))

    def _finish(self, job: Job, header: dict[str, Any], payload: bytes) -> None:
        device, milliseconds = self._config.device_id, header["milliseconds"]
        files = split_answer(header, payload)
        try:
            entry = make_entry(job.desc, job.key, device, files[".o"], milliseconds, nodes=job.nodes)
        except NotAnObjectError as error:
            job.failure = Failure("check", f"the compiler delivered no usable object: {error}")
            return
        job.entry = entry
        if job.debug is not None:
            self._keep(debug_files(entry, job.key, job.nodes, job.debug, files))
        elif header["changed"]:
            self.certain = False
            self._warn(f"{entry.name} is used but not stored: {_CHANGES[header['changed']]} while it was built", 1)
        elif problem := job.store.publish(entry):
            self._not_stored.append(problem)

    def _keep(self, files: Sequence[tuple[str, bytes]]) -> None:
        """Write the files of an operator that is debugged."""
        write = self._builder.write_debug
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
        """Keep a server that is idle for the next build; end one that still works on what nobody waits for."""
        for job in self.jobs:
            job.release()
        if self._builder.claims is not None:
            self._builder.claims.close()
        server, self._server = self._server, None
        if server is None:
            return
        if self._error is None and not self._open():
            self._builder.give_server(server)
        else:
            server.close()


class PendingBuild:
    """A build under way; ``Builder.start`` makes it.

    Args:
        network: The network's name, for events.
        jobs: All operators.
        work: Compiles those that must be.
        after: Called when all are there; returns the compiler's runtime library, if they call it.
        started: When the build began.
    """

    def __init__(
        self,
        network: str,
        jobs: Sequence[Job],
        work: Work,
        after: Callable[[Collection[Job]], BuildResult | None],
        started: float,
    ) -> None:
        self._network = network
        self._jobs = tuple(jobs)
        self._work = work
        self._after = after
        self._started = started
        self._not_kept = _keep(jobs)
        self._result: BuildResult | None = None

    def result(self) -> BuildResult:
        """Wait for the build and return what it delivered; may be called again.

        Raises:
            CompileError: If operators could not be compiled; names each with its nodes and the step that failed. All
                others were compiled and stored.
            BuildError: If the compiler could not be loaded.
        """
        if self._result is None:
            result = self._result = self._collect(self._work.join())
            self._work.observer(BuildFinished(self._network, result.built, result.reused, result.seconds))
        return self._result

    def _collect(self, warnings: tuple[str, ...]) -> BuildResult:
        runtime = self._after(self._jobs)
        entries = {job.desc: cast("Entry", job.entry) for job in self._jobs}
        warned = (*self._own_warnings(), *warnings, *(runtime.warnings if runtime else ()))
        certain = self._work.certain and (runtime is None or runtime.certain)
        return BuildResult(entries, runtime, self._jobs, perf_counter() - self._started, warned, certain)

    def _own_warnings(self) -> tuple[str, ...]:
        if not self._not_kept:
            return ()
        entries = counted(self._not_kept, "entry", "entries")
        problem = f"{entries} of other ranks {verb(self._not_kept, 'is', 'are')} used but could not be stored here"
        self._work.observer(Warned(problem))
        return (problem,)


def _keep(jobs: Sequence[Job]) -> int:
    """Make what other stores lend this build's own; return how many entries could not be stored."""
    lent = [job for job in jobs if isinstance(job.decision, Found) and job.decision.source]
    return sum(job.store.publish(cast("Entry", job.entry)) is not None for job in lent)
