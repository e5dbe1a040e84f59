"""Service: a remote store as a process uses it: a folder, or what OpenDAL reads, writes, lists and removes.

What limits, repeats and gives up requests lies round both (``retry``).
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from operator import methodcaller
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from opbuild.kernel.reason import Reason
from opbuild.platform.finalizers import WeakValues
from opbuild.store.blobs import Data, Files
from opbuild.store.remote.address import FOLDER, Address
from opbuild.store.remote.failures import ABSENT, DAMAGED, REFUSED, SLOW, UNKNOWN, failure_of
from opbuild.store.remote.retry import Request, Retried
from opbuild.store.remote.shared_folder import LEAST_RATE, SharedFolder
from opbuild.store.remote.traffic import Traffic
from opbuild.store.remote.uploads import ENDING, Ending

if TYPE_CHECKING:
    import opendal

T = TypeVar("T")

_PIECE = 2**20


class OpenDal:
    """Blobs of a remote store, each asked for once. Threads may share it.

    Args:
        address: Where it is.
        secrets: Credentials, as options of OpenDAL.
        limit: Returns how long a connection, and each answer or piece of one, may take that begins now.
        clock: Returns seconds.

    Attributes:
        traffic: What went to and fro so far.
    """

    def __init__(
        self, address: Address, secrets: Mapping[str, str], limit: Callable[[], float], clock: Callable[[], float]
    ) -> None:
        self.address = address
        self.traffic = Traffic()
        self._secrets = secrets
        self._limit, self._clock = limit, clock
        self._operator: opendal.Operator | None = None

    def get(self, name: str, most: int) -> bytes | Reason:
        """Return an object, or why not; one of more than ``most`` bytes is not read to its end."""

        def request(operator: opendal.Operator) -> bytes:
            deadline = self._clock() + self._limit()
            pieces, nbytes = [], 0
            with operator.open(name, "rb") as file:
                while piece := file.read(min(_PIECE, most + 1 - nbytes)):
                    pieces.append(piece)
                    nbytes += len(piece)
                    if self._clock() > deadline + nbytes / LEAST_RATE:
                        raise TimeoutError("timeout")
            self.traffic.count(bytes_read=nbytes)
            return b"".join(pieces)

        data = self._ask(request)
        if isinstance(data, bytes) and len(data) > most:
            return Reason(DAMAGED, f"it has more than {most} bytes")
        return data

    def size(self, path: str) -> int | Reason:
        """Return the bytes of an object, or the reason that they are not known."""
        return self._ask(lambda operator: int(operator.stat(path).content_length))

    def put(self, files: Files) -> Reason | None:
        """Write objects; return None, or why not."""
        return next(filter(None, (self.write(path, data) for path, data in files)), None)

    def write(self, path: str, data: Data, *, only_new: bool = False) -> Reason | None:
        """Write an object; return None, or why not: ``exists`` where only a new one was to be written."""

        def request(operator: opendal.Operator) -> None:
            if only_new:
                operator.write(path, bytes(data), if_not_exists=True)
            else:
                operator.write(path, bytes(data))
            self.traffic.count(bytes_written=len(data))

        return self._ask(request)

    def delete(self, *names: str) -> Reason | None:
        """Remove objects if they are there; return None, or why not."""
        answers = (self._ask(methodcaller("delete", name)) for name in names)
        return next((each for each in answers if each is not None and each.code != ABSENT), None)

    def names(self, folder: str = "", at_most: int | None = None) -> tuple[str, ...] | Reason:
        """Return the names of the objects in a folder, which ends with a slash, sorted, or why not."""

        def request(operator: opendal.Operator) -> tuple[str, ...]:
            if self._has_pool:  # which OpenDAL cannot list
                user, password = self._secrets.get("username", ""), self._secrets.get("password", "")
                with self._connected(self._limit()) as connection:
                    return names_in(connection, folder, self.address.options["db"], user, password)
            paths = [entry.path for entry in operator.list(folder)]
            return tuple(sorted(path.removeprefix(folder) for path in paths if not path.endswith("/")))

        names = self._ask(request)
        if isinstance(names, Reason):
            return () if names.code == ABSENT else names
        return names[:at_most]

    def writes_only_new(self) -> bool:
        """Return whether it can write an object only if that is not there: of many writers one succeeds."""
        with contextlib.suppress(Exception):  # then nothing can be written either
            return bool(self._opened(self._limit()).capability().write_with_if_not_exists)
        return False

    def explained(self, reason: Reason) -> Reason:
        """Return a better reason for a failure where connecting gives one.

        A pool of connections waits for a server that is not there, and OpenDAL does not always say what it met.
        """
        if reason == UNKNOWN or (reason.code == SLOW and self._has_pool):
            try:
                self._probe_server(self._limit())
            except OSError as error:
                return failure_of(error)
        return reason

    def _ask(self, request: Callable[[opendal.Operator], T]) -> T | Reason:
        """Return the result of one request, or why it failed."""
        try:
            operator = self._opened(self._limit())
            self.traffic.count(requests=1)
            return request(operator)
        except Exception as error:  # OpenDAL's errors have no base of their own, and some are OSError
            return failure_of(error)

    def _probe_server(self, seconds: float) -> None:
        """Raise an error of connecting, or that Redis wants other credentials: a pool tries them again and again."""
        if not self.address.host:
            return
        with self._connected(seconds) as connection:
            self._ask_redis(connection)

    @contextlib.contextmanager
    def _connected(self, seconds: float) -> Iterator[socket.socket]:
        """Connect to the host; raise ``OSError`` if that fails."""
        with socket.create_connection((self.address.host, self.address.port), seconds) as plain:
            if not self.address.is_encrypted:
                yield plain
                return
            import ssl

            with ssl.create_default_context().wrap_socket(plain, server_hostname=self.address.host) as encrypted:
                yield encrypted

    def _ask_redis(self, connection: socket.socket) -> None:
        """Raise ``PermissionError`` with Redis's message if it takes no commands with these credentials."""
        if not self._has_pool:
            return
        user, password = self._secrets.get("username"), self._secrets.get("password")
        words = ["AUTH", *([user] if user else []), password] if password else ["PING"]
        parts = [f"${len(word.encode())}\r\n{word}\r\n" for word in words]
        connection.sendall(f"*{len(words)}\r\n{''.join(parts)}".encode())
        said = connection.recv(200).decode(errors="replace")
        if said.startswith(("-NOAUTH", "-WRONGPASS")):
            raise PermissionError(said.split()[0])

    @property
    def _has_pool(self) -> bool:
        """Whether the service's client tries to connect again and again until its time is over."""
        return self.address.service == "redis"

    def _opened(self, seconds: float) -> opendal.Operator:
        """Return the operator, with so much time for each step of a request."""
        from opendal.layers import TimeoutLayer

        if self._operator is None:
            import opendal

            if self._has_pool:  # else it waits for a server that is not there, or does not want these credentials
                self._probe_server(seconds)
            self._operator = opendal.Operator(self.address.service, **{**self.address.options, **self._secrets})
        return self._operator.layer(TimeoutLayer(timeout=seconds, io_timeout=seconds))


