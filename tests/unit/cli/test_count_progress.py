"""How far a command is that goes through many files: on a terminal, without one, and when it is interrupted."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from rich.console import Console

from opbuild.cli import progress as module
from opbuild.cli.progress import QUIET_SECONDS, Count, count_progress
from support.processes import environment
from support.samples import conv, entry_of
from support.until import PATIENCE


def test_a_count_says_how_far_it_is_and_how_long_it_goes_on() -> None:
    """Listing first, then numbers; the time left is from when the listing was done."""
    now = 0.0
    count = Count("removing", "removed", "the rest is whole", lambda: now)
    now = 4.0
    assert count.line == "listing the cache, 4 s"
    assert count.interrupted == "nothing removed yet; the rest is whole"
    count(0, 600)
    assert count.line == "removing: 0 of 600, 4 s"
    now = 14.0
    count(100, 600)
    assert count.line == "removing: 100 of 600, 14 s, about 50 s left"
    assert count.interrupted == "100 of 600 removed; the rest is whole"


@pytest.mark.parametrize("terminal", [True, False])
def test_where_there_can_be_no_thread_the_command_goes_on_without_a_word(
    monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    """A limit on processes or memory ends no command that only shows how far it is."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    console = Console(file=io.StringIO(), force_terminal=terminal, width=120)
    with count_progress("checking", "checked", "", console) as count:
        count(9, 9)
    assert count.line.startswith("checking: 9 of 9")


@pytest.mark.parametrize("terminal", [True, False])
def test_something_is_shown_while_it_goes_on_and_nothing_afterwards(
    monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    """102 seconds without a word look like a hang (F70)."""
    monkeypatch.setattr(module._Bar, "first", 0.01)
    monkeypatch.setattr(module._Lines, "first", 0.01)
    monkeypatch.setattr(module._Lines, "interval", 0.01)
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=terminal, width=120)
    wait, threads = threading.Event(), set(threading.enumerate())
    with count_progress("checking", "checked", "", console) as count:
        count(7, 9)
        for _ in range(1000):
            if "checking" in stream.getvalue():
                break
            wait.wait(0.01)
    assert ("7/9" if terminal else "checking: 7 of 9, ") in stream.getvalue()
    shown = stream.getvalue()
    wait.wait(0.05)
    assert stream.getvalue() == shown
    assert set(threading.enumerate()) <= threads


def test_without_a_terminal_the_longest_silence_is_ten_seconds() -> None:
    """The interval that is used is the one that is promised, and what is short says nothing (F70)."""
    assert module._Lines.first == module._Lines.interval == QUIET_SECONDS <= 10.0
    stream = io.StringIO()
    with count_progress("checking", "checked", "", Console(file=stream)) as count:
        count(9, 9)
    assert stream.getvalue() == ""


_SLOW = """
import os, sys, time
os.open(os.ttyname(0), os.O_RDWR)  # the terminal of this session, so that Ctrl-C is for it
from opbuild.cli import progress
from opbuild.store import ageing
progress._Bar.first = 0.05
remove = ageing.remove_files
def slow(files):
    time.sleep(0.2)
    return remove(files)
ageing.remove_files = slow
from opbuild.cli.main import main
sys.exit(main(["cache", "clear", "--cache_path", sys.argv[1]]))
"""


def test_a_terminal_shows_a_bar_and_ctrl_c_says_how_far_it_got(tmp_path: Path) -> None:
    """A real terminal and its real Ctrl-C: the bar is drawn and goes, the count is said, and entries are whole."""
    from opbuild.store.operators import operators_in

    store = operators_in(tmp_path / "rank_0" / "kernel_meta")
    for tile in range(100):
        store.publish(entry_of(conv(tile))[1])
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", _SLOW, str(tmp_path)], stdin=theirs, stdout=theirs, stderr=theirs, close_fds=True,
        env=environment(TERM="xterm", COLUMNS="120"), start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    said = b""
    while not re.search(rb"[1-9]/100", said):
        said += os.read(ours, 65536)
    os.write(ours, b"\x03")
    try:
        while piece := os.read(ours, 65536):
            said += piece
    except OSError:  # the terminal was closed
        pass
    os.close(ours)
    assert process.wait(PATIENCE) == 130
    text = said.decode()
    assert "removing" in text
    assert " of 100 removed; the rest is whole and can be used" in text
    assert "Traceback" not in text
    assert len(list(store.blobs.path.iterdir())) % 300 > 0
    assert len(list(store.blobs.path.iterdir())) % 3 == 0
