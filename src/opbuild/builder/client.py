"""The builder's side of the compile server: starts it, sends requests, receives answers, ends it.

One idle server rests between builds, so that the next build of the process need not start one: that takes a quarter of
a second, as long as two operators take to compile; code that runs operator by operator builds hundreds of networks of
one operator each.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterable, Iterator
from typing import IO, Any, cast

from opbuild.builder.wire import Unpacker, check_answer, pack
from opbuild.config import compiler_environment
from opbuild.errors import BuildError
from opbuild.kernel.identity import FilesState
from opbuild.platform.background import begin
from opbuild.platform.limits import hint_for, hint_for_signal, suspected
from opbuild.platform.paths import Path
from opbuild.platform.slots import LOW, URGENT
from opbuild.platform.sources import SourceFiles, recompile_outdated

LOW_PRIORITY = 10
"""Niceness of a server for whose work nobody waits."""

_CHUNK = 1 << 16
_SHOWN_OUTPUT = 2000
_PACKAGE_ROOT = str(Path(__file__).resolve().parents[2])


class ServerEndedError(Exception):
    """The server ended although requests were open; the text is its last output."""


class CompileServer:
    """A running server process. One thread at a time may use it.

    Args:
        import_string: ``module:Class`` of the compiler.
        workers: Operators compiled at once.
        is_urgent: Whether anybody waits for them; else they have the processor after all others.

    Attributes:
        worked: Whether it has answered.
        kind: What it is, to compare with what another would be; None is like no other.
        compiler: State of the compiler's files when it was identified; objects of another are marked in the answers.

    Raises:
        BuildError: If no process can be started.
    """

    def __init__(self, import_string: str, workers: int, *, is_urgent: bool = True) -> None:
        if not sys.executable:
            raise BuildError("no compile server can be started: this interpreter does not know its executable")
        self.worked = False
        self.kind: object = None
        self.compiler: FilesState = ()
        self._output = _private_file()
        command = [sys.executable, "-m", "opbuild.builder.server", import_string, str(workers)]
        command.append(URGENT if is_urgent else LOW)
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._output if self._output is not None else subprocess.DEVNULL,
                bufsize=0,
                env=server_environment(),
                cwd="/",  # the user's folder may hold a halide.py, or be removed
                start_new_session=True,  # Ctrl-C is for the user's process, which then ends the server
            )
        except OSError as error:
            message = f"no compile server can be started: {error.strerror or error}"
            raise BuildError(message, hint_for(error)) from error
        self._requests = cast("IO[bytes]", self._process.stdin).fileno()
        self._answers = cast("IO[bytes]", self._process.stdout).fileno()
        self._unpacker = Unpacker()
        self._asked: set[int] = set()
        self._waiting: list[tuple[dict[str, Any], bytes]] = []
        # As a callback only of a server that an interrupt has dropped: all others are closed.
        self._end = weakref.finalize(self, _end_process, self._process, os.getpid())  # noqa: TID251
        self.set_idle(idle=False)
        if not is_urgent:
            with contextlib.suppress(OSError):  # processes that it starts from now on let others go first, too
                os.setpriority(os.PRIO_PROCESS, self._process.pid, LOW_PRIORITY)

    @property
    def alive(self) -> bool:
        """Whether the server runs."""
        return self._end.alive and self._process.poll() is None

    def set_idle(self, *, idle: bool) -> None:
        """Say whether the server is idle, so that it is ended where the program begins to end.

        One that works ends with the program itself, when nobody is left who could write requests: threads of the
        program, which go on until then, would take it for a fault.
        """
        self._end.atexit = idle

    def send(self, header: dict[str, Any]) -> None:
        """Send one request; answers of the server meanwhile are kept for ``receive``.

        The server may wait for its answers to be read before it reads a request, so this must not wait for the server
        alone.

        Raises:
            ServerEndedError: If the server has ended.
        """
        poll = select.poll()
        poll.register(self._requests, select.POLLOUT)
        poll.register(self._answers, select.POLLIN)
        self._asked.add(header.get("id", -1))
        view = memoryview(pack({**header, "compiler": self.compiler}))
        while view:
            ready = dict(poll.poll())
            if self._answers in ready:
                self._waiting += self._read()
            if self._requests in ready:
                try:
                    view = view[os.write(self._requests, view[: select.PIPE_BUF]) :]  # so much is written at once
                except (OSError, ValueError) as error:
                    raise self._ended_error() from error

    def receive(self, timeout: float | None = None) -> list[tuple[dict[str, Any], bytes]]:
        """Wait for answers and return them.

        Args:
            timeout: Seconds after which to return none if none has begun to come; None: wait for one.

        Raises:
            ServerEndedError: If the server ended instead.
        """
        if not self._waiting and timeout is not None:
            poll = select.poll()
            poll.register(self._answers, select.POLLIN)
            if not poll.poll(timeout * 1e3):
                return []
        while not self._waiting:
            self._waiting += self._read()
        messages, self._waiting = self._waiting, []
        self.worked = True
        return messages

    def _read(self) -> list[tuple[dict[str, Any], bytes]]:
        """Return the answers that the next bytes complete; waits for bytes."""
        try:
            data = os.read(self._answers, _CHUNK)
            messages = self._unpacker.feed(data)
            for header, payload in messages:
                check_answer(header, payload)
                if "id" in header and header["id"] not in self._asked:
                    raise ValueError("an answer is to nothing that was asked")
        except (OSError, ValueError) as error:
            raise self._ended_error() from error
        if not data:
            raise self._ended_error()
        return messages

    def close(self) -> None:
        """End the server and whatever it compiles; harmless if it has ended."""
        self._end()
        if self._output is not None:
            self._output.close()
            self._output = None

    def _ended_error(self) -> ServerEndedError:
        said = ""
        if self._output is not None:
            with contextlib.suppress(OSError, ValueError):
                size = self._output.seek(0, os.SEEK_END)
                self._output.seek(max(0, size - _SHOWN_OUTPUT))
                said = self._output.read().decode(errors="replace").strip()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        code = self._process.returncode
        hint = (hint_for_signal(-code) if code is not None and code < 0 else "") or suspected()
        what = "said what is no answer" if code is None else f"ended with code {code}"
        text = f"the compile server {what}" + (f": {said}" if said else "")
        return ServerEndedError(f"{text} ({hint})" if hint else text)


def server_environment() -> dict[str, str]:
    """Return the server's whole environment: the compilers' fixed one, and this process's module search path."""
    entries = list(dict.fromkeys(_absolute(sys.path)))
    if _PACKAGE_ROOT not in entries:
        entries.append(_PACKAGE_ROOT)
    return compiler_environment() | {"PYTHONPATH": os.pathsep.join(entries), "PYTHONSAFEPATH": "1"}


