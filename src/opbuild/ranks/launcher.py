"""``opbuild launch``: starts the ranks of a job on this host, passes on their output, and ends them together."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, cast

from opbuild.config import PLACES, available_cores
from opbuild.errors import OptionError, RankError
from opbuild.platform.files.kinds import SCRIPT, require_kind
from opbuild.platform.files.meeting import open_meeting_file
from opbuild.platform.limits import hint_for, named, unwritten
from opbuild.platform.paths import Path
from opbuild.platform.places import STARTERS
from opbuild.platform.records import dataclass, field, replace
from opbuild.ranks.hub import Hub
from opbuild.ranks.progress import Snapshot, read_snapshot, write_snapshot

PREFIX = "opbuild-job-"
LOCK = "lock"
GONE = ".gone"
_NAME = re.compile(re.escape(PREFIX) + r"\w{8}" + f"({re.escape(GONE)})?")
YOUNG = 600.0
"""Seconds in which a folder is left alone: its maker may not have locked it yet."""


class JobFolder:
    """A new folder for one job, 0700, at ``path``."""

    def __init__(self) -> None:
        try:
            parent = Path(os.path.realpath(tempfile.gettempdir()))
            _sweep(parent)
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
            self._lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise RankError(f"the job gets no folder: {error}", "set TMPDIR to a folder that can be written") from error
        with contextlib.suppress(OSError):  # where there are no locks, a killed job's folder stays
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def remove(self) -> None:
        """Remove the folder with all that is in it."""
        remove_folder(self.path)
        os.close(self._lock)


def remove_folder(path: Path) -> None:
    """Remove a job's folder. It is renamed first: files that a rank still writes into it would keep it."""
    gone = path.with_name(path.name.removesuffix(GONE) + GONE)
    with contextlib.suppress(OSError):
        path.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


def _sweep(parent: Path) -> None:
    """Remove this user's folders of jobs whose makers are gone; a folder without a lock is not a job's."""
    for path in _stale_folders(parent):
        with contextlib.suppress(OSError):
            if path.name.endswith(GONE):
                remove_folder(path)
                continue
            lock = open_meeting_file(path / LOCK, os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove_folder(path)
            finally:
                os.close(lock)


def _stale_folders(parent: Path) -> Iterator[Path]:
    now = time.time()
    with contextlib.suppress(OSError):
        for path in parent.glob(f"{PREFIX}*"):
            state = path.lstat()
            made_here = _NAME.fullmatch(path.name) and state.st_uid == os.getuid()
            if made_here and now - state.st_mtime > YOUNG:
                yield path


END = b"end\n"


class Guard:
    """Watches this process, and removes the job's folder if this cannot; make it before any thread is started."""

    def __init__(self, folder: Path) -> None:
        read, self._write = os.pipe()
        self._process = os.fork()
        if self._process == 0:
            try:
                os.close(self._write)
                _watch(read, folder)
            finally:
                os._exit(0)
        os.close(read)

    def add(self, group: int) -> None:
        """Take note of a process group that has been started."""
        self._tell_guard(b"+%d\n" % group)

    def remove(self, group: int) -> None:
        """Take note that a process group has ended."""
        self._tell_guard(b"-%d\n" % group)

    def close(self) -> None:
        """End the guard: there is nothing left to watch."""
        self._tell_guard(END)
        os.close(self._write)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._process, 0)

    def _tell_guard(self, line: bytes) -> None:
        with contextlib.suppress(OSError):  # somebody killed the guard: then nothing guards, and the job goes on
            os.write(self._write, line)


def _watch(read: int, folder: Path) -> None:
    """Wait for the launcher's end, in the guard's process."""
    os.setsid()  # Ctrl-C is for the launcher, which ends the ranks itself
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    said = b""
    while data := os.read(read, 1 << 12):
        said += data
    if said.endswith(END):
        return
    groups: set[int] = set()
    for line in said.split(b"\n")[:-1]:
        (groups.add if line[:1] == b"+" else groups.discard)(int(line[1:]))
    for group in groups:
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)
    remove_folder(folder)


