"""The compile server: a fresh process that loads the compiler once and forks one child an operator.

The user's process must neither load a compiler nor fork: it has threads, and gigabytes of weights. A fresh fork an
operator makes objects byte-identical whatever was compiled before, and keeps a crash or a hang to the operator that
caused it.

Run as ``python -m opbuild.builder.server module:Class workers kind``, where the kind is that of the host's slots which
compiles wait for. Requests come on the standard input, answers go to
what was the standard output (the compiler's own output is diverted to the standard error); end of input ends the server
and its children at once.

    request  {"id", "desc", "symbol", "target", "timeout", "debug", "compiler", "sources", "known", "compiles"}: "debug"
                 are the options with which the operator is debugged, "compiler" is the state that the compiler's files
                 must have, "sources" the digest of the operator's sources, "known" has the digests of pipelines that
                 need not be compiled, and "compiles" is false where none may be
    answer   {"kind": "ready"}
             {"kind": "started", "id"}: it is compiled
             {"kind": "done", "id", "milliseconds", "changed", "pipeline", "files"} + files: "changed" is "compiler" or
                 "sources" if that is not what it must be, else empty; "pipeline" is the digest of what was compiled, or
                 was not; "files" has the suffix and the size of each file, the object's among them, or nothing
             {"kind": "failed", "id", "step", "text"}
             {"kind": "fatal", "text", "hint"}
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import selectors
import signal
import sys
import tempfile
import time
import traceback
from collections import deque
from collections.abc import Callable
from importlib import import_module
from typing import Any, NoReturn

from opbuild.builder.wire import Unpacker, artifact_files, check_answer, pack, write_all
from opbuild.errors import OpbuildError
from opbuild.kernel.identity import FilesState, files_state
from opbuild.kernel.interfaces import Compiler
from opbuild.kernel.opdesc import OpDesc
from opbuild.platform.limits import hint_for, hint_for_signal, suspected
from opbuild.platform.locks import libc
from opbuild.platform.paths import Path
from opbuild.platform.records import dataclass, field
from opbuild.platform.slots import UNLIMITED, Slots
from opbuild.target.level import target_named

_CHUNK = 1 << 16
_ORPHAN_CHECK_SECONDS = 1.0
_LIMITS = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
"""What a limit on processes, memory or files ends a fork with; it may succeed when a child has ended."""
_PATIENCE_SECONDS, _RETRY_SECONDS = 2.0, 0.02
"""How long, and how often, a child is tried to be started where none runs."""
_SLOT_SECONDS, _SLOT_RETRY_SECONDS = 5.0, 0.005
"""How long a server whose workers are all idle waits for a slot of the host, and how often it asks: whoever has the
slots may have been stopped."""


@dataclass
class _Child:
    """One compile under way."""

    request: dict[str, Any]
    pid: int
    slot: int
    changed: str
    started: float
    deadline: float
    unpacker: Unpacker = field(default_factory=Unpacker)
    expired: bool = False
    garbled: bool = False


@dataclass(eq=False, repr=False)
class ServerLoop:
    """The loop: reads requests, keeps at most ``workers`` children busy, answers."""

    compiler: Compiler
    workers: int
    requests: int
    answer: Callable[[dict[str, Any], bytes], None]
    loaded: FilesState
    slots: Slots

    def __post_init__(self) -> None:
        self._files = self.compiler.files()
        self._waiting: deque[dict[str, Any]] = deque()
        self._children: dict[int, _Child] = {}
        self._unpacker = Unpacker()
        self._selector = selectors.DefaultSelector()
        self._parent = os.getppid()
        self._refused = 0.0  # since when the system lets no child start
        self._crowded = 0.0  # since when others have all slots while no child runs here

    def run(self) -> None:
        """Serve until the requests end or the parent is gone; children that still run are killed."""
        self._selector.register(self.requests, selectors.EVENT_READ)
        try:
            open_ = True
            while open_ and os.getppid() == self._parent:
                self._fill()
                for ready, _ in self._selector.select(self._patience()):
                    if ready.fd != self.requests:
                        self._read_child(ready.fd)
                    elif not self._read_requests():
                        open_ = False
                self._expire()
        finally:
            for child in self._children.values():
                _kill(child.pid)

    def _patience(self) -> float:
        now = time.monotonic()
        if self._refused:
            return _RETRY_SECONDS
        if self._waiting and len(self._children) < self.workers:
            return _SLOT_RETRY_SECONDS
        return max(0.0, min([child.deadline - now for child in self._children.values()] + [_ORPHAN_CHECK_SECONDS]))

    def _read_requests(self) -> bool:
        data = os.read(self.requests, _CHUNK)
        for header, _ in self._unpacker.feed(data):
            self._waiting.append(header)
        return bool(data)

    def _fill(self) -> None:
        while self._waiting and len(self._children) < self.workers:
            slot = self._slot()
            if slot is None:
                return
            request = self._waiting.popleft()
            try:
                self._start(request, slot)
                self._refused = 0.0
            except OSError as error:
                self.slots.give(slot)
                if error.errno in _LIMITS and (self._children or self._is_patient()):
                    self._waiting.appendleft(request)
                    return
                text = f"no process could be started: {error.strerror}; {hint_for(error)}".rstrip("; ")
                self.answer(_failure(request, "start", text), b"")

    def _is_patient(self) -> bool:
        """Return whether to try once more to start a child: the threads of the builder's preparations end soon."""
        now = time.monotonic()
        self._refused = self._refused or now
        return now < self._refused + _PATIENCE_SECONDS

    def _slot(self) -> int | None:
        """Return a slot for one more child, None if others have them all; a child that runs is progress."""
        slot = self.slots.take()
        if slot is not None or self._children:
            self._crowded = 0.0
            return slot
        now = time.monotonic()
        self._crowded = self._crowded or now
        return UNLIMITED if now >= self._crowded + _SLOT_SECONDS else None

    def _start(self, request: dict[str, Any], slot: int) -> None:
        read, write = os.pipe()
        if request["compiles"] and not request["known"]:
            self.answer({"kind": "started", "id": request["id"]}, b"")
        started = time.monotonic()
        server = os.getpid()
        try:
            pid = os.fork()
        except OSError:
            os.close(read)
            os.close(write)
            raise
        if pid == 0:
            run_child(self.compiler, request, write, server)
        os.close(write)
        changed = self._changed(request)  # while the child compiles
        self._children[read] = _Child(request, pid, slot, changed, started, started + float(request["timeout"]))
        self._selector.register(read, selectors.EVENT_READ)

    def _changed(self, request: dict[str, Any]) -> str:
        """Return the part of the key that does not hold here: ``compiler`` or ``sources``; empty if all holds."""
        wanted = tuple(map(tuple, request["compiler"]))
        if wanted != self.loaded or wanted != files_state(self._files):
            return "compiler"
        sources = self.compiler.sources_digest(OpDesc.from_components(request["desc"]))
        return "sources" if sources != request["sources"] else ""

    def _read_child(self, descriptor: int) -> None:
        child = self._children[descriptor]
        data = os.read(descriptor, _CHUNK)
        try:
            messages = [] if child.garbled else _messages(child.unpacker, data)
        except ValueError:
            messages, child.garbled = [], True
            _kill(child.pid)
        if any(header["kind"] == "compiling" for header, _ in messages):
            self.answer({"kind": "started", "id": child.request["id"]}, b"")
        result = next((each for each in messages if each[0]["kind"] != "compiling"), None)
        if data and result is None:
            return
        self._selector.unregister(descriptor)
        os.close(descriptor)
        del self._children[descriptor]
        milliseconds = (time.monotonic() - child.started) * 1e3
        if result is not None:
            _kill(child.pid)  # with whatever it left running; without a result, how it ended is its own doing
        _, status = os.waitpid(child.pid, 0)
        self.slots.give(child.slot)
        self.answer(*self._verdict(child, result, status, milliseconds))

    def _verdict(
        self, child: _Child, result: tuple[dict[str, Any], bytes] | None, status: int, milliseconds: float
    ) -> tuple[dict[str, Any], bytes]:
        request = child.request
        if child.garbled:
            return _failure(request, "compile", "the compiler wrote what is no object where its object goes"), b""
        if result is None and child.expired:
            return _failure(request, "compile", f"it took more than {request['timeout']:g} s and was ended"), b""
        if result is None:
            return _failure(request, "compile", f"the compiler crashed: {_exit_reason(status)}"), b""
        header, payload = result
        if header["kind"] != "object":
            return _failure(request, header["step"], header["text"]), b""
        if not header["files"] and request["compiles"] and header["pipeline"] not in request["known"]:
            return _failure(request, "compile", "the compiler delivered no object"), b""
        answer = {"kind": "done", "id": request["id"], "milliseconds": milliseconds, "changed": child.changed}
        return answer | {"pipeline": header["pipeline"], "files": header["files"]}, payload

    def _expire(self) -> None:
        now = time.monotonic()
        for child in self._children.values():
            if now >= child.deadline and not child.expired:
                child.expired = True
                child.deadline = float("inf")
                _kill(child.pid)