def _absolute(entries: Iterable[str]) -> Iterator[str]:
    """Yield the entries of a search path, absolute; those that are relative to a folder which is gone lead nowhere."""
    for entry in entries:
        with contextlib.suppress(OSError):
            yield str(Path(entry).absolute())


def _private_file() -> IO[bytes] | None:
    """Return a file without a name for the server's output; None where there are none."""
    try:
        return os.fdopen(os.memfd_create("opbuild-compile-server"), "w+b", buffering=0)
    except (AttributeError, OSError):
        return None


def _end_process(process: subprocess.Popen[bytes], owner: int) -> None:
    """End a server at once; its children end with it. A fork of the process that started it only lets go of it."""
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
    if os.getpid() != owner:
        return
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


IDLE_SECONDS = 10.0
"""How long a server rests before it is ended; it holds about 100 MB of memory."""


class IdleServer:
    """Keeps at most one server. Any thread may use it; a process forked from this one begins with none."""

    _lock: threading.Lock
    _server: CompileServer | None
    _taken: threading.Event

    def __init__(self, seconds: float = IDLE_SECONDS) -> None:
        self._seconds = seconds
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def start(self, import_string: str, workers: int, compiler: FilesState) -> CompileServer:
        """Return the idle server if it is just like a new one, else a new one.

        Raises:
            BuildError: If no process can be started.
        """
        sources = SourceFiles()
        kind = (sys.executable, import_string, workers, server_environment(), compiler, sources.states)
        server = self._take()
        if server is not None:
            if server.kind == kind and server.alive:
                return server
            server.close()
        recompile_outdated(sources)
        server = CompileServer(import_string, workers)
        server.kind, server.compiler = kind, compiler
        return server

    def keep(self, server: CompileServer) -> None:
        """Keep a server that has nothing left to do, for a while.

        It ends if it never did anything, one rests, or there can be no thread that ends it later.
        """
        with self._lock:
            if self._server is None and server.worked and server.kind is not None:
                taken = threading.Event()
                if begin(lambda: self._expire(server, taken), "opbuild-idle"):
                    server.set_idle(idle=True)
                    self._server, self._taken = server, taken
                    return
        server.close()

    def _take(self) -> CompileServer | None:
        with self._lock:
            server, self._server = self._server, None
            self._taken.set()
        if server is not None:
            server.set_idle(idle=False)
        return server

    def _expire(self, server: CompileServer, taken: threading.Event) -> None:
        """End a server that nobody takes for a while."""
        taken.wait(self._seconds)
        with self._lock:
            if taken.is_set():
                return
            self._server = None
        server.close()

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._server = None
        self._taken = threading.Event()


IDLE_SERVER = IdleServer()
"""The process's one."""
