"""Whatever a remote store does, and whenever it begins: a build ends well, keeps nothing wrong, and asks little more.

Faults and moments are combined: at the n-th request a server begins to hang, break off, answer garbage, refuse.
"""

from __future__ import annotations

import contextlib
import http.server
import itertools
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from opbuild.builder.build import Builder
from opbuild.config import Config
from opbuild.events import Event, Warned
from opbuild.kernel.interfaces import Found, Missing
from opbuild.kernel.reason import Reason
from opbuild.pipeline.setup import set_up
from opbuild.pipeline.stores import Stores
from opbuild.platform.files.trust import PRIVATE
from opbuild.store.blobs import Data, Memory
from opbuild.store.operators import Operators, operators_in
from opbuild.store.remote.address import parse_address
from opbuild.store.remote.objects import OPERATORS, Objects
from opbuild.store.remote.operators import RemoteStore
from opbuild.store.remote.retry import FAILURES
from opbuild.store.remote.service import Service
from opbuild.store.tiers import TieredStore
from support.fake_compiler import FakeCompiler
from support.forked import in_fork
from support.remote_servers import (
    PATIENT,
    Servers,
    answering,
    free_port,
    http_server,
    own_server,
    redis_server,
    servers,
    service,
    webdav_server,
)
from support.samples import LEVEL, conv, entry_of, needed
from support.simulated import Hurried

__all__ = ["servers"]

SECONDS = 0.25
"""How long a server that will not answer is waited for here, from the moment on: sound ones may take their time."""

COUNT = 12
"""Operators of the network that is built."""

MOMENTS = (0, 1, 5)
"""Reads that succeed; the first is that of the group, which is not there."""

Fault = Callable[[http.server.BaseHTTPRequestHandler, bytes], None]


def _answer(status: int, body: bytes, *, length: int | None = None) -> Fault:
    def fault(handler: http.server.BaseHTTPRequestHandler, data: bytes) -> None:
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(body) if length is None else length))
        handler.end_headers()
        handler.wfile.write(body)

    return fault


def _hang(handler: http.server.BaseHTTPRequestHandler, data: bytes) -> None:
    threading.Event().wait(4 * SECONDS)


def _break_off(handler: http.server.BaseHTTPRequestHandler, data: bytes) -> None:
    handler.connection.shutdown(socket.SHUT_RDWR)


