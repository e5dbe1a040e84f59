"""Stopping a call: its loop over the steps ends at the next one, and nothing of it stays behind."""

from __future__ import annotations

import threading
from collections.abc import Callable
from threading import get_ident

import pytest

from opbuild.errors import RunError, StoppedError
from opbuild.runtime.stopping import STOPPABLE, StopFlag, check_stopped
from support.until import until


def _run(flag: StopFlag, steps: list[Callable[[], None]]) -> bool:
    """Run steps as an executor does, and return whether that ended early."""

    def call() -> bool:
        own = STOPPABLE[get_ident()].watch(steps)
        for step in own:
            step()
        STOPPABLE[get_ident()].leave()
        return len(own) < len(steps)

    return flag.run(call)


def test_a_call_ends_behind_the_step_in_which_it_is_stopped() -> None:
    """The steps themselves stay as they are, for other calls and for the next one."""
    flag, seen = StopFlag(), list[int]()
    steps: list[Callable[[], None]] = [lambda: seen.append(0), flag.set, lambda: seen.append(2)]
    assert _run(flag, steps)
    assert seen == [0]
    assert len(steps) == 3
    flag.clear()
    assert not _run(flag, [steps[0], steps[2]])
    assert seen == [0, 0, 2]


def test_a_flag_that_is_set_ends_a_call_before_its_first_step() -> None:
    """Where it begins, and where it was set since."""
    flag = StopFlag()
    flag.set()
    with pytest.raises(StoppedError) as caught:
        _run(flag, [lambda: pytest.fail("it ran")])
    assert isinstance(caught.value, RunError)
    flag.clear()

    def call() -> None:
        flag.set()
        assert flag.watch([1, 2]) == []
        check_stopped()

    with pytest.raises(StoppedError):
        flag.run(call)
    check_stopped()


def test_all_calls_that_watch_a_flag_are_stopped_and_no_others() -> None:
    """Those of several threads, and one inside another."""
    flag, other = StopFlag(), StopFlag()
    ends, inside = list[bool](), threading.Event()

    def wait() -> None:
        inside.set()
        assert until(lambda: flag.is_set)

    thread = threading.Thread(target=lambda: ends.append(_run(flag, [wait, lambda: pytest.fail("it ran")])))
    thread.start()
    assert inside.wait(60)
    assert not _run(other, [lambda: ends.append(_run(flag, [flag.set, lambda: None])), lambda: None])
    thread.join()
    assert ends == [True, True]


def test_a_call_is_stopped_behind_one_inside_it() -> None:
    """Of a network and the body of its loop both are watched, each as long as it runs."""
    flag = StopFlag()
    body: list[Callable[[], None]] = [lambda: None]
    assert _run(flag, [lambda: [_run(flag, body) for _ in range(3)] and None, flag.set, lambda: pytest.fail("it ran")])
    assert flag._steps == {}


def test_a_call_that_fails_leaves_nothing_that_can_be_stopped() -> None:
    """The next one in the same thread watches nothing."""
    flag = StopFlag()
    with pytest.raises(ZeroDivisionError):
        _run(flag, [lambda: 1 // 0 and None])
    assert STOPPABLE == {}
    assert flag._steps == {}