GRACE = 2.0
"""Seconds between asking ranks to end and ending them."""
LINGER = 1.0
"""Seconds that output may still come after its rank has ended."""
CHUNK = 1 << 16

ERROR, HINT = "error (", "\n  hint: "
"""How a rank's error block and its hint begin."""

RUN = "import sys; sys.path[:1] == [''] and sys.path.pop(0); from opbuild.cli.main import main; sys.exit(main())"
"""``python -m opbuild`` without the working folder on the search path, which may hold an ``onnx.py``."""


@dataclass
class Rank:
    """One rank that runs.

    Attributes:
        process: Its process, the leader of a group of its own.
    """

    number: int
    process: subprocess.Popen[bytes]
    streams: dict[int, PrefixedLines]
    code: int | None = None

    @property
    def message(self) -> tuple[str, str]:
        """The last message on its standard error, an error block of opbuild or the last line, and the hint."""
        lines = [line for each in list(self.streams.values())[1:] for line in each.last if line.strip()]
        starts = [index for index, line in enumerate(lines) if line.startswith(ERROR)]
        if not starts:
            return "".join(lines[-1:]), ""
        message, _, hint = "\n".join(lines[starts[-1] :]).partition(HINT)
        return message.partition("): ")[2], hint

    @property
    def outcome(self) -> str:
        """The end of the rank's process, in words."""
        if self.process.returncode < 0:
            return f"was killed by {signal.Signals(-self.process.returncode).name}"
        return f"failed with exit code {self.code}"


@dataclass
class RankJob:
    """The script to start, its arguments, the number of ranks, and the environment that they inherit."""

    script: Path
    arguments: Sequence[str]
    size: int
    per_device_dirs: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)


def launch(job: RankJob) -> int:
    """Run a job and return 0 when all ranks ended well; 128 and the signal's number after a signal."""
    script = Path(os.path.abspath(job.script))
    require_kind(job.script, SCRIPT)
    job = replace(job, script=script)
    with contextlib.ExitStack() as ending:
        folder = JobFolder()
        ending.callback(folder.remove)
        with named(RankError, "no ranks can be started"):
            guard = Guard(folder.path)
            ending.pop_all()
            ending.callback(guard.close)
            ending.callback(folder.remove)  # first, so that the guard sees to it if this process is killed meanwhile
            hub = Hub(folder.path, job.size)
        return _Launcher(job, folder.path, guard, hub).run()