def _messages(unpacker: Unpacker, data: bytes) -> list[tuple[dict[str, Any], bytes]]:
    """Return the messages of a child that these bytes complete."""
    messages = unpacker.feed(data)
    for header, payload in messages:
        check_answer(header, payload)
        if header["kind"] not in ("compiling", "object", "error"):
            raise ValueError("it is the answer of a server")
    return messages


def _failure(request: dict[str, Any], step: str, text: str) -> dict[str, Any]:
    return {"kind": "failed", "id": request["id"], "step": step, "text": text}


def _kill(pid: int) -> None:
    """End a child and its own children; it leads a process group of its own."""
    for target in (-pid, pid):
        with contextlib.suppress(OSError):
            os.kill(target, signal.SIGKILL)


def _exit_reason(status: int) -> str:
    if not os.WIFSIGNALED(status):
        return f"exit code {os.waitstatus_to_exitcode(status)} without a result"
    number = os.WTERMSIG(status)
    hint = hint_for_signal(number) or ("out of memory?" if number == signal.SIGKILL else "")
    return f"signal {number} ({signal.Signals(number).name})" + (f" ({hint})" if hint else "")


def load_compiler(import_string: str) -> Compiler:
    """Return an instance of the class that ``module:Class`` names."""
    module, _, name = import_string.partition(":")
    compiler: Compiler = getattr(import_module(module), name)()
    return compiler