def _truncate(handler: http.server.BaseHTTPRequestHandler, data: bytes) -> None:
    _answer(200, data[: len(data) // 2], length=len(data))(handler, data)
    _break_off(handler, data)


def _cut(handler: http.server.BaseHTTPRequestHandler, data: bytes) -> None:
    _answer(200, data[:-7])(handler, data)


def _trickle(handler: http.server.BaseHTTPRequestHandler, data: bytes) -> None:
    _answer(200, data[:1], length=len(data))(handler, data)
    for byte in data[1:20]:
        threading.Event().wait(SECONDS / 5)
        handler.wfile.write(bytes([byte]))


def _endless(handler: http.server.BaseHTTPRequestHandler, data: bytes) -> None:
    _answer(200, data, length=10**12)(handler, data)
    for _ in range(2000):
        handler.wfile.write(bytes(2**18))


def _forged(handler: http.server.BaseHTTPRequestHandler, data: bytes) -> None:
    _answer(200, data.replace(b"conv", b"gemm"))(handler, data)


FAULTS: dict[str, tuple[Fault, set[str]]] = {
    "hangs": (_hang, {"slow"}),
    "breaks off": (_break_off, {"refused"}),
    "truncates": (_truncate, {"refused", "damaged"}),
    "cuts": (_cut, {"damaged"}),
    "trickles": (_trickle, {"slow"}),
    "never ends": (_endless, {"damaged"}),
    "forges": (_forged, {"damaged"}),
    "garbage": (_answer(200, os.urandom(5000)), {"damaged"}),
    "a page to log in": (_answer(200, b"<html>" * 100), {"damaged"}),
    "nothing": (_answer(200, b""), {"damaged"}),
    "401": (_answer(401, b"secret"), {"refused"}),
    "403": (_answer(403, b"secret"), {"refused"}),
    "429": (_answer(429, b"slow down"), {"refused"}),
    "500": (_answer(500, b"oops"), {"refused"}),
    "503": (_answer(503, b"oops"), {"refused"}),
}
"""What a server does, and the words for it."""


_FOLDER = b"""<?xml version="1.0"?><D:multistatus xmlns:D="DAV:"><D:response><D:href>/</D:href><D:propstat><D:prop>
<D:resourcetype><D:collection/></D:resourcetype><D:getlastmodified>Tue, 01 Sep 2026 10:00:00 GMT</D:getlastmodified>
</D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response></D:multistatus>"""
"""What a WebDAV server says of a folder, which is asked for before anything is written there."""

SPOKEN = {
    "http": "http://127.0.0.1:{}",
    "webdav": "webdav://127.0.0.1:{}",
    "s3": "s3://bucket?region=us-east-1&endpoint=http://127.0.0.1:{}",
}
"""URLs of the services that read objects as files of a web server."""


@contextlib.contextmanager
def faulty(folder: Path, fault: Fault, moment: int, scheme: str = "http") -> Iterator[tuple[str, list[int]]]:
    """Serve a folder until a moment, and behave badly from then on; give the URL and the number of requests."""
    numbers, asked = itertools.count(), [0]

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked[0] += 1
            path = folder / self.path.removeprefix("/bucket").lstrip("/")
            data = path.read_bytes() if path.is_file() else b"nothing"
            good = _answer(200 if path.is_file() else 404, data)
            with contextlib.suppress(OSError):
                (good if next(numbers) < moment else fault)(self, data)

        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            _answer(507, b"full")(self, b"")

        def do_PROPFIND(self) -> None:
            _answer(207, _FOLDER)(self, b"")

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    with answering(Handler) as port:
        yield SPOKEN[scheme].format(port), asked


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all operators of the network."""
    folder = tmp_path_factory.mktemp("written")
    remote = RemoteStore(Objects(service(f"file://{folder}"), PRIVATE))
    config = Config(cache_path=folder / "own")
    with Builder(Operators(Memory()), FakeCompiler(), LEVEL, config) as builder:
        result = builder.build(needed(*(conv(tile) for tile in range(COUNT))), "net")
    for entry in result.entries.values():
        assert remote.publish(entry) is None
    return folder


def build(remote: Service, config: Config, told: list[str]) -> tuple[int, set[str]]:
    """Build the network; return how many operators were compiled, and the words for what the remote store said."""
    far = RemoteStore(Objects(remote, PRIVATE, told.append))
    near = operators_in(config.kernel_meta)
    with Builder(TieredStore(near, [far]), FakeCompiler(), LEVEL, config) as builder:
        result = builder.build(needed(*(conv(tile) for tile in range(COUNT))), "net")
        said = [job.reason.elsewhere for job in result.decisions if job.outcome == "built"]
        assert result.built + result.shared == COUNT
        assert all(isinstance(near.lookup(job.key), Found) for job in result.decisions)
    return result.built, {text.removeprefix("the remote store: ").partition(",")[0] for text in said}


def from_moment(
    patch: pytest.MonkeyPatch, moment: int, strike: Callable[[], object] = lambda: None, seconds: float = SECONDS
) -> None:
    """Do something before the read of this number, and wait for the server no longer than this from then on."""
    read, numbers = Service.get, itertools.count()

    def counted(self: Service, path: str, most: int) -> Data | Reason:
        if next(numbers) == moment:
            strike()
            self.seconds = seconds
            self.storage._operator = None
        return read(self, path, most)

    patch.setattr(Service, "get", counted)


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "moment"), [*(("http", moment) for moment in MOMENTS), ("webdav", 2), ("s3", 2)])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_build_ends_well_whatever_a_server_does(
    fault: str, scheme: str, moment: int, written: Path, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What came before is used, the rest compiled; the right word, one warning (F39, F59, F67)."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setattr("opbuild.store.concurrent_map._THREADS", 1)
    misbehave, words = FAULTS[fault]
    told: list[str] = []
    if words == {"slow"}:
        from_moment(monkeypatch, moment)
    with faulty(written, misbehave, moment, scheme) as (url, asked):
        remote = service(url, time=Hurried())
        built, said = build(remote, config, told)
        assert built == COUNT - max(0, moment - 1)
        assert said <= words
        assert said
        assert remote.reading.reason is not None
        assert asked[0] <= moment + 2 * FAILURES
        before = asked[0]
        build(remote, replace(config, cache_path=config.cache_path / "other"), told)
        assert asked[0] == before
    assert len(told) == 1
    assert told[0].startswith(f"the remote store {url.partition('?')[0]} is not used where it fails: ")
    assert "secret" not in told[0]


def test_one_fault_that_passes_costs_one_operator(written: Path, config: Config) -> None:
    """A server that is busy for a moment is asked again; what is damaged alone ends nothing."""
    number = itertools.count()
    told: list[str] = []

    def once(handler: http.server.BaseHTTPRequestHandler, data: bytes) -> None:
        busy = next(number) == 0
        _answer(429 if busy else 200, data)(handler, data)

    with faulty(written, once, 3) as (url, _):
        assert build(service(url, time=(hurried := Hurried())), config, told) == (0, set())
    assert hurried.now > 0
    assert told == []


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "moment"), [*(("redis", moment) for moment in MOMENTS), ("webdav", 5), ("s3", 5)])
@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_server_that_is_killed_or_stops_in_the_middle(
    how: str, kind: str, moment: int, tmp_path: Path, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """*refused* if nobody listens any more, *slow* if nobody answers; the operators that came before are used."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setattr("opbuild.store.concurrent_map._THREADS", 1)
    with own_server(kind, tmp_path) as (url, process):
        patient = RemoteStore(Objects(service(url), PRIVATE))
        with Builder(Operators(Memory()), FakeCompiler(), LEVEL, config) as builder:
            for entry in builder.build(needed(*(conv(tile) for tile in range(COUNT))), "net").entries.values():
                assert patient.publish(entry) is None

        def strike() -> None:
            process.kill() if how == "killed" else process.send_signal(signal.SIGSTOP)
            process.wait() if how == "killed" else None

        from_moment(monkeypatch, moment, strike, PATIENT if how == "killed" else SECONDS)
        built, said = build(service(url, time=Hurried()), config, told := [])
    assert built == COUNT - max(0, moment - 1)
    assert said <= ({"refused"} if how == "killed" else {"slow"})
    assert len(told) == 1


@pytest.mark.parametrize("kind", ["redis", "webdav", "s3"])
@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_what_is_written_to_a_server_that_ends_is_told(
    how: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing escapes, and writing ends for the process after a few requests."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with own_server(kind, tmp_path) as (url, process):
        assert service(url).put([("a/b", b"x")]) is None
        process.kill() if how == "killed" else process.send_signal(signal.SIGSTOP)
        process.wait() if how == "killed" else None
        hurried = service(url, PATIENT if how == "killed" else SECONDS)
        problems = [hurried.put([("a/b", b"y")]) for _ in range(FAILURES + 2)]
        assert {problem.code for problem in problems if problem} == {"refused" if how == "killed" else "slow"}
        assert None not in problems
        assert hurried.writing.reason is not None
        assert hurried.traffic.requests <= 2 * FAILURES


def test_redis_that_is_full_refuses_and_is_read_on() -> None:
    """Writing ends for the process, with the reason; what is there is found."""
    with redis_server("--maxmemory", "3mb", "--maxmemory-policy", "noeviction") as (url, _):
        remote = service(url)
        store = RemoteStore(Objects(remote, PRIVATE))
        key, entry = entry_of(conv())
        assert store.publish(entry) is None
        for number in range(40):
            problem = remote.put([(f"large/{number}", bytes(2**18))])
        assert problem == Reason("refused", "it is full")
        assert remote.writing.reason == problem
        assert isinstance(store.lookup(key), Found)


@pytest.mark.parametrize("kind", ["webdav", "s3"])
def test_a_web_service_that_is_full_refuses_and_is_read_on(
    kind: str, written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Redis; the word is the server's status."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    key, entry = entry_of(conv())
    assert RemoteStore(Objects(service(f"file://{tmp_path}"), PRIVATE)).publish(entry) is None
    with faulty(tmp_path, _hang, sys.maxsize, kind) as (url, _):
        remote = service(url)
        store = RemoteStore(Objects(remote, PRIVATE))
        problems = {store.publish(entry) for _ in range(FAILURES)}
        assert problems == {"refused: it is full (507)"}
        assert remote.writing.reason == Reason("refused", "it is full (507)")
        assert isinstance(store.lookup(key), Found)


def test_a_webdav_server_whose_disk_is_full_refuses_and_is_read_on(tmp_path: Path) -> None:
    """It answers by a status that says little; what it left half-written is no entry."""
    key, entry = entry_of(conv())
    with webdav_server(tmp_path, "/dev/full") as (url, _):
        remote = service(url)
        store = RemoteStore(Objects(remote, PRIVATE))
        for _ in range(FAILURES):
            problem = store.publish(entry)
            assert problem is not None
            assert problem.startswith("refused: ")
        assert remote.writing.reason is not None
        assert remote.reading.reason is None
        assert isinstance(store.lookup(key), Missing)


def test_who_is_not_there_is_refused_at_once() -> None:
    """No pool of connections tries again until its time is over."""
    for scheme in ("redis", "http", "webdav"):
        remote = service(f"{scheme}://127.0.0.1:{free_port()}", 30.0)
        assert remote.get("x", 10) == Reason("refused", "nobody listens there")


@pytest.mark.parametrize("secrets", [{}, {"password": "wrong"}, {"username": "nobody", "password": "wrong"}])
def test_redis_that_wants_other_credentials_says_so_at_once(secrets: dict[str, str]) -> None:
    """Its pool of connections would try the wrong ones until its time is over; the right ones are taken."""
    with redis_server("--requirepass", "right") as (url, _):
        refused = Service(parse_address("remote", url), secrets, PATIENT)
        for problem in (refused.get("x", 10), refused.put([("x", b"x")]), refused.size("x")):
            assert problem == Reason("refused", "it wants other credentials")
        allowed = Service(parse_address("remote", url), {"password": "right"}, PATIENT)
        assert allowed.put([("x", b"x")]) is None


def test_a_bucket_that_is_not_there_is_named(servers: Servers) -> None:
    """An S3 server that has no such bucket has not to be set up otherwise."""
    url = "s3://no-such-bucket/x"
    sound = servers("s3").address
    address = sound._replace(url=url, options={**sound.options, "bucket": "no-such-bucket"})
    remote = Service(address, seconds=PATIENT)
    assert remote.get("x", 10) == Reason("refused", "there is no such bucket")
    assert remote.put([("x", b"x")]) == Reason("refused", "there is no such bucket")


@pytest.mark.parametrize("scheme", ["https", "webdavs"])
def test_a_server_without_tls_is_told_apart(scheme: str, written: Path) -> None:
    """Nothing is sent to it unencrypted."""
    with faulty(written, _hang, 0) as (url, asked):
        remote = service(url.replace("http", scheme))
        assert remote.get("x", 10) == Reason("refused", "it does not speak TLS")
        assert asked == [0]


def test_a_store_that_is_only_read_is_told_of_once_and_counts_as_not_sent(tmp_path: Path) -> None:
    """Of all builds of a process that would write; so ``--strict`` fails."""
    told: list[Event] = []
    config = Config(cache_path=tmp_path, remote="http://127.0.0.1:9/once", remote_mode="write")
    for _ in range(3):
        remote = Stores(set_up(config, None, told.append)).remote
        assert remote is not None
        assert not remote.writes
    assert [(type(each), getattr(each, "not_sent", 0)) for each in told] == [(Warned, 1)]


def test_a_folder_that_cannot_be_written_refuses(tmp_path: Path) -> None:
    """A file where the folder should be."""
    (tmp_path / "file").touch()
    remote = service(f"file://{tmp_path}/file")
    problem = remote.put([("a/b", b"x")])
    assert problem is not None
    assert problem.code == "refused"


def test_a_fork_asks_through_opendal_for_nothing(written: Path) -> None:
    """The threads that do the work stay in the parent; a fork that asked would wait for ever."""
    key, _ = entry_of(conv())
    with http_server(written) as url:
        remote = service(url)
        store = RemoteStore(Objects(remote, PRIVATE))
        store.lookup(key)
        assert in_fork(lambda: remote.get(OPERATORS + "x", 10).code) == "refused"  # type: ignore[union-attr]
        assert isinstance(store.lookup(key), (Found, Missing))
        assert remote.reading.reason is None