class _Launcher:
    """Starts the ranks, then serves events: output, ends, signals."""

    def __init__(self, job: RankJob, folder: Path, guard: Guard, hub: Hub) -> None:
        self._job = job
        self._folder = folder
        self._guard = guard
        self._hub = hub
        self._ranks: list[Rank] = []
        self._selector = selectors.DefaultSelector()
        self._first: Rank | None = None
        self._signal = 0
        self._kill_at = float("inf")
        self._readable = True
        self._unwritten: OSError | None = None

    def run(self) -> int:
        with self._signals():
            try:
                for number in range(self._job.size):
                    self._start(number)
                while any(rank.code is None for rank in self._ranks):
                    self._step()
            finally:
                self._end_all(signal.SIGKILL)
                self._drain()
        if self._signal:
            return 128 + self._signal
        if self._hub.problem:
            raise RankError(self._hub.problem, "start the job again")
        if self._first is not None:
            raise self._failure(self._first)
        if self._unwritten is not None:
            raise unwritten("the output of the ranks", self._unwritten, "send it elsewhere")
        return 0 if self._readable else 1

    def _start(self, number: int) -> None:
        job = self._job
        folder = Path(f"device{number}").absolute() if job.per_device_dirs else None
        command = [sys.executable, "-c", RUN, "run", str(job.script), *job.arguments]
        try:
            if folder is not None:
                folder.mkdir(exist_ok=True)
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                cwd=folder,
                env=rank_environment(job.environment, number, job.size, self._folder, available_cores()),
                start_new_session=True,  # so that it and what it starts end together, and Ctrl-C comes here
            )
        except OSError as error:
            hint = hint_for(error) or "start fewer ranks, or in a folder that can be written"
            raise OptionError(f"rank {number} cannot be started: {error.strerror or error}", hint) from error
        self._guard.add(process.pid)
        streams = {}
        for pipe, output in ((process.stdout, 1), (process.stderr, 2)):
            descriptor = cast("IO[bytes]", pipe).fileno()
            streams[descriptor] = PrefixedLines(number, output)
            self._selector.register(descriptor, selectors.EVENT_READ, streams[descriptor])
        self._ranks.append(Rank(number, process, streams))

    def _step(self) -> None:
        """Wait for something and act on it."""
        wait = min(1.0, max(0.0, self._kill_at - time.monotonic()))
        self._listen(wait)
        failed = self._first is not None or self._signal or not self._readable or self._hub.problem
        if failed and self._kill_at == float("inf"):
            self._kill_at = time.monotonic() + GRACE
            self._end_all(signal.SIGTERM)
        if time.monotonic() >= self._kill_at:
            self._end_all(signal.SIGKILL)
            self._kill_at = time.monotonic() + GRACE

    def _listen(self, seconds: float) -> bool:
        """Pass on the ranks' output and take note of those that ended; return whether anything happened."""
        ready = self._selector.select(seconds)
        for key, _ in ready:
            if isinstance(key.data, PrefixedLines):
                self._pass_on(key.fd, key.data)
            else:
                os.read(key.fd, CHUNK)  # the number of a signal, whose handler has run
        self._collect()
        return bool(ready)

    def _pass_on(self, descriptor: int, lines: PrefixedLines) -> None:
        data = os.read(descriptor, CHUNK)
        try:
            lines.feed(data) if data else lines.finish()
        except BrokenPipeError:  # nobody reads (`opbuild launch ... | head`)
            self._readable = False
        except OSError as error:
            self._readable, self._unwritten = False, error
        if not data:
            self._selector.unregister(descriptor)

    def _collect(self) -> None:
        """Take note of the ranks that have ended."""
        for rank in self._ranks:
            if rank.code is not None or not _has_ended(rank.process.pid):
                continue
            with contextlib.suppress(OSError):  # its number is not free before it is waited for
                os.killpg(rank.process.pid, signal.SIGKILL)
            returned = rank.process.wait()
            self._guard.remove(rank.process.pid)
            rank.code = returned if returned >= 0 else 128 - returned
            latest = read_snapshot(self._folder, rank.number) or Snapshot()
            write_snapshot(
                self._folder, rank.number, replace(latest, state="ended", compiling=(), changes=latest.changes + 1)
            )
            if rank.code and self._first is None and self._kill_at == float("inf"):
                self._first = rank

    def _end_all(self, number: int) -> None:
        for rank in self._ranks:
            if rank.code is None and rank.process.returncode is None:
                with contextlib.suppress(OSError):
                    os.killpg(rank.process.pid, number)

    def _drain(self) -> None:
        """Wait for all ranks and pass on the rest of their output."""
        end = time.monotonic() + LINGER
        while any(isinstance(key.data, PrefixedLines) for key in self._selector.get_map().values()):
            if not self._listen(max(0.0, end - time.monotonic())):
                break
        for rank in self._ranks:
            rank.process.wait()
            for lines in rank.streams.values():
                with contextlib.suppress(OSError):
                    lines.finish()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Let signals and ends of ranks wake the loop."""
        read, write = os.pipe()
        os.set_blocking(read, False)
        os.set_blocking(write, False)
        self._selector.register(read, selectors.EVENT_READ)
        before = {number: signal.signal(number, self._on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, self._on_signal)
        before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)
        wakeup = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(wakeup)
            for number, handler in before.items():
                signal.signal(number, handler)
            self._selector.close()
            os.close(read)
            os.close(write)

    def _on_signal(self, number: int, _: object) -> None:
        if self._signal:  # asked twice: now
            self._kill_at = 0.0
        elif number == signal.SIGINT:
            with contextlib.suppress(OSError):
                os.write(2, b"\r\x1b[2Kstopping\n" if os.isatty(2) else b"stopping\n")  # over the ^C
        self._signal = self._signal or number

    def _failure(self, rank: Rank) -> RankError:
        message, hint = rank.message
        ending = f": {message}" if message else ""
        error = RankError(f"rank {rank.number} {rank.outcome}{ending}", hint or "the other ranks were ended")
        error.exit_code = rank.code or 1
        return error


def _has_ended(process: int) -> bool:
    """Return whether a child has ended, and leave it to be waited for: until then its group's number is its own."""
    with contextlib.suppress(ChildProcessError):
        return os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    return True


