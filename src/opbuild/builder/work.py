"""Doing: a thread hands jobs to the compile server, checks what comes back, and publishes it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Protocol

from opbuild.builder.client import CompileServer, ServerEndedError
from opbuild.builder.debug import debug_files, split_answer
from opbuild.builder.explain import Explainer
from opbuild.builder.job import Job
from opbuild.builder.queue import Queue
from opbuild.builder.result import Failure, compile_error
from opbuild.builder.wire import REPLACED
from opbuild.config import Config
from opbuild.errors import BuildError
from opbuild.events import CompileFinished, CompileStarted, Observer, Taken, Waiting, Warned
from opbuild.kernel.elf import NotAnObjectError
from opbuild.kernel.entry import make_entry
from opbuild.kernel.interfaces import Claim, Claims, Folder
from opbuild.kernel.key import Key
from opbuild.kernel.opdesc import OpDesc
from opbuild.kernel.runtime_desc import needs_runtime

_SERVERS_AT_MOST = 2
"""A server that was killed from outside (out of memory, say) is replaced once; its finished operators are kept."""


_FEW = 3
"""Up to this many operators the runtime library waits until one turns out to need it: small ones run in one thread and
need none, and it takes ten times as long to compile."""

_RUNTIME = -1
"""The number of the request for the runtime library; operators have their index."""


def request_runtime(server: CompileServer, desc: OpDesc, key: Key, target: str, timeout: float, claim: Claim) -> None:
    """Ask a server for the runtime library, once.

    Args:
        server: Keeps the claim until it has answered or ends.
        desc: The runtime library's descriptor.
        key: Its key.
        target: The target's spelling.
        timeout: Seconds that it may take.
        claim: The right to compile it.

    Raises:
        ServerEndedError: If the server has ended.
    """
    server.begin_runtime(claim)
    server.send(_request(_RUNTIME, desc, key, target, timeout))


def _request(
    number: int, desc: OpDesc, key: Key, target: str, timeout: float, debug: Sequence[str] | None = None
) -> dict[str, Any]:
    request: dict[str, Any] = {
        "id": number,
        "desc": desc.components(),
        "symbol": key.symbol,
        "target": target,
        "timeout": timeout,
    }
    return request | {"debug": list(debug)} if debug else request


class Servers(Protocol):
    """Where a build gets its compile server from."""

    def take_server(self) -> CompileServer:
        """Return a server that belongs to the caller."""

    def give_server(self, server: CompileServer) -> None:
        """Take back a server that has nothing left to do."""


class Work:
    """Compiles jobs in the background.

    Args:
        servers: Where the compile server comes from.
        config: Time-out, workers and device.
        observer: Told what happens, from the thread.
        target: The target's spelling.
        jobs: The operators, in the order in which to compile them.
        runtime: The runtime library, compiled first, beside the operators, or after them if they are few; None if it is
            stored or never needed.
        runtime_certain: Whether a stored object needs the runtime; if not, it is given up when no new one does either.
        explainer: Refines the reasons of ``jobs`` while the server is busy.
        claims: Who compiles what; None asks nobody.
        debug_folder: Where the files of operators that are debugged go; None keeps none.

    Attributes:
        jobs: All jobs in the order of compiling, the runtime library among them.
        certain: Whether every object is what its key says: no source and no compiler changed meanwhile.
    """

    def __init__(
        self,
        servers: Servers,
        config: Config,
        *,
        observer: Observer,
        target: str,
        jobs: Sequence[Job],
        runtime: Job | None,
        runtime_certain: bool,
        explainer: Explainer,
        claims: Claims | None = None,
        debug_folder: Folder | None = None,
    ) -> None:
        self._servers = servers
        self._config = config
        self._observer = observer
        self._target = target
        self._operators = list(jobs)
        self._numbers = {job: number for number, job in enumerate(self._operators)}
        self._runtime = runtime
        self._runtime_certain = runtime_certain
        self._explainer = explainer
        self._claims = claims
        self._debug_folder = debug_folder
        self.jobs = ([runtime] if runtime else []) + self._operators
        self._queue = Queue(self._operators, claims, config.workers + 1, config.compile_timeout)
        self.certain = True
        self._warnings: list[str] = []
        self._not_stored: list[str] = []
        self._error: BaseException | None = None
        self._server: CompileServer | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="opbuild-build", daemon=True)

    def start(self) -> None:
        """Begin.

        Raises:
            BuildError: If the compile server can not be started.
        """
        if self.jobs:
            self._server = self._servers.take_server()
            self._thread.start()

    def join(self) -> tuple[str, ...]:
        """Wait for the end and return warnings.

        Raises:
            CompileError: If operators could not be compiled.
            BuildError: If the compiler could not be loaded.
        """
        if not self.jobs:
            return ()
        try:
            self._thread.join()
        except BaseException:  # Ctrl-C: what was published stays, what is under way ends
            self._stop.set()
            if self._server is not None:
                self._server.close()
            raise
        if self._error is not None:
            raise self._error
        tolerated = None if self._needs_runtime() else self._runtime
        failures = [job.failure for job in self.jobs if job.failure is not None and job is not tolerated]
        if failures:
            raise compile_error(failures, sum(job.entry is not None for job in self._operators))
        return tuple(self._warnings)

    def delivered(self) -> dict[OpDesc, Job]:
        """Return the jobs that are done."""
        return {job.desc: job for job in self.jobs if job.entry is not None}

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
                    self._server = self._servers.take_server()
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
                    for job in self._awaited():
                        job.failure = Failure(job.key.name(self._config.device_id), job.nodes, "start", str(error))

    def _compile(self, server: CompileServer) -> None:
        """Have everything compiled that others do not compile, and take what they do."""
        if self._runtime is not None and server.runtime_requested:
            self._queue.begun(self._runtime)
        self._fill(server)
        while self._awaited():
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
                self._handle(server, header, payload)
            self._fill(server)  # an answer may show that the runtime library is needed

    def _fill(self, server: CompileServer) -> None:
        """Send the server what it has workers for, and a little more; take what others built."""
        timeout = self._config.compile_timeout
        if self._wants_runtime() and self._runtime is not None and not server.runtime_requested:
            self._queue.add_first(self._runtime)
        while (job := self._queue.next()) is not None:
            if job is self._runtime and job.claim is not None:
                claim, job.claim = job.claim, None
                request_runtime(server, job.desc, job.key, self._target, timeout, claim)
            else:
                server.send(_request(self._numbers[job], job.desc, job.key, self._target, timeout, job.debug))
        for job, found in self._queue.taken():
            if found.source and (problem := job.store.publish(found.entry)):
                self._not_stored.append(problem)
            if job is not self._runtime:
                self._observer(Taken(found.entry.name, job.reason.text, *self._progress()))

    def _say(self) -> None:
        for job, holder, seconds in self._queue.to_say():
            self._observer(Waiting(job.key.name(self._config.device_id), str(holder), seconds))

    def _progress(self) -> tuple[int, int]:
        return sum(not job.open for job in self._operators), len(self._operators)

    def _awaited(self) -> list[Job]:
        """Return the jobs still to wait for: the runtime library only as long as some object may need it."""
        waiting = [job for job in self._operators if job.open]
        if self._runtime is not None and self._runtime.open and (waiting or self._needs_runtime()):
            waiting.append(self._runtime)
        return waiting

    def _needs_runtime(self) -> bool:
        entries = (job.entry for job in self._operators if job.entry is not None)
        return self._runtime_certain or any(needs_runtime(entry.undefined) for entry in entries)

    def _wants_runtime(self) -> bool:
        return (
            self._runtime is not None and self._runtime.open and (len(self._operators) > _FEW or self._needs_runtime())
        )

    def _job(self, number: int) -> Job | None:
        return self._runtime if number == _RUNTIME else self._operators[number]

    def _free(self, header: dict[str, Any]) -> None:
        """Take note that a worker has nothing left to do for a job."""
        if header["kind"] in ("done", "failed") and (job := self._job(header["id"])) is not None:
            self._queue.answered(job)

    def _handle(self, server: CompileServer, header: dict[str, Any], payload: bytes) -> None:
        kind = header["kind"]
        if kind == "fatal":
            raise BuildError(f"the compiler can not be loaded:\n{header['text']}", "reinstall opbuild and its compiler")
        if kind == "ready":
            return
        job = self._job(header["id"])
        if job is not None:  # else the runtime library, asked for before it was known that no operator needs it
            name = job.key.name(self._config.device_id)
            if kind == "started":
                job.reason = self._explainer.explain(job.key, job.reason) if job is not self._runtime else job.reason
                self._observer(CompileStarted(name, job.reason.text))
                return
            if kind == "done":
                self._finish(job, header, payload)
            else:
                job.failure = Failure(name, job.nodes, header["step"], header["text"])
            job.release()
            if job is not self._runtime:
                self._observer(CompileFinished(name, header.get("milliseconds", 0.0), *self._progress()))
        if header["id"] == _RUNTIME and kind != "started":
            server.end_runtime()

    def _finish(self, job: Job, header: dict[str, Any], payload: bytes) -> None:
        device, milliseconds = self._config.device_id, header["milliseconds"]
        object_, files = split_answer(header, payload)
        try:
            entry = make_entry(job.desc, job.key, device, object_, milliseconds, nodes=job.nodes, shapes=job.shapes)
        except NotAnObjectError as error:
            text = f"the compiler delivered no usable object: {error}"
            job.failure = Failure(job.key.name(device), job.nodes, "check", text)
            return
        job.entry = entry
        if job.debug is not None:
            self._keep(debug_files(entry, job.key, job.nodes, job.debug, files))
        elif header["sources"] != job.key.components["sources"]:
            self.certain = False
            what = "the compiler was replaced" if header["sources"] == REPLACED else "its sources were edited"
            self._warn(f"{entry.name} is used but not stored: {what} while it was built", 1)
        elif problem := job.store.publish(entry):
            self._not_stored.append(problem)

    def _keep(self, files: Sequence[tuple[str, bytes]]) -> None:
        """Write the files of an operator that is debugged."""
        problem = self._debug_folder.write(files) if files and self._debug_folder is not None else None
        if problem:
            self._warn(f"the files of {files[-1][0]} are not written: {problem}")

    def _report_not_stored(self) -> None:
        if self._not_stored:
            count = len(self._not_stored)
            what = "1 operator is" if count == 1 else f"{count} operators are"
            self._warn(f"{what} used but not stored, so the next run builds again: {self._not_stored[0]}", count)

    def _warn(self, message: str, not_stored: int = 0) -> None:
        self._warnings.append(message)
        self._observer(Warned(message, not_stored))

    def _release(self) -> None:
        """Keep a server that is idle for the next build; end one that still works on what nobody waits for."""
        for job in self.jobs:
            job.release()
        if self._claims is not None:
            self._claims.close()
        server, self._server = self._server, None
        if server is None:
            return
        if self._error is None and not server.runtime_requested and not any(job.open for job in self._operators):
            self._servers.give_server(server)
        else:
            server.close()
