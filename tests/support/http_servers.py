"""Servers of networks on loopback, each with its workers in a process group of its own."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from support.remote_servers import free_port
from support.unnoticed import check_said
from support.until import PATIENCE, until


@dataclass(frozen=True)
class Server:
    """A server that answers.

    Attributes:
        process: Its first process.
        port: Where it listens on loopback.
        log: The file of all that it says.
    """

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    @property
    def address(self) -> str:
        """Its URL, without a path."""
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str = "/") -> str | None:
        """Return the text behind a path; None if there is no answer, or an error."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.read().decode() if answer.status == http.client.OK else None
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()


@contextlib.contextmanager
def serving(
    command: Sequence[str], folder: Path, *, ready: str = "/", port: int = 0, **variables: str
) -> Iterator[Server]:
    """Run a server until the block ends, from when it answers.

    Args:
        command: The program and its arguments; ``{port}`` in them is the port.
        folder: Where it runs.
        ready: The path that is asked whether it is ready; it answers with 200 then.
        port: Where it listens; 0: anywhere.
        **variables: Of the environment, besides this process's.

    Raises:
        AssertionError: If it does not become ready; with its log.
    """
    port = port or free_port()
    words = [word.replace("{port}", str(port)) for word in command]
    environment: Mapping[str, str] = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **variables}
    with tempfile.NamedTemporaryFile(prefix="opbuild-server-") as log:
        process = subprocess.Popen(
            words, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        server = Server(process, port, Path(log.name))
        try:
            assert until(lambda: server.get(ready) is not None or process.poll() is not None), server.log.read_text()
            assert process.poll() is None, server.log.read_text()
            yield server
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            check_said(server.log.read_bytes())
