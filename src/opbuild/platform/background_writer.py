"""Background writer: work in the background of a program, at the lowest priority, done before the program ends.

What it is for can do without it: a process that is killed has done less. Whoever needs it calls ``finish``, which does
what is left at its own priority, and waits but for the task that is under way: on a busy machine the thread that has it
gets little of the processor. A fork waits for all of it too, since the threads stay in the parent.
"""

from __future__ import annotations

import atexit
import contextlib
import os
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from opbuild.platform.background import begin
from opbuild.platform.locks import Lock, local
from opbuild.platform.parallel_map import parallel_map

if TYPE_CHECKING:
    import threading

Task = Callable[[], object]

_THREADS = 2
"""Threads that finish what is left, the calling one among them."""


class WriteJob:
    """Tasks that may be done side by side, and one that follows all of them.

    Args:
        name: What it makes, for who asks for that.
        tasks: The tasks; they raise nothing but what is to end the program.
        last: The same.
    """

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


class BackgroundWriter:
    """Does one job after the other. Threads may share it; a fork has nothing to do."""

    _changed: threading.Condition
    _has_thread: bool
    _finishing: int

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
        """Return when nothing is left to do; Ctrl-C leaves out what has not begun.

        With a name only if a job that has it is left.
        """
        if not self._jobs or getattr(self._own, "works", False):
            return
        with self._changed:
            if not any(name in ("", job.name) for job in self._jobs):
                return
            threads = max(1, min(_THREADS, sum(map(len, self._jobs))))
            self._finishing += 1
            self._changed.notify_all()
        try:
            parallel_map(lambda _: self._work(), range(threads), threads, "opbuild-finish")
        finally:
            with self._changed:
                self._finishing -= 1
            self._begin()  # what came meanwhile

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
        if not (threading.main_thread().is_alive() and begin(self._work_lowly, "opbuild-behind")):
            self._has_thread = False
            self.finish()

    def _work_lowly(self) -> None:
        _lower_priority()
        while True:
            self._work(is_lowly=True)
            with self._changed:
                if self._finishing or not self._jobs:
                    self._has_thread = False
                    return

    def _work(self, *, is_lowly: bool = False) -> None:
        """Work off the jobs, and return when all are done, by others too; or when others would do them sooner."""
        self._own.works = True
        try:
            while (found := self._next(is_lowly)) is not None:
                job, task = found
                try:
                    task()
                finally:
                    self._end(job)
        except BaseException:
            with self._changed:
                self._jobs.clear()
                self._changed.notify_all()
            raise
        finally:
            self._own.works = False

    def _next(self, is_lowly: bool) -> tuple[WriteJob, Task] | None:
        with self._changed:
            while self._jobs and not (is_lowly and self._finishing):
                task = self._jobs[0].take()
                if task is not None:
                    return self._jobs[0], task
                self._changed.wait()
            return None

    def _end(self, job: WriteJob) -> None:
        with self._changed:
            if job.end() and self._jobs and self._jobs[0] is job:
                self._jobs.popleft()
            self._changed.notify_all()

    def _forget(self) -> None:
        import threading

        self._changed, self._own = threading.Condition(), local()
        self._jobs, self._has_thread, self._finishing = deque(), False, 0


def _lower_priority() -> None:
    """Let this thread run only where nobody else wants to; it cannot be undone without privileges."""
    with contextlib.suppress(AttributeError, OSError):  # not Linux, or a sandbox
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


BACKGROUND_WRITER = BackgroundWriter()
"""The process's one."""
