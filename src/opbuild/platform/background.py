"""Work in the background, where the system allows it: in threads of its own, or else by whoever needs it.

A limit on processes or on memory may allow no further thread. Nothing here needs one: what nobody waits for is left out
then, and who waits for something that has not begun does it himself.

What the background writer is for can do without it: a process that is killed has done less. Whoever needs it calls
``finish``, which does what is left at its own priority, and waits but for the task that is under way: on a busy machine
the thread that has it gets little of the processor. A fork waits for all of it too, since threads stay in the parent.
"""

from __future__ import annotations

import atexit
import contextlib
import copy
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar, copy_context
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from opbuild.platform.limits import has_room, no_process_is_left
from opbuild.platform.locks import Lock, local
from opbuild.platform.paths import Path

if TYPE_CHECKING:
    import threading


T = TypeVar("T")
R = TypeVar("R")

_PATIENCE = 0.1
"""Seconds in which a thread that has nothing left to do ends."""


def begin(work: Callable[[], object], name: str, *, is_needed: bool = False) -> threading.Thread | None:
    """Call a function in a thread of its own, which ends with the process; return it, or None if there is none.

    Where memory is limited there is none: a thread that finds no memory to begin lets ``start`` wait for ever.

    Args:
        work: The function; it must raise nothing. It sees the context variables of the caller.
        name: The thread's name, for who looks at the process.
        is_needed: Whether it cannot be done without: then also where little memory is left.
    """
    if not is_needed and not has_room():
        return None
    import threading  # most starts begin none

    thread = threading.Thread(target=partial(copy_context().run, work), name=name, daemon=True)
    try:
        thread.start()
    except (RuntimeError, MemoryError):
        return None
    return thread


_SOON = 2e-4
"""Seconds for which a thread keeps the interpreter from others while one works behind calls; Python's own are 5e-3."""

_yielding: list[tuple[float, float]] = []  # for each thread that does: the interval before, and the one that was set
_yielding_lock = Lock()
_is_behind: ContextVar[bool] = ContextVar("opbuild_behind", default=False)


def is_behind_calls() -> bool:
    """Return whether nobody waits for what this thread does: it works behind calls."""
    return _is_behind.get()


@contextlib.contextmanager
def yielding() -> Iterator[None]:
    """Have threads give the interpreter to others soon while this one works behind their calls.

    A call gives it up for each kernel, and takes it again after: beside a thread that computes in Python that took 5 ms
    each time. Whoever sets another interval meanwhile keeps that.
    """
    with _yielding_lock:
        before = _yielding[0][0] if _yielding else sys.getswitchinterval()
        sys.setswitchinterval(min(before, _SOON))
        _yielding.append((before, sys.getswitchinterval()))
    token = _is_behind.set(True)
    try:
        yield
    finally:
        _is_behind.reset(token)
        with _yielding_lock:
            if _yielding:  # a fork has left
                _stop_yielding(*_yielding.pop())


def _stop_yielding(before: float, own: float) -> None:
    if not _yielding and sys.getswitchinterval() == own:
        sys.setswitchinterval(before)


def _leave_in_fork() -> None:
    """Let a fork have the usual interval: who yielded in other threads stayed in the parent."""
    if _yielding:
        latest = _yielding[-1]
        _yielding.clear()
        _stop_yielding(*latest)


os.register_at_fork(after_in_child=_leave_in_fork)


def await_end(threads: Sequence[threading.Thread]) -> None:
    """Wait until the system has no more of some threads that have nothing left to do, but not for long."""
    latest = time.monotonic() + _PATIENCE
    while any(Path(f"/proc/self/task/{each.native_id}").exists() for each in threads) and time.monotonic() < latest:
        time.sleep(1e-4)


def without_frames(error: BaseException) -> BaseException:
    """Return a copy of an error for who may have to raise it again.

    A traceback has the frames of all through whom the error passed, and they have what raised it: who keeps that error
    is in a cycle.
    """
    found = copy.copy(error)  # which dask has copies of errors take along
    found.__traceback__ = found.__cause__ = found.__context__ = None
    return found


