"""Doing: a thread hands jobs to the compile server, checks what comes back, and publishes it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from opbuild.builder.client import CompileServer, ServerEndedError
from opbuild.builder.debug import debug_files, split_answer
from opbuild.builder.explain import Explainer
from opbuild.builder.result import Failure, compile_error
from opbuild.config import Config
from opbuild.errors import BuildError
from opbuild.events import CompileFinished, CompileStarted, Observer, Warned
from opbuild.kernel.elf import NotAnObjectError
from opbuild.kernel.entry import Entry, make_entry
from opbuild.kernel.interfaces import Folder, Reason, Store
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


def request_runtime(server: CompileServer, desc: OpDesc, key: Key, target: str, timeout: float) -> None:
    """Ask a server for the runtime library, once.

    Raises:
        ServerEndedError: If the server has ended.
    """
    server.send(_request(_RUNTIME, desc, key, target, timeout))
    server.runtime_requested = True


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


@dataclass(eq=False)
class Job:
    """One operator to compile.

    Attributes:
        desc: The operator.
        key: Its key.
        nodes: The nodes that need it.
        shapes: The operands' shapes that first asked, for ``.info``.
        store: Where it is published.
        reason: Why it must be compiled.
        debug: The options that it is debugged with, and then not published; None if it is not.
        entry: What came out, once it did.
        failure: How it failed, if it did.
    """

    desc: OpDesc
    key: Key
    nodes: tuple[str, ...]
    shapes: Sequence[Sequence[int]] | None
    store: Store
    reason: Reason
    debug: tuple[str, ...] | None = None
    entry: Entry | None = None
    failure: Failure | None = None

    @property
    def open(self) -> bool:
        """Whether it is neither compiled nor failed."""
        return self.entry is None and self.failure is None


class Work:
    """Compiles jobs in the background.

    Args:
        servers: Where the compile server comes from.
        config: Time-out and device.
        observer: Told what happens, from the thread.
        target: The target's spelling.
        jobs: The operators, in the order in which to compile them.
        runtime: The runtime library, compiled first, beside the operators, or after them if they are few; None if it is
            stored or never needed.
        runtime_certain: Whether a stored object needs the runtime; if not, it is given up when no new one does either.
        explainer: Refines the reasons of ``jobs`` while the server is busy.
        debug_folder: Where the files of operators that are debugged go; None keeps none.

    Attributes:
        jobs: All jobs in the order of compiling, the runtime library among them.
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
        debug_folder: Folder | None = None,
    ) -> None:
        self._servers = servers
        self._config = config
        self._observer = observer
        self._target = target
        self._operators = list(jobs)
        self._runtime = runtime
        self._runtime_certain = runtime_certain
        self._explainer = explainer
        self._debug_folder = debug_folder
        self.jobs = ([runtime] if runtime else []) + self._operators
        self._warnings: list[str] = []
        self._not_stored: list[str] = []
        self._error: BaseException | None = None
        self._server: CompileServer | None = None
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

    def compiled(self) -> dict[OpDesc, tuple[Entry, Reason]]:
        """Return what was compiled so far, each with the reason why it had to be."""
        return {job.desc: (job.entry, job.reason) for job in self.jobs if job.entry is not None}

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
                self._request(self._server)
                self._explain()
                while self._awaited():
                    for header, payload in self._server.receive():
                        self._handle(header, payload)
                return
            except ServerEndedError as error:
                if self._server is not None:
                    self._server.close()
                    self._server = None
                if number + 1 == _SERVERS_AT_MOST:
                    for job in self._awaited():
                        job.failure = Failure(job.key.name(self._config.device_id), job.nodes, "start", str(error))

    def _request(self, server: CompileServer) -> None:
        timeout = self._config.compile_timeout
        if len(self._operators) > _FEW or self._needs_runtime():
            self._request_runtime(server)
        for number, job in enumerate(self._operators):
            if job.open:
                server.send(_request(number, job.desc, job.key, self._target, timeout, job.debug))

    def _request_runtime(self, server: CompileServer) -> None:
        if self._runtime is not None and self._runtime.open and not server.runtime_requested:
            request_runtime(server, self._runtime.desc, self._runtime.key, self._target, self._config.compile_timeout)

    def _explain(self) -> None:
        for job in self._operators:
            job.reason = self._explainer.explain(job.key, job.reason)

    def _awaited(self) -> list[Job]:
        """Return the jobs still to wait for: the runtime library only as long as some object may need it."""
        waiting = [job for job in self._operators if job.open]
        if self._runtime is not None and self._runtime.open and (waiting or self._needs_runtime()):
            waiting.append(self._runtime)
        return waiting

    def _needs_runtime(self) -> bool:
        entries = (job.entry for job in self._operators if job.entry is not None)
        return self._runtime_certain or any(needs_runtime(entry.undefined) for entry in entries)

    def _handle(self, header: dict[str, Any], payload: bytes) -> None:
        kind = header["kind"]
        if kind == "fatal":
            raise BuildError(f"the compiler can not be loaded:\n{header['text']}", "reinstall opbuild and its compiler")
        if kind == "ready":
            return
        if header["id"] == _RUNTIME and kind != "started" and self._server is not None:
            self._server.runtime_requested = False
        job = self._runtime if header["id"] == _RUNTIME else self._operators[header["id"]]
        if job is None:
            return  # the runtime library, asked for before it was known that no operator needs it
        name = job.key.name(self._config.device_id)
        if kind == "started":
            self._observer(CompileStarted(name, job.reason.text))
            return
        if kind == "done":
            self._finish(job, header, payload)
            if self._server is not None and self._needs_runtime():
                self._request_runtime(self._server)
        else:
            job.failure = Failure(name, job.nodes, header["step"], header["text"])
        if job is not self._runtime:
            done = sum(not job.open for job in self._operators)
            self._observer(CompileFinished(name, header.get("milliseconds", 0.0), done, len(self._operators)))

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
            self._warn(f"{entry.name} is used but not stored: its sources were edited while it was built")
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
            self._warn(f"{what} used but not stored, so the next run builds again: {self._not_stored[0]}")

    def _warn(self, message: str) -> None:
        self._warnings.append(message)
        self._observer(Warned(message))

    def _release(self) -> None:
        """Keep a server that is idle for the next build; end one that still works on what nobody waits for."""
        server, self._server = self._server, None
        if server is None:
            return
        if self._error is None and not server.runtime_requested and not any(job.open for job in self._operators):
            self._servers.give_server(server)
        else:
            server.close()
