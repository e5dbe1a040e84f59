"""Servers of remote stores on loopback, and what gives each test a place of its own in one of them."""

from __future__ import annotations

import contextlib
import http.server
import itertools
import logging
import shutil
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from opbuild.store.remote.address import parse_address
from opbuild.store.remote.service import Service

PATIENT = 20.0
"""Seconds that a sound server on a busy machine may take."""

KINDS = ("file", "redis", "s3", "webdav")
"""Services that are written to; ``http`` is only read."""

_NUMBERS = itertools.count()


def free_port() -> int:
    """Return a port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def service(url: str, seconds: float = PATIENT) -> Service:
    """Return the service at a URL."""
    return Service(parse_address("remote", url), seconds=seconds)


@contextlib.contextmanager
def redis_server() -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Run Redis; give its URL without a database, and the process."""
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("redis-server is not installed (Debian: apt install redis-server)")
    port = free_port()
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--databases", "2000"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            _wait(port)
            yield f"redis://127.0.0.1:{port}", process
        finally:
            process.kill()


@contextlib.contextmanager
def s3_server() -> Iterator[str]:
    """Run moto's S3 with a bucket; give the bucket's URL without a folder, and the query that says where it is."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", port=0)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        with urllib.request.urlopen(urllib.request.Request(f"{endpoint}/bucket", method="PUT"), timeout=PATIENT):
            yield f"s3://bucket/{{}}?region=us-east-1&endpoint={endpoint}"
    finally:
        server.stop()


@contextlib.contextmanager
def webdav_server(folder: Path) -> Iterator[str]:
    """Run a WebDAV server over a folder; give its URL."""
    from cheroot import wsgi
    from wsgidav.wsgidav_app import WsgiDAVApp

    anybody = {"user_mapping": {"*": True}}
    app = WsgiDAVApp({"provider_mapping": {"/": str(folder)}, "simple_dc": anybody, "verbose": 0, "logging": {}})
    server = wsgi.Server(("127.0.0.1", 0), app, numthreads=12)
    server.prepare()
    threading.Thread(target=server.serve, daemon=True).start()
    try:
        yield f"webdav://127.0.0.1:{server.bind_addr[1]}"
    finally:
        server.stop()


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
        with pytest.MonkeyPatch.context() as patch, s3_server() as url:
            patch.setenv("AWS_ACCESS_KEY_ID", "key")
            patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
            yield lambda: url.format(next(_NUMBERS))
    elif kind == "webdav":
        with webdav_server(folder) as url:
            yield lambda: f"{url}/{next(_NUMBERS)}"
    else:
        raise AssertionError(kind)


def _wait(port: int) -> None:
    latest = time.monotonic() + PATIENT
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1.0).close()
            return
        except OSError:
            assert time.monotonic() < latest, "the server does not start"
            time.sleep(0.02)
