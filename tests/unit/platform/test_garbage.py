"""Garbage is looked for rarely while a network is built, and as before afterwards."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator

import pytest

from opbuild.platform.calls import rare_collection
from support.forked import in_fork


@pytest.fixture(autouse=True)
def usual() -> Iterator[tuple[int, int, int]]:
    """The thresholds of this process, which are restored."""
    before = gc.get_threshold()
    yield before
    gc.set_threshold(*before)


def test_the_thresholds_are_restored_after_an_error(usual: tuple[int, int, int]) -> None:
    """Inside, and inside of that, garbage is looked for rarely, but it is looked for."""

    def work() -> None:
        with rare_collection():
            with rare_collection():
                assert gc.get_threshold()[0] > 100 * usual[0]
            assert gc.get_threshold()[0] > 100 * usual[0]
            assert gc.isenabled()
            raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        work()
    assert gc.get_threshold() == usual


def test_the_last_thread_restores_the_thresholds(usual: tuple[int, int, int]) -> None:
    """One that began first and ends first leaves them to the others."""
    inside, leave = threading.Event(), threading.Event()

    def work() -> None:
        with rare_collection():
            inside.set()
            leave.wait()

    with rare_collection():
        thread = threading.Thread(target=work)
        thread.start()
        inside.wait()
    assert gc.get_threshold() != usual
    leave.set()
    thread.join()
    assert gc.get_threshold() == usual


@pytest.mark.parametrize("own", [(0, 10, 10), (500_000, 5, 5)])
def test_who_has_thresholds_of_his_own_keeps_them(own: tuple[int, int, int]) -> None:
    """Where no garbage is looked for none is looked for; what is set inside stays."""
    gc.set_threshold(*own)
    with rare_collection():
        assert (gc.get_threshold()[0] == 0) == (own[0] == 0)
    assert gc.get_threshold() == own
    gc.set_threshold(700, 10, 10)
    with rare_collection():
        gc.set_threshold(*own)
    assert gc.get_threshold() == own


class _Made:
    """The product of a build."""


def test_what_was_made_is_old_afterwards_and_garbage_is_still_found() -> None:
    """The next allocation does not look through it, a whole collection does."""
    with rare_collection():
        kept, ring = _Made(), [_Made()]
        ring[0].__dict__["ring"] = ring
        gone = weakref.ref(ring[0])
        del ring
    young = [each for generation in (0, 1) for each in gc.get_objects(generation) if isinstance(each, _Made)]
    assert young == []
    assert gone() is not None
    gc.collect()
    assert gone() is None
    assert isinstance(kept, _Made)


def test_what_somebody_froze_stays_frozen() -> None:
    """A server that froze its objects before it forks keeps their pages."""
    gc.freeze()
    frozen = gc.get_freeze_count()
    try:
        with rare_collection():
            made = [_Made() for _ in range(10)]
        assert made
        assert gc.get_freeze_count() > frozen // 2
    finally:
        gc.unfreeze()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_has_the_usual_thresholds(usual: tuple[int, int, int]) -> None:
    """Whoever is inside stays in the parent, and nobody in the child would restore them."""
    inside, leave = threading.Event(), threading.Event()

    def work() -> None:
        with rare_collection():
            inside.set()
            leave.wait()

    def thresholds() -> list[bool]:
        before = gc.get_threshold() == usual
        with rare_collection():
            is_rare = gc.get_threshold() != usual
        return [before, is_rare, gc.get_threshold() == usual]

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait()
    try:
        assert in_fork(thresholds) == [True, True, True]
    finally:
        leave.set()
        thread.join()
