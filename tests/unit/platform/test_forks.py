"""Forks while modules are loaded: what is waited for, and what a child makes of what is left."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from opbuild.platform import forks
from opbuild.platform.locks import Lock, RLock
from support.forked import in_fork
from support.until import until

LOADING = """
import threading
from waiting import begun, end
begun.set()
end.wait()
value = 1
"""


@pytest.fixture
def loading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A module that a thread is loading, until the event is set; it begins anew in a child."""
    (tmp_path / "waiting.py").write_text("import threading\nbegun, end = threading.Event(), threading.Event()\n")
    (tmp_path / "slow.py").write_text(LOADING)
    monkeypatch.syspath_prepend(tmp_path)
    waiting = importlib.import_module("waiting")
    thread = threading.Thread(target=importlib.import_module, args=("slow",))
    thread.start()
    assert until(waiting.begun.is_set)
    yield waiting.end
    waiting.end.set()
    thread.join()
    for name in ("slow", "waiting"):
        sys.modules.pop(name, None)


@pytest.mark.slow
def test_a_fork_waits_for_what_another_thread_loads(loading: threading.Event) -> None:
    """The child finds the module whole."""
    threading.Timer(0.3, loading.set).start()
    assert in_fork(lambda: importlib.import_module("slow").value, 30) == 1
    assert loading.is_set()


def test_a_child_loads_anew_what_is_never_loaded(loading: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where waiting was in vain it does not wait for a thread that it does not have."""
    monkeypatch.setattr(forks, "_PATIENCE", 0.1)

    def load() -> int:
        importlib.import_module("waiting").end.set()
        return int(importlib.import_module("slow").value)

    assert in_fork(load, 30) == 1
    assert not loading.is_set()


def test_a_fork_does_not_wait_for_a_thread_that_waits_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that forks while it is loaded, and that another thread wants."""
    monkeypatch.setattr(forks, "_PATIENCE", 600.0)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "wanting.py").write_text("import started\nstarted.begun.set()\nimport forking\n")
    (tmp_path / "started.py").write_text("import threading\nbegun = threading.Event()\n")
    (tmp_path / "forking.py").write_text(
        "import os, threading, time, importlib, started\n"
        "threading.Thread(target=importlib.import_module, args=('wanting',)).start()\n"
        "started.begun.wait()\ntime.sleep(0.2)\n"
        "child = os.fork()\n"
        "if child == 0:\n    os._exit(7)\n"
        "status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])\n"
    )
    assert importlib.import_module("forking").status == 7
    assert until(lambda: getattr(sys.modules.get("wanting"), "forking", None))
    for name in ("forking", "wanting", "started"):
        del sys.modules[name]


@pytest.mark.parametrize("make", [Lock, RLock])
def test_locks_are_open_in_a_child(make: object) -> None:
    """A thread that has one stays in the parent."""
    lock, taken, end = make(), threading.Event(), threading.Event()  # type: ignore[operator]

    def hold() -> None:
        with lock:
            taken.set()
            end.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait()
    assert in_fork(lambda: lock.acquire(timeout=20), 30)
    assert not lock.acquire(blocking=False)
    end.set()
    thread.join()
