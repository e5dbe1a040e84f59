"""The limits of a process (``ulimit``, and a container's cores): errors that say which of them a refusal comes from.

A supervisor, a batch system or a container may allow little: few processes, small files, a small address space. What
then fails somewhere as a ``MemoryError``, an error of the system or a killed process ends as an error that names the
limit, what it is now, and what to do.
"""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, wraps
from typing import Any, TypeVar, cast

from opbuild.errors import BuildError, OpbuildError, OptionError
from opbuild.platform.paths import Path
from opbuild.platform.records import NamedTuple

F = TypeVar("F", bound=Callable[..., Any])

ROOM = 2**30
"""Bytes of address space that must be free before a thread is started that could be done without: it takes a stack of
8 MB and an arena of the allocator, 128 MB for a moment, and what comes next fails for want of them."""


_LEAST = 2**25
"""Bytes of room below which whatever fails may fail for want of it: modules that could not be loaded whole, say."""


class Limit(NamedTuple):
    """A limit of this process.

    Attributes:
        flag: Of the shell's ``ulimit``.
        low: Bytes below which a compiler may fail and not say why; 0 for what is no number of bytes.
    """

    name: str
    what: str
    flag: str
    low: int = 0

    @property
    def value(self) -> int | None:
        """The limit now; None if there is none."""
        import resource  # a start that fails nowhere does not need it

        soft, _ = resource.getrlimit(getattr(resource, f"RLIMIT_{self.name}"))
        return None if soft == resource.RLIM_INFINITY else soft

    @property
    def is_low(self) -> bool:
        """Whether it may be why something failed."""
        return self.value is not None and self.value < self.low

    @property
    def text(self) -> str:
        """The limit, its flag and its value."""
        value = self.value
        now = "" if value is None else f", now {_bytes(value) if self.low else value}"
        return f"the limit on {self.what} (ulimit -{self.flag}{now})"


ADDRESS_SPACE = Limit("AS", "the address space", "v", 2**30)
DATA = Limit("DATA", "data", "d", 2**30)
FILE_SIZE = Limit("FSIZE", "the size of files", "f", 2**24)
OPEN_FILES = Limit("NOFILE", "open files", "n")
PROCESSES = Limit("NPROC", "processes and threads", "u")
STACK = Limit("STACK", "the stack", "s", 2**20)
TIME = Limit("CPU", "processor time", "t")

_NO_MEMORY = ("failed to map segment", "annot allocate memory", "std::bad_alloc")
_NO_THREAD = "can't start new thread"


def hint_for(error: BaseException | None) -> str:
    """Return the remedy for an error that comes from a limit or a lack of memory; empty for any other error."""
    while error is not None:
        hint = _hint(error)
        if hint:
            return hint
        error = error.__cause__ or error.__context__
    return ""


_FULL = (errno.ENOSPC, errno.EDQUOT)


def unwritten(what: str, error: OSError, hint: str) -> OpbuildError:
    """Return the error for a place that a user named and that cannot be written: it is wrong, unless the disk is full.

    Args:
        what: The beginning of the message.
        error: What writing raised.
        hint: What to do where the place is wrong.
    """
    message = f"{what} cannot be written: {error.strerror or error}"
    if error.errno in _FULL:
        return BuildError(message, "make room there, or choose another place")
    return OptionError(message, hint_for(error) or hint)


def no_process_is_left(error: BaseException | None) -> bool:
    """Return whether an error, or one that it was raised from, says that no further process may be started."""
    while error is not None:
        if isinstance(error, OSError) and error.errno == errno.EAGAIN:
            return True
        error = error.__cause__
    return False


def hint_for_signal(number: int) -> str:
    """Return the remedy for a process that a signal ended; empty if it is not the signal of a limit."""
    import signal  # a start never needs it

    limits: dict[int, Limit] = {signal.SIGXFSZ: FILE_SIZE, signal.SIGXCPU: TIME}
    return f"raise {limits[number].text}" if number in limits else ""


_COMPILERS_FOLDER = "/tmp"  # noqa: S108  nothing is written there
"""Where Halide keeps files while it compiles, whatever TMPDIR says."""


def suspected() -> str:
    """Return the remedy for a process that failed and did not say why: what is low or missing; empty if nothing is."""
    low = [limit.text for limit in (ADDRESS_SPACE, DATA, FILE_SIZE, STACK) if limit.is_low]
    remedies = [f"raise {' and '.join(low)}"] if low else []
    if not os.access(_COMPILERS_FOLDER, os.W_OK):
        remedies.append(f"give {_COMPILERS_FOLDER} a volume that can be written")
    return f"little is allowed here: {', '.join(remedies)}" if remedies else ""


def has_room() -> bool:
    """Return whether there is room for the stacks and the memory of threads that could be done without."""
    return _room() >= ROOM


