"""One idle compile server rests between builds, so that the next build of the process need not start one.

A server takes a quarter of a second to start, as long as two operators take to compile; code that runs operator by
operator builds hundreds of networks of one operator each.
"""

from __future__ import annotations

import os
import sys
import threading

from opbuild.builder.client import CompileServer, server_environment
from opbuild.kernel.identity import FilesState
from opbuild.platform.background import begin
from opbuild.platform.sources import SourceFiles, recompile_outdated

IDLE_SECONDS = 10.0
"""How long a server rests before it is ended; it holds about 100 MB of memory."""


class IdleServer:
    """Keeps at most one server. Any thread may use it; a process forked from this one begins with none.

    Args:
        seconds: How long a server is kept.
    """

    _lock: threading.Lock
    _server: CompileServer | None
    _taken: threading.Event

    def __init__(self, seconds: float = IDLE_SECONDS) -> None:
        self._seconds = seconds
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def start(self, import_string: str, workers: int, compiler: FilesState) -> CompileServer:
        """Return the idle server if it is just like a new one, else a new one.

        Args:
            import_string: ``module:Class`` of the compiler.
            workers: Operators compiled at once.
            compiler: State of the compiler's files.

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
                if begin(lambda: self._expire(server, taken), "opbuild-rest"):
                    server.rest(resting=True)
                    self._server, self._taken = server, taken
                    return
        server.close()

    def _take(self) -> CompileServer | None:
        with self._lock:
            server, self._server = self._server, None
            self._taken.set()
        if server is not None:
            server.rest(resting=False)
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