def main() -> None:
    """Serve on the standard input and output."""
    _use_own_signals()
    use_temporary_folder()
    import_string, workers, kind = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    answers = os.dup(1)
    os.dup2(2, 1)  # whatever the compiler prints must not end up between the answers
    requests = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)

    def answer(header: dict[str, Any], payload: bytes = b"") -> None:
        write_all(answers, pack(header, payload))

    try:
        gc.disable()
        compiler = load_compiler(import_string)
        loaded = files_state(compiler.files())
        compiler.prepare()
        gc.freeze()  # what is loaded stays; to look through it in a child would copy its pages
        gc.enable()
        answer({"kind": "ready"})
        ServerLoop(compiler, workers, requests, answer, loaded, Slots(kind, workers)).run()
    except BrokenPipeError:
        pass  # the builder is gone, nobody waits for an answer
    except Exception as error:
        hint = hint_for(error) or suspected()
        text = f"{type(error).__name__}: {error}" if hint else traceback.format_exc()
        with contextlib.suppress(OSError):
            answer({"kind": "fatal", "text": text, "hint": hint or "reinstall opbuild and its compiler"})
    os._exit(0)


def _use_own_signals() -> None:
    """Restore the default handling of signals, however the user's process was started.

    Where SIGCHLD is ignored, as many supervisors leave it to what they start, nobody learns how a child ended.
    """
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE, signal.SIGXFSZ}:
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def use_temporary_folder() -> None:
    """Keep temporary files in memory where no folder takes them, as in a container that may not write to its disk."""
    try:
        tempfile.gettempdir()
    except FileNotFoundError:
        tempfile.tempdir = "/dev/shm"  # noqa: S108  private folders are made there


_PR_SET_PDEATHSIG = 1


def run_child(compiler: Compiler, request: dict[str, Any], pipe: int, server: int) -> NoReturn:
    """Compile the operator of ``request``, in a process just forked, and end the process.

    Args:
        compiler: The compiler, prepared.
        request: What to compile.
        pipe: Where the object or the error goes; its end marks the process's end, so it is never closed before.
        server: Process id of the server; this process ends with it.
    """
    try:
        os.setpgid(0, 0)
        _end_with(server)
        write_all(pipe, _compile(compiler, request, lambda: write_all(pipe, pack({"kind": "compiling"}))))
    except BaseException:  # nothing may reach the server's own loop, which this process is a copy of
        os._exit(1)
    os._exit(0)


def _compile(compiler: Compiler, request: dict[str, Any], begins: Callable[[], None]) -> bytes:
    """Return a child's last message; ``begins`` sends the one before, that it is more than looked at."""
    try:
        pipeline, files = _compiled_files(compiler, request, begins)
    except OpbuildError as error:
        return pack({"kind": "error", "step": "compile", "text": str(error)})
    except Exception as error:
        last = traceback.extract_tb(sys.exc_info()[2])[-1]
        text = f"{type(error).__name__}: {error} (at {Path(last.filename).name}:{last.lineno})"
        return pack({"kind": "error", "step": "compile", "text": text})
    others = next((type(each).__name__ for each in files.values() if not isinstance(each, bytes)), "")
    if others:
        return pack({"kind": "error", "step": "compile", "text": f"the compiler returned {others}"})
    sizes = [[suffix, len(content)] for suffix, content in files.items()]
    return pack({"kind": "object", "pipeline": pipeline, "files": sizes}, *files.values())


def _compiled_files(
    compiler: Compiler, request: dict[str, Any], begins: Callable[[], None]
) -> tuple[str, dict[str, bytes]]:
    """Return the digest of an operator's pipeline, and its files: none if that is known, or not allowed."""
    desc = OpDesc.from_components(request["desc"])
    symbol, target = request["symbol"], target_named(request["target"])
    if request["debug"]:
        return "", dict(compiler.inspect(desc, symbol, target, request["debug"]))
    pipeline = compiler.define(desc, target)
    if pipeline.digest in request["known"] or not request["compiles"]:
        return pipeline.digest, {}
    if request["known"]:
        begins()
    return pipeline.digest, artifact_files(pipeline.compile(symbol))


def _end_with(server: int) -> None:
    """Ask the kernel to end this process when the server does: a hung compile must not outlive a killed server."""
    if sys.platform == "linux":
        libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != server:
        os._exit(1)


if __name__ == "__main__":
    main()