class Background(Generic[T]):
    """A piece of work that is done once, by a thread of its own or by whoever waits for it first."""

    def __init__(self, work: Callable[[], T], name: str) -> None:
        import threading

        self._work: Callable[[], T] | None = work
        self._name = name
        self._claim = threading.Lock()
        self._done = threading.Event()
        self._result: list[T] = []
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, if there can be a thread for it."""
        self._thread = begin(self._run, self._name)

    def is_left_out(self) -> bool:
        """Return whether nobody has begun; then nobody will."""
        return self._claim.acquire(blocking=False)

    def result(self) -> T:
        """Return the result of the work, or raise its error; do it here if it has not begun.

        Where the thread was the last process that the limit allows, and the work is to start one, it is done here too.
        """
        self._run()
        self._done.wait()
        if self._work is not None and self._thread is not None:
            await_end([self._thread])
            return self._work()
        if self._error is None:
            return self._result[0]
        error, self._error = self._error, without_frames(self._error)
        try:
            raise error
        finally:
            del error

    def _run(self) -> None:
        if self._work is None or not self._claim.acquire(blocking=False):
            return  # somebody does it, or did
        try:
            self._result.append(self._work())
        except BaseException as error:  # raised again where the result is asked for
            self._error = error
        finally:
            if not no_process_is_left(self._error):
                self._work = None  # it may have this
            self._done.set()


def parallel_map(
    work: Callable[[T], R],
    items: Sequence[T],
    threads: int,
    name: str,
) -> list[R]:
    """Call a function for each item, in the order of the items as far as threads are free; return its results.

    It pays where the function lets other threads run, as numpy, digests and files do. Where the system allows no
    further thread the calling one does everything. An error, Ctrl-C too, ends it before the next item of each thread.

    Args:
        work: The function.
        items: What it is called with.
        threads: Threads at most, the calling one among them.
        name: The threads' name.

    Raises:
        BaseException: What ``work`` raised, of the first item at which it did.
    """
    results: dict[int, R] = {}
    errors: dict[int, BaseException] = {}
    left, lock = iter(range(len(items))), Lock()

    def take() -> int | None:
        with lock:
            return None if errors else next(left, None)

    def run() -> None:
        number = take()
        while number is not None:
            try:
                results[number] = work(items[number])
            except BaseException as error:  # raised again by the caller
                errors[number] = error
            number = take()

    helpers = [Background(run, name) for _ in range(min(threads, len(items)) - 1)]
    for each in helpers:
        each.start()
    try:
        run()
        for each in helpers:
            each.result()
    except BaseException as error:  # Ctrl-C while the others end
        errors[-1] = error
        for each in helpers:
            each.result()
    if errors:
        first = errors[min(errors)]
        errors.clear()  # the error's traceback has this frame, or one that has the errors
        try:
            raise first
        finally:
            del first
    return [results[number] for number in range(len(items))]


Task = Callable[[], object]

_THREADS = 2
"""Threads that finish what is left, the calling one among them."""


class WriteJob:
    """Tasks that may be done side by side, and one that follows all of them."""

    def __init__(self, name: str, tasks: Iterable[Task], last: Task) -> None:
        self.name = name
        self._left, self._last, self._under_way = deque(tasks), [last], 0

    def take(self) -> Task | None:
        """Return a task that can be done now, None if there is none."""
        task = self._left.popleft() if self._left else None
        if task is None and self._last and not self._under_way:
            task = self._last.pop()
        self._under_way += task is not None
        return task

    def __len__(self) -> int:
        """The number of tasks that have not begun."""
        return len(self._left) + len(self._last)

    def end(self) -> bool:
        """Note that a task is done; return whether all are."""
        self._under_way -= 1
        return not (self._left or self._last or self._under_way)


class _Own(local):
    """The state of a thread: the job of which it does a task."""

    job: WriteJob | None = None


class BackgroundWriter:
    """Does one job after the other. Threads may share it; a fork has nothing to do."""

    _changed: threading.Condition
    _has_thread: bool
    _finishing: set[object]

    def __init__(self) -> None:
        self._jobs: deque[WriteJob] = deque()
        self._preparing, self._is_prepared = Lock(), False

    def add(self, job: WriteJob) -> None:
        """Do a job soon; now, if the program is ending or there can be no more threads."""
        self._prepare()
        with self._changed:
            self._jobs.append(job)
        self._begin()

    def finish(self, name: str = "") -> None:
        """Return when nothing is left to do; Ctrl-C leaves out the rest of the job that is being done.

        With a name only if a job that has it is left.
        """
        if not self._jobs or self._own.job is not None:
            return
        own = object()
        with self._changed:
            if not any(name in ("", job.name) for job in self._jobs):
                return
            threads = max(1, min(_THREADS, sum(map(len, self._jobs))))
            self._finishing.add(own)
            self._changed.notify_all()
        try:
            parallel_map(lambda _: self._work(own), range(threads), threads, "opbuild-finish")
        finally:
            with self._changed:
                self._finishing.discard(own)
            self._begin()  # what came meanwhile, or was not interrupted

    def _prepare(self) -> None:
        """Make the state that the first job needs; most starts have none, and ``threading`` is 3% of all they load."""
        with self._preparing:
            if self._is_prepared:
                return
            import threading

            self._forget()
            os.register_at_fork(before=self.finish, after_in_child=self._forget)
            with contextlib.suppress(RuntimeError):  # the program is ending
                # Children of multiprocessing know no ``atexit``, and what this begins may want to be finished there.
                getattr(threading, "_register_atexit", atexit.register)(self.finish)
            self._is_prepared = True

    def _begin(self) -> None:
        """Have a thread for the rest."""
        import threading

        with self._changed:
            if self._has_thread or not self._jobs:
                return
            self._has_thread = True
        if not (threading.main_thread().is_alive() and begin(self._work_idle, "opbuild-behind")):
            self._has_thread = False
            self.finish()

    def _work_idle(self) -> None:
        _lower_priority()
        try:
            while True:
                self._work(None)
                with self._changed:
                    if self._finishing or not self._jobs:
                        self._has_thread = False
                        return
        except BaseException:  # a task's, which ends this thread
            self._has_thread = False
            self._begin()  # for what came meanwhile
            raise

    def _work(self, finisher: object | None) -> None:
        """Work off the jobs, and return when all are done, by others too; or when others would do them sooner.

        An error ends the job that is being done, and the other thread of the same finisher; None is nobody, behind.
        """
        try:
            while (task := self._next(finisher)) is not None:
                task()
                self._end()
        except BaseException:
            self._finishing.discard(finisher)
            self._end(is_broken=True)
            raise
        finally:
            self._own.job = None

    def _next(self, finisher: object | None) -> Task | None:
        """Return a task of the first job, which is this thread's before it has taken any: Ctrl-C may come between."""
        with self._changed:
            while self._jobs and (finisher in self._finishing if finisher else not self._finishing):
                self._own.job = self._jobs[0]
                task = self._jobs[0].take()
                if task is not None:
                    return task
                self._changed.wait()
            return None

    def _end(self, *, is_broken: bool = False) -> None:
        """Note that this thread's task is done, or that nothing more of its job is to be."""
        with self._changed:
            job = self._own.job
            if job is not None and job in self._jobs and (job.end() or is_broken):
                self._jobs.remove(job)
            self._changed.notify_all()

    def _forget(self) -> None:
        import threading

        self._changed, self._own = threading.Condition(), _Own()
        self._jobs, self._has_thread, self._finishing = deque(), False, set()


def _lower_priority() -> None:
    """Let this thread run only where nobody else wants to; it cannot be undone without privileges."""
    with contextlib.suppress(AttributeError, OSError):  # not Linux, or a sandbox
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


BACKGROUND_WRITER = BackgroundWriter()
"""The process's one."""
