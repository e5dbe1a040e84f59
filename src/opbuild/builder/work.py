"""Doing: in the background jobs go to the compile server, and what comes back is checked and published."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Protocol

from opbuild.builder.client import CompileServer, ServerEndedError
from opbuild.builder.debug import debug_files, split_answer
from opbuild.builder.explain import Explainer
from opbuild.builder.job import Failure, Job
from opbuild.builder.queue import Queue
from opbuild.builder.result import compile_error
from opbuild.config import Config
from opbuild.errors import BuildError
from opbuild.events import CompileFinished, CompileStarted, Observer, Taken, Waiting, Warned
from opbuild.kernel.elf import NotAnObjectError
from opbuild.kernel.entry import make_entry
from opbuild.kernel.interfaces import Claims, Folder
from opbuild.platform.background import Background
from opbuild.text.plural import counted, verb

_SERVERS_AT_MOST = 2
"""A server that was killed from outside (out of memory, say) is replaced once; its finished operators are kept."""

_CHANGES = {"compiler": "the compiler was replaced", "sources": "its sources were edited"}
"""What the server calls what has changed, and how the user is told."""


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
        explainer: Refines the reasons of ``jobs`` while the server is busy.
        claims: Who compiles what; None asks nobody.
        debug_folder: Where the files of operators that are debugged go; None keeps none.

    Attributes:
        jobs: All jobs in the order of compiling.
        observer: As it was given.
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
        explainer: Explainer,
        claims: Claims | None = None,
        debug_folder: Folder | None = None,
    ) -> None:
        self._servers = servers
        self._config = config
        self.observer = observer
        self._target = target
        self.jobs = tuple(jobs)
        self._numbers = {job: number for number, job in enumerate(self.jobs)}
        self._explainer = explainer
        self._claims = claims
        self._debug_folder = debug_folder
        self._queue = Queue(self.jobs, claims, config.workers + 1, config.compile_timeout)
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
            self._server = self._servers.take_server()
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
            "target": self._target,
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
        problem = self._debug_folder.write(files) if files and self._debug_folder is not None else None
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
        if self._claims is not None:
            self._claims.close()
        server, self._server = self._server, None
        if server is None:
            return
        if self._error is None and not self._open():
            self._servers.give_server(server)
        else:
            server.close()