def require_room() -> None:
    """Refuse, by a MemoryError, to load libraries where there is hardly any room: some of them end the process."""
    if _room() < _LEAST:
        raise MemoryError("there is not enough memory")


@contextmanager
def named(kind: type[OpbuildError], what: str) -> Iterator[None]:
    """Turn a lack of memory, processes or open files into an error that names the limit, one of a package likewise."""
    try:
        yield
    except OpbuildError:
        raise
    except Exception as error:  # what has no memory left to begin with ends in any way
        from opbuild.platform.packages import missing_package  # a start has no errors

        missing = missing_package(error)
        if missing is not None:
            raise missing from error
        hint = hint_for(error) or ("" if _room() >= _LEAST else _memory_hint())
        if not hint:
            raise
        message = error.strerror if isinstance(error, OSError) else str(error)
        raise kind(f"{what}: {message or 'there is not enough memory'}", hint) from error


def names_limits(kind: type[OpbuildError], what: str) -> Callable[[F], F]:
    """Return a decorator for functions whose errors ``named`` turns; its arguments are those."""

    def decorate(function: F) -> F:
        @wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with named(kind, what):
                return function(*args, **kwargs)

        return cast("F", wrapped)

    return decorate


def _hint(error: BaseException) -> str:
    number, text = getattr(error, "errno", 0), str(error)
    if number in (errno.EMFILE, errno.ENFILE):
        return f"raise {OPEN_FILES.text}"
    if number == errno.EFBIG:
        return f"raise {FILE_SIZE.text}"
    if number == errno.EAGAIN or (_NO_THREAD in text and has_room()):
        return f"raise {PROCESSES.text}, or the container's limit on processes (pids)"
    if isinstance(error, MemoryError) or number == errno.ENOMEM or any(s in text for s in (*_NO_MEMORY, _NO_THREAD)):
        return _memory_hint()
    return ""


def _memory_hint() -> str:
    limits = [limit.text for limit in (ADDRESS_SPACE, DATA) if limit.value is not None]
    return f"free memory, or raise {' and '.join(limits) or 'the limit of the container'}"


def _room() -> float:
    """Return the bytes of memory that the limits still allow."""
    limits = [limit.value for limit in (ADDRESS_SPACE, DATA)]
    if limits == [None, None]:
        return math.inf
    used = zip(limits, _memory_in_use(), strict=True)
    return min(math.inf if limit is None else limit - count for limit, count in used)


def _memory_in_use() -> tuple[int, int]:
    """Return the bytes of address space and of data that this process has; 0 where that is not known."""
    try:
        page = os.sysconf("SC_PAGE_SIZE")
        pages = Path("/proc/self/statm").read_text("ascii").split()
        return int(pages[0]) * page, int(pages[5]) * page
    except (OSError, ValueError, IndexError):
        return 0, 0


def _bytes(count: int) -> str:
    """Return a number of bytes in a unit that leaves few digits."""
    for unit, size in (("GB", 2**30), ("MB", 2**20), ("KB", 2**10)):
        if count >= size:
            return f"{count / size:.4g} {unit}"
    return f"{count} bytes"


_UNLIMITED = math.inf
_FIRST_VERSION, _SECOND_VERSION = ("cpu.cfs_quota_us", "cpu.cfs_period_us"), ("cpu.max",)
"""Files of control groups that have the quota and the period, one behind the other."""


@lru_cache(maxsize=1)
def cpu_limit(root: Path = Path("/")) -> int | None:
    """Return the number of cores that the control groups of this process allow, rounded up; None without a limit.

    Both versions of control groups are understood; the least limit from the process's group up to the root counts.
    The answer is kept for the process.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    cores = _UNLIMITED
    for line in lines:
        _, controllers, group = line.split(":", 2) if line.count(":") >= 2 else ("", "none", "")
        if not controllers:
            cores = min(cores, _least_limit(root / "sys/fs/cgroup", group, _SECOND_VERSION))
        elif "cpu" in controllers.split(","):
            for mount in {controllers, "cpu"}:
                cores = min(cores, _least_limit(root / "sys/fs/cgroup" / mount, group, _FIRST_VERSION))
    return max(1, math.ceil(cores)) if cores != _UNLIMITED else None


def _least_limit(mount: Path, group: str, files: Sequence[str]) -> float:
    """Return the least limit of a group and the groups above it; in a container only the mount's root may exist."""
    folder = mount / group.strip("/")
    cores = _UNLIMITED
    while True:
        try:
            quota, period = map(int, " ".join((folder / name).read_text("utf-8") for name in files).split())
            cores = min(cores, quota / period if quota > 0 < period else _UNLIMITED)
        except (OSError, ValueError):
            pass  # no such group here, or no limit that is a number
        if folder == mount or mount not in folder.parents:
            return cores
        folder = folder.parent
