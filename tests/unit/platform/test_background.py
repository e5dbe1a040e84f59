"""Work in the background: done by a thread where there can be one, else by whoever waits for it."""

from __future__ import annotations

import copyreg
import errno
import gc
import resource
import sys
import threading
import weakref
from typing import Any

import pytest

from opbuild.platform import limits
from opbuild.platform.background import Background, begin, yielding
from support.forked import in_fork
from support.until import PATIENCE


def refuse(_: threading.Thread) -> None:
    """Stand in for ``Thread.start`` where a limit allows no more."""
    raise RuntimeError("can't start new thread")


def test_without_a_thread_the_one_who_waits_does_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit on processes ended builds with a ``RuntimeError`` (F65)."""
    monkeypatch.setattr(threading.Thread, "start", refuse)
    background = Background(threading.get_ident, "test")
    background.start()
    assert background.result() == threading.get_ident()
    assert not begin(list, "test")


def test_nobody_waits_for_a_thread_that_never_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that was made and died before its first line let its build hang."""
    monkeypatch.setattr(threading.Thread, "start", lambda _: None)
    background = Background(lambda: 7, "test")
    background.start()
    assert background.result() == 7


def test_it_is_done_once_however_many_wait() -> None:
    """By the thread or by one of those who wait; all get the same."""
    calls: list[int] = []
    all_ask = threading.Event()

    def work() -> int:
        calls.append(1)
        assert all_ask.wait(PATIENCE)
        return len(calls)

    background = Background(work, "test")
    background.start()
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(background.result())) for _ in range(4)]
    for thread in threads:
        thread.start()
    all_ask.set()
    for thread in threads:
        thread.join()
    assert found == [1] * 4


def test_an_error_is_raised_where_the_result_is_asked_for() -> None:
    """Each time, as it was."""

    def fail() -> None:
        raise KeyError("what")

    background = Background(fail, "test")
    background.start()
    for _ in range(2):
        with pytest.raises(KeyError, match="what"):
            background.result()


def test_an_error_is_freed_with_who_asked_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where errors are copied with their tracebacks and causes, as in a program that has loaded dask."""

    class OwnError(Exception):
        pass

    class Held:
        pass

    def again(error: OwnError) -> tuple[Any, ...]:
        return whole, (error.args, error.__traceback__, error.__cause__, error.__context__)

    def whole(given: Any, *parts: Any) -> OwnError:
        made = OwnError(*given)
        made.__traceback__, made.__cause__, made.__context__ = parts
        return made

    def fail() -> None:
        held = Held()
        gone.append(weakref.ref(held))
        try:
            raise OwnError("a cause")
        except OwnError as error:
            raise OwnError("what") from error

    monkeypatch.setitem(copyreg.dispatch_table, OwnError, again)
    gone = list[weakref.ref[Held]]()
    background = Background(fail, "test")
    gc.disable()
    try:
        for _ in range(2):
            with pytest.raises(OwnError, match="what"):
                background.result()
        del background
        assert [each() for each in gone] == [None]
    finally:
        gc.enable()


def test_what_is_left_out_is_never_done_and_what_has_begun_is_not_left_out() -> None:
    """Who no longer needs it leaves alone what nobody has begun, and ends what somebody has."""
    done = list[int]()
    background = Background(lambda: done.append(1), "test")
    assert background.is_left_out()
    background.start()
    begun = Background(lambda: done.append(2), "test")
    begun.start()
    begun.result()
    assert not begun.is_left_out()
    assert done == [2]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("limit", [resource.RLIMIT_AS, resource.RLIMIT_DATA], ids=["address-space", "data"])
def test_where_memory_is_limited_there_are_no_threads_that_could_be_done_without(limit: int) -> None:
    """Their stacks and arenas took the room of what came next: modules half imported, aborts, hangs."""

    def work() -> list[bool]:
        before = limits.has_room()
        used = dict(zip((resource.RLIMIT_AS, resource.RLIMIT_DATA), limits._memory_in_use(), strict=True))[limit]
        resource.setrlimit(limit, (used + limits.ROOM // 2, resource.RLIM_INFINITY))
        return [before, limits.has_room(), begin(list, "test") is not None]

    assert in_fork(work) == [True, False, False]


def test_work_for_which_no_process_was_left_is_done_where_its_thread_has_ended() -> None:
    """The thread that linked was itself the last process that ``ulimit -u`` allows: the linker could not be started."""
    threads: list[threading.Thread] = []

    def work() -> str:
        threads.append(threading.current_thread())
        if threads[0] is threading.current_thread() is not threading.main_thread():
            raise RuntimeError("no linker") from BlockingIOError(errno.EAGAIN, "no process")
        return "linked"

    background = Background(work, "test")
    background.start()
    assert background._done.wait(60)
    assert background.result() == "linked"
    assert not threads[0].is_alive()


def test_threads_take_turns_sooner_while_one_works_behind_calls() -> None:
    """Each kernel of a call waited 5 ms for the interpreter beside a thread that lowered the same network."""
    usual = sys.getswitchinterval()
    with yielding():
        assert sys.getswitchinterval() < usual / 10
        with yielding():
            assert sys.getswitchinterval() < usual / 10
        assert sys.getswitchinterval() < usual / 10
    assert sys.getswitchinterval() == usual


def test_an_interval_that_a_program_sets_meanwhile_stays() -> None:
    """It is the program's, as before; one that is shorter is never made longer."""
    usual = sys.getswitchinterval()
    try:
        with yielding():
            sys.setswitchinterval(0.5)
        assert sys.getswitchinterval() == 0.5
        sys.setswitchinterval(1e-5)
        with yielding():
            assert sys.getswitchinterval() < 2e-5
        assert sys.getswitchinterval() < 2e-5
    finally:
        sys.setswitchinterval(usual)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_has_the_usual_interval() -> None:
    """Whoever works behind calls stays in the parent, and nobody in the child would restore it."""
    usual, inside, leave = sys.getswitchinterval(), threading.Event(), threading.Event()

    def work() -> None:
        with yielding():
            inside.set()
            leave.wait()

    def intervals() -> list[bool]:
        before = sys.getswitchinterval() == usual
        with yielding():
            is_short = sys.getswitchinterval() < usual
        return [before, is_short, sys.getswitchinterval() == usual]

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait()
    try:
        with yielding():
            assert in_fork(intervals) == [True, True, True]
    finally:
        leave.set()
        thread.join()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_who_forks_while_it_yields_leaves_in_both() -> None:
    """The child goes on with the usual interval, and its end of the block changes nothing."""
    usual = sys.getswitchinterval()

    def left() -> bool:
        yielded.__exit__(None, None, None)
        return sys.getswitchinterval() == usual

    yielded = yielding()
    with yielded:
        assert in_fork(left)
    assert sys.getswitchinterval() == usual