class Service(Retried):
    """A remote store, as one process uses it. Threads may share it; through OpenDAL a fork asks for nothing.

    Args:
        address: Where it is.
        secrets: Credentials, as options of OpenDAL; none for a folder.
        seconds: See ``Retried``, as of what follows.
        ending: How much time is left once the program has ended.
        clock: Returns seconds.
        sleep: Lets so many of them pass.

    Attributes:
        traffic: What went to and fro so far.
        folder: The folder that it is; empty if it is none.
        damaged: Paths of objects that were not what was written; from the first on nothing there counts as sound by its
            name and size.
        mended: Those of them that were written again.
    """

    def __init__(
        self,
        address: Address,
        secrets: Mapping[str, str] | None = None,
        seconds: float | None = None,
        ending: Ending = ENDING,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.address = address
        self.folder = address.options["root"] if address.service == FOLDER else ""
        self.storage: SharedFolder | OpenDal
        if self.folder:
            self.storage = SharedFolder(self.folder, self.limit)
            super().__init__(self.storage, seconds, ending, clock, sleep, place=address.url)
        else:
            self.storage = OpenDal(address, secrets or {}, self.limit, clock)
            super().__init__(self.storage, seconds, ending, clock, sleep, self.storage.explained, address.url)
        self.traffic = self.storage.traffic
        self.damaged: set[str] = set()
        self.mended: set[str] = set()
        self._told: set[str] = set()
        _SERVICES[id(self)] = self

    def __repr__(self) -> str:
        return f"Service({self.address.url})"

    def is_first_time(self, what: str) -> bool:
        """Return whether something is to be told of this store, which is once in a process."""
        with self._lock:
            is_first = what not in self._told
            self._told.add(what)
            return is_first

    def take_warning(self) -> str | None:
        """Return once, after the first failure, the warning for the user."""
        if self.failure is None or not self.is_first_time("failure"):
            return None
        return f"the remote store {self.address.url} is not used where it fails: {described(self.failure)}"

    def size(self, path: str) -> int | Reason:
        """Return the bytes of an object, or the reason that they are not known."""
        return self._request(self.reading, Request("size", path), lambda: self.storage.size(path))

    def put_new(self, path: str, data: Data) -> Reason | None:
        """Write an object unless it is there; return None, or why not: ``exists``."""
        request = Request("put_new", path, len(data))
        return self._request(self.writing, request, lambda: self.storage.write(path, data, only_new=True))

    def writes_only_new(self) -> bool:
        """Return whether of many writers of one new object one succeeds."""
        return self.storage.writes_only_new()


def described(reason: Reason) -> str:
    """Return a reason with its word before it."""
    return f"{reason.code}: {reason.text}"


_SERVICES = WeakValues[int, Service]()


def _forked() -> None:
    """Ask nothing in a fork: the threads that do OpenDAL's work stay in the parent."""
    reason = Reason(REFUSED, "this process is a fork of one that used it")
    for _, service in _SERVICES.items():
        if isinstance(service.storage, OpenDal) and service.storage._operator is not None:
            service.reading.stop(reason)
            service.writing.stop(reason)


os.register_at_fork(after_in_child=_forked)


_COUNT = "1000"
"""Names that Redis looks at for one answer."""

_MOST = 64 * 2**20
"""Bytes of a part of an answer."""


def names_in(connection: socket.socket, folder: str, database: str, user: str, password: str) -> tuple[str, ...]:
    """Return the names of the objects in a folder, which ends with a slash, sorted.

    Raises:
        PermissionError: If Redis wants other credentials.
        OSError: If it says what it should not, or breaks off.
    """
    if password:
        _ask(connection, "AUTH", *([user] if user else []), password)
    _ask(connection, "SELECT", database)
    found, cursor = set[str](), "0"
    while True:
        cursor, names = _ask(connection, "SCAN", cursor, "MATCH", f"{folder}*", "COUNT", _COUNT)
        found.update(name.removeprefix(folder) for name in names)
        if cursor == "0":
            return tuple(sorted(name for name in found if "/" not in name))


def _ask(connection: socket.socket, *words: str) -> Any:
    """Return the answer of Redis to a command: text, a number or a list of these."""
    parts = [f"${len(word.encode())}\r\n{word}\r\n" for word in words]
    connection.sendall(f"*{len(words)}\r\n{''.join(parts)}".encode())
    with connection.makefile("rb") as answer:
        return _parsed(answer)


def _parsed(answer: BinaryIO) -> Any:
    line = answer.readline(_MOST)
    kind, rest = line[:1], line[1:].strip().decode(errors="replace")
    if kind == b"-":
        raise PermissionError(rest.split()[0]) if rest.startswith(("NOAUTH", "WRONGPASS")) else OSError(rest)
    if kind in (b"+", b":"):
        return rest
    size = int(rest) if kind in (b"$", b"*") and rest.isdigit() else -1
    if not 0 <= size <= _MOST:
        raise OSError("it answers what it should not")
    if kind == b"*":
        return [_parsed(answer) for _ in range(size)]
    return answer.read(size + 2)[:-2].decode(errors="replace")