PATHS = (*PLACES, "ASCEND_CACHE_PATH", "ASCEND_WORK_PATH", "TMPDIR")
"""Variables that name a folder; a rank may work in another folder than the launcher."""

MOST_WORKERS = 24


def rank_environment(inherited: Mapping[str, str], rank: int, size: int, folder: Path, cores: int) -> dict[str, str]:
    """Return a rank's environment: the launcher's, the rank's place, and its share of the cores.

    Threads and workers are divided over the ranks unless variables say how many there are.
    """
    env = {name: text for name, text in inherited.items() if not any(name in names for names in STARTERS)}
    for name in PATHS:
        if env.get(name, "").strip():
            env[name] = os.path.abspath(env[name])
    if env.get("PYTHONPATH"):
        env["PYTHONPATH"] = os.pathsep.join(os.path.abspath(each) for each in env["PYTHONPATH"].split(os.pathsep))
    share = max(1, cores // size)
    threads = env.get("OMP_NUM_THREADS", "").strip()
    env.setdefault("OPBUILD_NUM_THREADS", threads if threads.isdecimal() and int(threads) else str(share))
    env.setdefault("OMP_NUM_THREADS", str(share))
    env.setdefault("MS_BUILD_PROCESS_NUM", str(min(share, MOST_WORKERS)))
    place = {"RANK_ID": rank, "RANK_SIZE": size, "DEVICE_ID": rank, "OPBUILD_JOB_DIR": folder}
    return env | {name: str(value) for name, value in place.items()}


LONGEST = 1 << 16
"""Bytes after which a line without an end is written in parts."""

REMEMBERED = 50
"""Lines kept to tell what a rank said last."""


class PrefixedLines:
    """One stream of one rank, written to a descriptor line by line; ``last`` are the last ones, without the prefix."""

    def __init__(self, rank: int, output: int) -> None:
        self.last: list[str] = []
        self._prefix = b"[rank %d] " % rank
        self._output = output
        self._unfinished = b""

    def feed(self, data: bytes) -> None:
        """Take output and write the lines that it completes."""
        *lines, self._unfinished = (self._unfinished + data).split(b"\n")
        if len(self._unfinished) > LONGEST:
            lines.append(self._unfinished)
            self._unfinished = b""
        self._write(lines)

    def finish(self) -> None:
        """Write the rest, which has no end of line."""
        if self._unfinished:
            lines, self._unfinished = [self._unfinished], b""
            self._write(lines)

    def _write(self, lines: list[bytes]) -> None:
        self.last = [*self.last, *(line.decode(errors="replace") for line in lines[-REMEMBERED:])][-REMEMBERED:]
        data = memoryview(b"".join(self._prefix + line + b"\n" for line in lines))
        while data:
            data = data[os.write(self._output, data) :]
