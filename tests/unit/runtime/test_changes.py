"""Calls that change what the caller gave: all of them or none, whatever signal arrives."""

from __future__ import annotations

import ctypes
import signal

import numpy as np
import pytest

from opbuild.errors import ChangesError
from opbuild.runtime.changes import change, writeable

INTERRUPTED = pytest.mark.skipif(
    signal.getsignal(signal.SIGINT) is not signal.default_int_handler, reason="the tests' process ignores Ctrl-C"
)


@INTERRUPTED
def test_an_interrupt_waits_until_all_is_changed() -> None:
    """Ctrl-C in the middle is handled when the last call has returned."""
    done = list[int]()
    steps = [(done.append, (1,)), (ctypes.CDLL(None)["raise"], (int(signal.SIGINT),)), (done.append, (2,))]
    with pytest.raises(KeyboardInterrupt):
        change(steps)
    assert done == [1, 2]


def test_a_call_that_fails_keeps_no_other_from_running_and_is_told() -> None:
    """The error is one that says that what was given may be half new."""
    done = list[int]()
    with pytest.raises(ChangesError, match="replaces inputs"):
        change([(int, (1,)), (done.append, (2,))])
    assert done == [2]


def test_only_arrays_that_are_read_only_and_changed_are_copied() -> None:
    """The others are the caller's own."""
    arrays = [np.zeros(3), np.zeros(3), np.zeros(3)]
    for each in arrays[:2]:
        each.flags.writeable = False
    found = writeable(arrays, [1, 2])
    assert [one is other for one, other in zip(arrays, found, strict=True)] == [True, False, True]
