"""Spreading compiles over an executor: a compile server whose workers are elsewhere.

To a build it is a compile server as any other. Requests go out in batches, since an operator takes 40 to 150 ms and a
round trip some of them; few enough at once that all workers end together. What does not come back goes elsewhere: a
batch that was lost (its worker died, or refused it, or sent what is not what it says) is given out once more, and then
compiled on this host; so is what failed elsewhere, so that an error is this host's own, and what nobody answers for.

    batch    {"compiler": "module:Class", "digest", "requests": [...]}: the digest of the compiler's bytes, and requests
                 as the compile server takes them
    answer   {"where", "refused"}, or {"where", "answers": [[header, files, sha256], ...]}: headers and files as the
                 compile server answers, and the digest of the files

Whoever gets a batch compiles it with what is installed there, in a fork an operator as everywhere, and refuses it if
that is another compiler or other sources than the keys say: so its objects are byte for byte what the asking host would
have made. Executors pickle the function by its name and lists, texts, numbers and bytes, nothing else of opbuild.
"""

from __future__ import annotations

import contextlib
import os
import queue
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from functools import lru_cache
from typing import Any

from opbuild.builder.client import IDLE_SERVER, CompileServer, ServerEndedError
from opbuild.builder.server import load_compiler
from opbuild.config import Config
from opbuild.errors import OpbuildError
from opbuild.kernel.identity import FilesState, files_digest, files_state
from opbuild.kernel.opdesc import OpDesc
from opbuild.platform.digest import sha256
from opbuild.platform.paths import Path
from opbuild.platform.records import dataclass

LARGEST_BATCH = 8
"""Operators in a batch at most: together about a second of work."""

AHEAD = 2
"""Batches for each worker at once: one that it works on, and one that is there when it has done it."""

WORKERS = 8
"""Workers of an executor that does not say how many it has."""

TRIES = 2
"""How often a request is given to the executor."""

SILENCE = 10.0
"""Seconds without an answer after which this host begins to compile what others were given."""

_LOOK_SECONDS = 0.02
"""How often answers from elsewhere are looked for while this host compiles too."""

Message = tuple[dict[str, Any], bytes]


@dataclass
class _Request:
    """A request, how often the executor was given it, and whether this host compiles it."""

    header: dict[str, Any]
    tries: int = 0
    is_local: bool = False


