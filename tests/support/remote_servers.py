"""Servers of remote stores on loopback, and what gives each test a place of its own in one of them."""

from __future__ import annotations

import contextlib
import http.server
import itertools
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from opbuild.kernel.reason import Reason
from opbuild.store.blobs import Data
from opbuild.store.remote.address import parse_address
from opbuild.store.remote.service import Service
from support.simulated import Time

PATIENT = 60.0
"""Seconds that a sound server on a busy machine may take."""

PATIENTLY = f"""
from opbuild.store import claims
from opbuild.store.remote import retry, uploads
retry.SECONDS = uploads.UPLOAD_SECONDS = uploads.ENDING.seconds = claims.PATIENCE = {PATIENT}
"""
"""How a program begins that does as the fixture ``patient`` does."""

KINDS = ("file", "redis", "s3", "webdav")
"""Services that are written to."""

READ_KINDS = (*KINDS, "http")
"""All services; what ``http`` reads is written as files."""

_NUMBERS = itertools.count()


def free_port() -> int:
    """Return a port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def service(url: str, seconds: float = PATIENT, time: Time | None = None) -> Service:
    """Return the service at a URL; where a time is given its pauses are taken from that."""
    waits: dict[str, Any] = {} if time is None else {"clock": time, "sleep": time.sleep}
    return Service(parse_address("remote", url), None, seconds, **waits)


@contextlib.contextmanager
def running(command: Sequence[str], port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server in a process of its own: where OpenDAL lists a folder no other thread of a process goes on."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            _wait(port)
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def redis_server(*options: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Run Redis; give its URL without a database, and the process."""
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("redis-server is not installed (Debian: apt install redis-server)")
    port = free_port()
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--databases", "2000", *options]
    with running(command, port) as process:
        yield f"redis://127.0.0.1:{port}", process


@contextlib.contextmanager
def s3_server() -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Run moto's S3 with a bucket; give the bucket's URL, with a place for a folder, and the process."""
    port = free_port()
    with running([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], port) as process:
        endpoint = f"http://127.0.0.1:{port}"
        urllib.request.urlopen(urllib.request.Request(f"{endpoint}/bucket", method="PUT"), timeout=PATIENT).close()
        yield f"s3://bucket/{{}}?region=us-east-1&endpoint={endpoint}", process


_WEBDAV = """
import sys
from cheroot import wsgi
from wsgidav.fs_dav_provider import FileResource
from wsgidav.wsgidav_app import WsgiDAVApp
if sys.argv[3:]:
    FileResource.begin_write = lambda self, **named: open(sys.argv[3], "wb", 0)
app = WsgiDAVApp({"provider_mapping": {"/": sys.argv[1]}, "simple_dc": {"user_mapping": {"*": True}}, "verbose": 0})
wsgi.Server(("127.0.0.1", int(sys.argv[2])), app, numthreads=12).start()
"""


@contextlib.contextmanager
def webdav_server(folder: Path, written: str = "") -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Run a WebDAV server over a folder; give its URL, and the process.

    Args:
        folder: Where its files are.
        written: Where what is written to it goes instead.
    """
    port = free_port()
    with running(
        [sys.executable, "-c", _WEBDAV, str(folder), str(port), *([written] if written else [])], port
    ) as process:
        yield f"webdav://127.0.0.1:{port}", process


@contextlib.contextmanager
def own_server(kind: str, folder: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Run a server of a kind for one test, which may kill it; give the URL of an empty store, and the process."""
    if kind == "s3":
        with s3_server() as (url, process):
            yield url.format("own"), process
    else:
        with redis_server() if kind == "redis" else webdav_server(folder) as (url, process):
            yield url, process


@contextlib.contextmanager
def http_server(folder: Path) -> Iterator[str]:
    """Serve a folder's files, which nobody can write to; give the URL."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args: object, **named: object) -> None:
            super().__init__(*args, directory=str(folder), **named)  # type: ignore[arg-type]

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    with answering(Handler) as port:
        yield f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def answering(handler: type[http.server.BaseHTTPRequestHandler]) -> Iterator[int]:
    """Run a server whose answers a handler makes; give its port."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def places(kind: str, folder: Path) -> Iterator[Callable[[], str]]:
    """Run the server of a kind; give what returns the URL of an empty store in it, another each time."""
    if kind == "file":
        yield lambda: f"file://{folder}/{next(_NUMBERS)}"
    elif kind == "redis":
        with redis_server() as (url, _):
            numbers = itertools.count()
            yield lambda: f"{url}/{next(numbers)}"
    elif kind == "s3":
        with pytest.MonkeyPatch.context() as patch, s3_server() as (url, _):
            patch.setenv("AWS_ACCESS_KEY_ID", "key")
            patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
            yield lambda: url.format(next(_NUMBERS))
    elif kind == "webdav":
        with webdav_server(folder) as (url, _):
            yield lambda: f"{url}/{next(_NUMBERS)}"
    else:
        raise AssertionError(kind)


class ReadOverHttp(Service):
    """A folder that is written as files and read through a web server."""

    def __init__(self, folder: Path, url: str) -> None:
        super().__init__(parse_address("remote", f"file://{folder}"), seconds=PATIENT)
        self._web = service(url)

    def get(self, name: str, most: int) -> Data | Reason:
        """Read over HTTP."""
        return self._web.get(name, most)


class Servers:
    """Servers that start when they are first needed, and a new place in one each time it is asked for.

    Args:
        folder: Where those that serve files have them.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = contextlib.ExitStack()
        self._places: dict[str, Callable[[], str]] = {}
        self._web = ""

    def __call__(self, kind: str) -> Service:
        """Return an empty remote store of a kind."""
        folder = self._folder / kind
        folder.mkdir(exist_ok=True)
        if kind == "http":
            self._web = self._web or self._stack.enter_context(http_server(folder))
            number = next(_NUMBERS)
            return ReadOverHttp(folder / str(number), f"{self._web}/{number}")
        if kind not in self._places:
            self._places[kind] = self._stack.enter_context(places(kind, folder))
        return service(self._places[kind]())

    def close(self) -> None:
        """End them."""
        self._stack.close()


@pytest.fixture(scope="module")
def patient() -> Iterator[None]:
    """Let the stores that a module's builds open take their time: a machine that is busy with tests is slow."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("opbuild.store.remote.retry.SECONDS", PATIENT)
        patch.setattr("opbuild.pipeline.remote.UPLOAD_SECONDS", PATIENT)
        patch.setattr("opbuild.store.claims.PATIENCE", PATIENT)
        yield


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Servers of one process of tests."""
    started = Servers(tmp_path_factory.mktemp("remote"))
    yield started
    started.close()


def _wait(port: int) -> None:
    latest = time.monotonic() + PATIENT
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1.0).close()
            return
        except OSError:
            assert time.monotonic() < latest, "the server does not start"
            time.sleep(0.02)