@dataclass(eq=False, repr=False)
class SpreadServer:
    """Compiles the requests that it is sent by an executor. One thread at a time may use it.

    Attributes:
        executor: Where batches go; it belongs to the caller, who shuts it down.
        compiler: ``module:Class`` of the compiler.
        digest: Of the compiler's bytes, which workers must have.
        start_local: Starts a compile server on this host, for what the executor does not do.
        clock: Returns the time in seconds.
    """

    executor: Executor
    compiler: str
    digest: str
    start_local: Callable[[], CompileServer]
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._executor: Executor | None = self.executor
        self._batches = workers_of(self.executor) * AHEAD
        self._local: CompileServer | None = None
        self._open: dict[int, _Request] = {}
        self._unsent: list[_Request] = []
        self._messages: list[Message] = []
        self._ended: queue.SimpleQueue[tuple[list[_Request], Future[Any]] | None] = queue.SimpleQueue()
        self._futures: set[Future[Any]] = set()
        self._heard = self.clock()
        self._noted: set[str] = set()

    @property
    def alive(self) -> bool:
        """True: tasks that an executor does not do are done here."""
        return True

    def send(self, header: dict[str, Any]) -> None:
        """Take one request; it is given out at the next ``receive``, with the others that came meanwhile."""
        request = self._open[header["id"]] = _Request(header)
        self._unsent.append(request)
        if not header["known"]:
            self._messages.append(({"kind": "started", "id": header["id"]}, b""))

    def receive(self, timeout: float | None = None) -> list[Message]:
        """Wait for answers and return them, as ``CompileServer.receive`` does.

        Raises:
            ServerEndedError: If the compile server of this host ended, or ``close`` was called meanwhile.
            BuildError: If there can be none here.
        """
        self._give_out()
        until = None if timeout is None else self.clock() + timeout
        while not self._messages and (until is None or self.clock() < until):
            self._wait(until)
            self._give_out()
        messages, self._messages = self._messages, []
        return messages

    def close(self) -> None:
        """Take back the tasks that nobody works on yet, and forget the rest. Any thread may call it."""
        self._ended.put(None)
        for future in tuple(self._futures):
            future.cancel()
        if self._local is not None:
            self._local.close()

    def _give_out(self) -> None:
        """Give out the tasks that are not given out yet, in batches that are a mixture of long and short."""
        unsent, self._unsent = self._unsent, []
        if not unsent:
            return
        if not self._futures:
            self._heard = self.clock()
        count = max(min(len(unsent), self._batches), -(-len(unsent) // LARGEST_BATCH))
        for batch in (unsent[number::count] for number in range(count)):
            self._submit(batch)

    def _submit(self, batch: list[_Request]) -> None:
        for request in batch:
            request.tries += 1
        task = {"compiler": self.compiler, "digest": self.digest, "requests": [each.header for each in batch]}
        future = self._accepted(task)
        if future is None:
            self._compile_locally(batch)
            return
        self._futures.add(future)
        future.add_done_callback(lambda done: self._ended.put((batch, done)))

    def _accepted(self, task: Mapping[str, Any]) -> Future[Any] | None:
        """Return the executor's promise for a task; None if it takes no more."""
        if self._executor is None:
            return None
        try:
            return self._executor.submit(compile_batch, task)
        except Exception as error:  # each executor has errors of its own for a pool that is broken, closed or away
            self._executor = None
            self._note(f"the executor takes no tasks, so this host compiles: {type(error).__name__}: {error}")
            return None

    def _wait(self, until: float | None) -> None:
        """Wait for something to happen: an answer from elsewhere or from here, or that it is time to work here."""
        now = self.clock()
        if self._futures and now >= self._heard + SILENCE:
            self._fall_back()
        times = [each for each in (until, self._heard + SILENCE if self._futures else None) if each is not None]
        rest = max(0.0, min(times) - now) if times else None
        if self._local is not None and self._compiles_locally:
            self._messages += self._first_answers(self._local.receive(_LOOK_SECONDS))
            rest = 0.0
        with contextlib.suppress(queue.Empty):
            ended = self._ended.get(timeout=rest)
            if ended is None:
                raise ServerEndedError("it was closed")
            self._end(*ended)

    @property
    def _compiles_locally(self) -> bool:
        return any(request.is_local for request in self._open.values())

    def _fall_back(self) -> None:
        """Compile tasks of the executor on this host if it has nothing to do: one that hangs must hold up nobody."""
        if self._compiles_locally:
            return
        self._note(f"the executor has not answered for {SILENCE:g} s: this host compiles too")
        self._compile_locally(list(self._open.values())[:LARGEST_BATCH])

    def _end(self, batch: list[_Request], future: Future[Any]) -> None:
        """Deal with a batch that came back, or did not."""
        self._futures.discard(future)
        problem, answers = _read(future, {request.header["id"] for request in batch})
        self._heard = self.clock()
        for header, files in answers:
            if header["kind"] == "done":
                self._messages += self._first_answers([(header, files)])
        left = [
            request for request in batch if self._open.get(request.header["id"]) is request and not request.is_local
        ]
        again = [request for request in left if problem and request.tries < TRIES]
        if problem:
            self._note(problem)
        self._unsent += again
        self._compile_locally([request for request in left if request not in again])

    def _compile_locally(self, requests: Sequence[_Request]) -> None:
        """Compile requests on this host."""
        for request in requests:
            if self._local is None:
                self._local = self.start_local()
            request.is_local = True
            self._local.send(request.header)

    def _first_answers(self, messages: Sequence[Message]) -> list[Message]:
        """Return the first answer to each request, and what ends the server; further answers are equal."""
        return [
            (header, files)
            for header, files in messages
            if header["kind"] == "fatal"
            or (header["kind"] in ("done", "failed") and self._open.pop(header["id"], None) is not None)
        ]

    def _note(self, text: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
            self._messages.append(({"kind": "note", "text": text}, b""))


def _read(future: Future[Any], asked: set[int]) -> tuple[str, list[Message]]:
    """Return the problem of a batch, and the sound answers to its requests."""
    again = "operators were compiled again, since"
    if future.cancelled():
        return f"{again} the executor gave up a task", []
    error = future.exception()
    if error is not None:
        return f"{again} a worker was lost: {type(error).__name__}: {error}", []
    answer = future.result()
    try:
        if "refused" in answer:
            return f"{answer['where']} compiles nothing: {answer['refused']}", []
        answers = [_sound(*each) for each in answer["answers"]]
    except (TypeError, ValueError, LookupError):
        return f"{again} what a worker answered is no answer", []
    sound = [each for each in answers if each is not None and each[0]["id"] in asked]
    return (f"{again} they arrived damaged" if len(sound) < len(answers) else ""), sound


def _sound(header: Mapping[str, Any], files: bytes, digest: str) -> Message | None:
    """Return the part of one answer that a build reads; None if its bytes are not those that were sent.

    Raises:
        TypeError, ValueError, LookupError: If it is no answer.
    """
    if header["kind"] != "done":
        return {"kind": "failed", "id": int(header["id"])}, b""
    sizes = [(str(suffix), int(size)) for suffix, size in header["files"]]
    if digest != sha256(files) or sum(size for _, size in sizes) != len(files):
        return None
    answer = {"kind": "done", "id": int(header["id"]), "milliseconds": float(header["milliseconds"]), "changed": ""}
    return answer | {"pipeline": str(header["pipeline"]), "files": sizes}, bytes(files)


def max_in_flight(executor: Executor) -> int:
    """Return the number of operators that keep an executor busy."""
    return workers_of(executor) * AHEAD * LARGEST_BATCH


def workers_of(executor: Executor) -> int:
    """Return the number of an executor's workers, if it gives one, as mpi4py and Python each do by a name."""
    known = (getattr(executor, name, None) for name in ("num_workers", "_max_workers"))
    return next((each for each in known if isinstance(each, int) and each > 0), WORKERS)


class RefusedError(Exception):
    """This process cannot compile the operators of the keys; the text is why."""


def compile_batch(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Compile a batch and return the answer; see above for both. It raises nothing."""
    where = f"process {os.getpid()} on {os.uname().nodename}"
    try:
        answers = _compiled(batch)
    except (RefusedError, ServerEndedError) as error:
        return {"where": where, "refused": str(error)}
    except (OpbuildError, OSError, ImportError, AttributeError, ValueError, LookupError, TypeError) as error:
        return {"where": where, "refused": f"{type(error).__name__}: {error}"}
    return {"where": where, "answers": [[header, files, sha256(files)] for header, files in answers]}


def _compiled(batch: Mapping[str, Any]) -> list[tuple[dict[str, Any], bytes]]:
    """Return the compile server's last word on each request.

    Raises:
        RefusedError: If another compiler or other sources are installed here.
        ServerEndedError: If the compile server ended.
    """
    compiler, requests = load_compiler(batch["compiler"]), batch["requests"]
    state = files_state(compiler.files())
    if not state:
        raise RefusedError(f"{compiler.name} is not installed")
    if _digest(state) != batch["digest"]:
        raise RefusedError(f"it has another {compiler.name}, of release {compiler.version()}")
    if any(compiler.sources_digest(OpDesc.from_components(each["desc"])) != each["sources"] for each in requests):
        raise RefusedError("it has other sources of opbuild, or another release")
    server = IDLE_SERVER.start(compiler.import_string, Config.from_environment().workers, state)
    try:
        for request in requests:
            server.send(request)
        answers = _answers(server, len(requests))
    except BaseException:
        server.close()
        raise
    IDLE_SERVER.keep(server)
    return answers


@lru_cache(maxsize=4)
def _digest(state: FilesState) -> str:
    """Return the digest of a compiler's bytes, read once for each state of its files."""
    return files_digest([Path(str(path)) for path, *_ in state], None)


def _answers(server: CompileServer, count: int) -> list[tuple[dict[str, Any], bytes]]:
    answers: list[tuple[dict[str, Any], bytes]] = []
    while len(answers) < count:
        for header, files in server.receive():
            if header["kind"] == "fatal":
                raise RefusedError(f"the compiler cannot be loaded: {header['text']}")
            if header["kind"] in ("done", "failed"):
                if header.get("changed"):
                    raise RefusedError(f"its {header['changed']} changed while it compiled")
                answers.append((header, files))
    return answers
